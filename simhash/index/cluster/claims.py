"""The claim slot's calls: bytes for `claims.lua`. The connection is the caller's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from simhash.errors import IndexUnreachable
from simhash.index.cluster.answers import (
    Audit,
    Claim,
    Claimed,
    Removal,
    Taken,
    Window,
    claim_of,
    nonces,
    reply_of,
    taken_of,
)
from simhash.index.cluster.groups import claim_tag
from simhash.index.cluster.ledger import Kept, Ledger
from simhash.index.cluster.nodes import Unsettled
from simhash.index.cluster.placement import Placement
from simhash.index.faults import NextMoved
from simhash.index.interface import Entry, Partition
from simhash.index.layout import OFFSET_BYTES, SEQ_BYTES, Layout
from simhash.sketch import BAND_BITS

CLAIM_SLOT = ("meta", "claims", "meet", "gone", "groups", "loading", "next")
"""The keys of the claim slot, but for the journals."""
_LOOKING = ("list", "standing", "audit", "groups", "settle", "met")
"""What may be asked of any server."""
_EITHER_WAY = ("list", "standing", "audit", "met", "touch", "reserve", "begin", "sweep", "abandon")
"""What may be asked whichever generation is written to beside this one."""
_ASKED_AGAIN = ("recover", "retire", "groups", "settle", "carry")
"""What is asked again when another generation is: nothing was done for the former one that this call would end."""
ATTEMPTS = 10
"""How often something is tried again because the servers, or the generations, have changed once more."""
_json = msgspec.json.Encoder()


class Claims:
    """See the module.

    Args:
        run: calls claims.lua with keys and arguments.
        ledger: is told what the claim slot says of the groups, and tells it what was written to them.
        look_beside: is called when another generation than before is written to beside this one, or none any more.
        history: the history that calls count on (see `simhash.index.safekeeping`).
        clock: milliseconds since the epoch; None: the server's.
    """

    def __init__(
        self,
        run: Callable[[Sequence[str], Sequence[bytes | str | int]], Any],
        name: str,
        generation: str,
        placement: Placement,
        layout: Layout,
        ledger: Ledger,
        history: Callable[[], str],
        look_beside: Callable[[], None],
        clock: Callable[[], int] | None = None,
    ) -> None:
        tag = claim_tag(name)
        self._run = run
        self._generation = generation
        self._placement = placement
        self._layout = layout
        self._ledger = ledger
        self._history = history
        self._look_beside = look_beside
        self._clock = clock
        self._keys = [f"{tag}:{key}" for key in CLAIM_SLOT]
        self._journals = f"{tag}:j:"

    @property
    def meta(self) -> str:
        """The key of what the index says of itself."""
        return self._keys[0]

    @property
    def gone(self) -> str:
        """The key of the numbers that were removed out of turn."""
        return self._keys[3]

    @property
    def ledger(self) -> str:
        """The key of what is known of the groups."""
        return self._keys[4]

    @property
    def next(self) -> str:
        """The key of what is known of the generation beside this one (migrating.lua)."""
        return self._keys[6]

    @property
    def small_hashes(self) -> list[str]:
        """The keys of the claims, and of where they meet."""
        return self._keys[1:3]

    @property
    def journals(self) -> str:
        """What the keys of journals start with."""
        return self._journals

    def journal(self, partition: Partition) -> str:
        """The journal of a partition."""
        return f"{self._journals}{partition.topic}:{partition.number}"

    def claim(
        self, entries: Sequence[Entry], committed: Mapping[Partition, int], base: str, most: int | None = None
    ) -> Claimed:
        """Claim what is not journalled and in nobody's way; move the marks.

        Args:
            most: how many records to keep.

        Raises:
            BaseMoved: the index is judged beside another base.
        """
        partitions = dict.fromkeys([*committed, *(e.position.partition for e in entries if e.position)])
        numbers = {partition: number for number, partition in enumerate(partitions, start=1)}
        pages = [self._page(e, numbers[e.position.partition] if e.position else 0) for e in entries]
        offsets = _json.encode([committed.get(partition, -1) for partition in partitions])
        nonce, now, seq, kept, gone, first, floor, groups, *replies = self.call(
            "claim",
            offsets,
            -1 if most is None else most,
            *pages,
            journals=[self.journal(partition) for partition in partitions],
            base=base,
        )
        self._ledger.learn(groups)
        window, answers = Window(first, floor), [reply_of(reply) for reply in replies]
        return Claimed(nonce, now, seq, kept, [*map(int, gone)], window, answers)

    def number(
        self, nonce: int, held: Sequence[bytes], unique: Sequence[Entry], most: int | None, floor: int
    ) -> list[bytes]:
        """Decide that pages are unique, in order; their records.

        Args:
            held: all pages of this nonce.
            most: how many records to keep; floor: what is below it was taken to be forgotten when they were judged.
        """
        bodies = [self._layout.body(entry) for entry in unique]
        pages = [entry.observation + body for entry, body in zip(unique, bodies, strict=True)]
        now, seq = self.call("number", nonce, b"".join(held), -1 if most is None else most, floor, *pages)
        head = now.to_bytes(6)
        return [(seq + n).to_bytes(SEQ_BYTES) + head + body for n, body in enumerate(bodies)]

    def finish(self, nonce: int, answers: Mapping[bytes, bytes], journals: Sequence[str]) -> Window:
        """Journal the answers and let the pages go: only now may their verdicts be known.

        Raises:
            Unsettled: what was written to a group may be lost, because it has another server now.
        """
        pages = [page + answer for page, answer in answers.items()]
        return Window(*self.call("finish", nonce, self._ledger.tallies(), *pages, journals=journals))

    def recover(
        self, partitions: Sequence[Partition], ids: Sequence[bytes] = (), removals: bool = False, others: bool = False
    ) -> tuple[int, list[Taken]]:
        """Drop claims on pages that are merely being judged, take over those that may be partly written.

        Args:
            partitions, ids: of these; removals: of records that are being removed; others: of pages of no partition.

        Returns:
            the nonce, and what was taken over.
        """
        journals = [self.journal(partition) for partition in partitions]
        wanted = "r" * removals + "o" * others
        nonce, groups, *taken = self.call("recover", wanted, *ids, journals=journals)
        self._ledger.learn(groups)
        return nonce, [taken_of(*row) for row in taken]

    def met(self, most: int, crowds: int, cuts: int) -> None:
        """Count what pages have met: the most candidates of one, how many met a crowd, calls that gave only a part."""
        self.call("met", most, crowds, cuts)

    def listed(self) -> list[Claim]:
        """Every claim there is."""
        return [claim_of(*row) for row in self.call("list")]

    def standing(self, seqs: Sequence[int]) -> set[int]:
        """Those of these numbers whose records must be there in full: not gone, and under no claim."""
        return set(self.call("standing", *seqs))

    def audit(self) -> Audit:
        """See the class."""
        first, seq, documents, stored, *astray = self.call("audit")
        return Audit(first, seq, documents, stored, astray)

    def retire(self, removals: Sequence[Removal]) -> tuple[int, list[list[int] | None]]:
        """Claim records in order to remove them.

        Returns:
            the nonce, and for each record its former removers; None: it is gone, or in the way of a page that is
            being judged.
        """
        rows = [r.seq.to_bytes(SEQ_BYTES) + self._placement.meeting_of(r.key) + r.key for r in removals]
        nonce, groups, *replies = self.call("retire", *rows)
        self._ledger.learn(groups)
        return nonce, [nonces(reply[1:]) if reply[:1] == b"r" else None for reply in replies]

    def retired(self, nonce: int, seqs: Sequence[int]) -> Window:
        """Say that records have been removed. Raises Unsettled as `finish` does."""
        gone = (seq.to_bytes(SEQ_BYTES) for seq in seqs)
        return Window(*self.call("retired", nonce, self._ledger.tallies(), *gone))

    # Groups --------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Kept]:
        """What is known of the groups now."""
        return self._ledger.learn(self.call("groups"))

    def settle(self, rows: Sequence[bytes]) -> bool:
        """Say what groups were found to be (`ledger.settled`); False: something else is known of one by now."""
        return bool(self.call("settle", *rows))

    def touching(self) -> tuple[list[str], list[bytes | str | int]]:
        """Keys and arguments of a call that writes, and no more."""
        return self._keys, self._arguments("touch")

    # Filling: see filling.lua --------------------------------------------------------------------------------------

    def fill(self) -> tuple[int, list[int], bytes]:
        """Begin to fill the index: a nonce, those who did before, and the plan that was not carried out."""
        nonce, groups, former, plan = self.call("fill")
        self._ledger.learn(groups)
        return nonce, nonces(former), plan

    def fill_from(self, nonce: int, seq: int) -> None:
        """There is nothing before this number."""
        self.call("fill_from", nonce, seq)

    def plan(self, nonce: int, before: int, plan: bytes) -> None:
        """Keep what is about to be written behind this number."""
        self.call("plan", nonce, before, plan)

    def planned(self, nonce: int, last: int, more: int, gone: Sequence[int]) -> None:
        """The plan is carried out: the last number, how many records more there are, the numbers without one."""
        self.call("planned", nonce, self._ledger.tallies(), last, more, *gone)

    def release(self, nonce: int, generation: str) -> None:
        """The index is full."""
        self.call("release", nonce, generation)

    # Calls ---------------------------------------------------------------------------------------------------------

    def _page(self, entry: Entry, journal: int) -> bytes:
        own, beside = self._placement.meeting(entry)
        key, verifier = self._placement.key(entry), self._compared(entry.verifier)
        offset = entry.position.offset if entry.position else 0
        head = struct.pack(">16sH6s", entry.observation, journal, offset.to_bytes(OFFSET_BYTES))
        lengths = struct.pack(">HH", len(own), len(own) + len(beside))
        parts = [head, bytes([len(key)]), key, bytes([len(verifier)]), verifier, lengths, *own, *beside]
        return b"".join(parts)

    def _compared(self, verifier: int | None) -> bytes:
        """The part of a verifier that is compared."""
        relation = self._placement.spec.relation
        if relation.verifier_reach is None or verifier is None:
            return b""
        return (verifier >> (BAND_BITS * relation.bands)).to_bytes(relation.verifier_bits // 8)

    def call(self, command: str, *arguments: bytes | str | int, journals: Sequence[str] = (), base: str = "") -> Any:
        """Call a command of claims.lua.

        Raises:
            Unsettled: another generation than before is written to beside the index's own: its work begins anew.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._run([*self._keys, *journals], [*self._arguments(command, base), *arguments])
            except NextMoved as error:
                self._look_beside()
                if command not in _ASKED_AGAIN:
                    raise Unsettled("another generation is written to beside the index's own now") from error
        raise IndexUnreachable("migrations of the index are begun and given up all the time")

    def _arguments(self, command: str, base: str = "") -> list[bytes | str | int]:
        history = "" if command in _LOOKING else self._history()
        now = self._clock() if self._clock else -1
        beside = self._placement.next.name if self._placement.next else ""
        return [self._generation, command, f"{now} {history} {base} {'*' if command in _EITHER_WAY else beside}"]
