"""The index on a Redis Cluster: claims in one small slot make of many primaries one atomic check and insert.

No script sees all tables there, so a batch is judged in five steps, each of which is one script call a slot:

    claim    in the claim slot: nobody else judges what could match these pages until they are finished
    read     the buckets and records that each page meets, on all primaries at once
    number   in the claim slot: the pages that match nothing are decided to be unique, in order
    write    their records and members, on all primaries at once
    finish   in the claim slot: the answers are journalled and the claims let go; only now is a verdict known

A worker that stops on the way leaves claims. Whoever is handed such a page again takes it over with a new nonce: what
was not numbered is judged afresh; what was is written once more, after the former nonce has been barred from every
group of keys that is written to, so that a worker that wakes up late changes nothing. ARCHITECTURE.md has the argument.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from simhash.errors import IndexBusy, IndexMismatch
from simhash.index.base import FIELD as BASE_FIELD
from simhash.index.base import NONE as NO_BASE
from simhash.index.base import Base, Beside
from simhash.index.cluster.answers import (
    Busy,
    Claim,
    Claimed,
    Journalled,
    Numbered,
    Window,
)
from simhash.index.cluster.crowds import Crowds
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.judging import Fresh, Horizon, Match, Own, encoded, judged, number_of
from simhash.index.cluster.nodes import Nodes, TakenOver, Unsettled, translated_on_cluster
from simhash.index.cluster.reading import fingerprint_of
from simhash.index.cluster.removing import Remover
from simhash.index.cluster.resuming import Resumer
from simhash.index.faults import BaseMoved
from simhash.index.interface import (
    Answer,
    Entry,
    IndexSpec,
    Neighbour,
    Partition,
    Position,
    Record,
    Retention,
    Unique,
)
from simhash.index.layout import OFFSET_BYTES
from simhash.index.safekeeping import Durability

MAX_CALL_PAGES = 100
CALL_KEYS = 1600
"""Pages times the keys that each meets others by (and ten for itself) in one call to the claim slot: 4 to 5 ms."""
EXPIRE_PER_PAGE = 2
WAITS_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
"""How long a page waits for another worker's claim before what others have left is looked after; then as often again;
then the caller is told."""

Held = Sequence[tuple[Entry, Numbered | None]]
"""Pages whose claims are ours, with what is left of those that were numbered before."""


class ClusterIndex:
    """See `simhash.index.interface.Index`. Made by `simhash.index.cluster.opening.open_cluster_index`.

    Args:
        nodes: the cluster.
        name: ns, what the hash tags of all keys start with.
        spec: what the index was made with.
        generation: must be what the index says of itself at each call.
        retention: what to forget, when.
        clock: milliseconds since the epoch; None: that of the claim slot's server.
        durability: what must hold of the servers before a verdict counts.
        keys: what the hash tags of its groups start with, once it was migrated; None: its name.
    """

    def __init__(
        self,
        nodes: Nodes,
        name: str,
        spec: IndexSpec,
        generation: str,
        retention: Retention = Retention(),
        clock: Callable[[], int] | None = None,
        durability: Durability = Durability(),
        keys: str | None = None,
    ) -> None:
        self._inside = Inside.of(nodes, name, spec, generation, clock, durability, keys)
        self._nodes = nodes
        self._layout, self._placement = self._inside.layout, self._inside.placement
        self._claims, self._reader = self._inside.claims, self._inside.reader
        self._keeper = self._inside.keeper
        self._crowds = Crowds(self._claims, self._reader)
        self._remover = Remover(nodes, self._placement, self._claims, self._reader, self._keeper, retention)
        self._resumer = Resumer(nodes, self._placement, self._claims, self._reader, self._keeper, self._remover)
        self._retention = retention
        self._beside: Beside | None = None
        self._reading: frozenset[Partition] = frozenset()

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""
        return self._layout.spec

    @property
    def generation(self) -> str:
        """What the index said of itself when it was opened."""
        return self._inside.generation

    @property
    def inside(self) -> Inside:
        """For what operators do with an index: see `simhash.index.cluster.operations`."""
        return self._inside

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """See `Index.check_and_insert`; in several parts when the batch is large.

        Raises:
            IndexBusy: another worker judges a page that one of these may match; the others have their answers, and get
                them again when all are handed in again.
        """
        self._begin_reading(committed)
        answers: list[Answer] = []
        pages = max(1, min(MAX_CALL_PAGES, CALL_KEYS // (10 + self._placement.meeting_keys())))
        for at in range(0, max(len(entries), 1), pages):
            answers += self._answers(entries[at : at + pages], committed)
        return answers

    def judge_beside(self, base: Base) -> None:
        """Ask a base before the index, from now on; an index that has none yet takes it.

        Raises:
            BaseDiffers: the index is judged beside another.
        """
        with translated_on_cluster():
            beside = Beside(self._nodes.client, self._claims.meta, base)
            beside.begin()
        self._beside = beside

    def look_at_base(self) -> None:
        """See `Index.look_at_base`."""
        if self._beside is not None:
            with translated_on_cluster():
                self._beside.current()

    def base(self) -> str:
        """The generation of the base that the index is judged beside; "": none."""
        return (self._nodes.field(self._claims.meta, BASE_FIELD) or b"").decode()

    def announce_base(self, generation: str) -> None:
        """Say beside which base the index is judged from now on ("": none). No worker may be running."""
        self._nodes.set_field(self._claims.meta, BASE_FIELD, generation)

    def mark(self, partition: Partition) -> int | None:
        """See `Index.mark`."""
        mark = self._nodes.field(self._claims.journal(partition), "mark")
        return None if mark is None else int(mark)

    def marks(self) -> dict[Partition, int]:
        """The committed mark of every partition that the index has seen."""
        found = {partition: self._nodes.field(key, "mark") for partition, key in self._inside.journals().items()}
        return {partition: int(mark) for partition, mark in found.items() if mark is not None}

    def rewind(self, partition: Partition, offset: int) -> None:
        """See `Index.rewind`."""
        self._nodes.set_field(self._claims.journal(partition), "mark", str(offset))

    def journalled(self, position: Position) -> bool:
        """See `Index.journalled`."""
        field = position.offset.to_bytes(OFFSET_BYTES)
        return self._nodes.field(self._claims.journal(position.partition), field) is not None

    def documents(self) -> int:
        """See `Index.documents`."""
        return int(self._nodes.field(self._claims.meta, "documents") or 0)

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        return self._reader.neighbours(fingerprint)

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        for kind in ("r", "x"):
            for key in self._nodes.keys(f"{{{self._placement.name}:", f"}}:{kind}:"):
                for field, value in self._nodes.hash(key).items():
                    for stored in self._reader.records(field, value):
                        yield fingerprint_of(field), stored.record

    def ping(self) -> None:
        """See `Index.ping`."""
        self._nodes.ping()

    def receipt(self) -> str:
        """See `Index.receipt`."""
        return self._keeper.receipt()

    def present(self, receipts: Iterable[str]) -> None:
        """See `Index.present`: the claim slot is held against receipts, and all groups against the claim slot."""
        self._keeper.present(receipts)

    def server_change(self) -> str:
        """See `Index.server_change`; of any primary. A slot that was moved is none."""
        return self._keeper.server_change()

    def accept(self) -> None:
        """The operator announces that the index is right as it is, whatever receipts say of it."""
        self._keeper.accept()

    def replicated(self) -> None:
        """See `Index.replicated`: replicas of every primary."""
        self._keeper.replicated()

    def claims(self) -> list[Claim]:
        """Every live claim: of pages that are being judged, and of those whose worker has died over them."""
        return self._claims.listed()

    def release(self, ids: Sequence[bytes]) -> int:
        """End claims, as an operator: a page that was merely being judged is let go, one that was decided to be unique
        is written to its end, a removal is done. Safe while the claim's worker lives. Returns how many there were."""
        there = {claim.id for claim in self.claims()}.intersection(ids)
        self._resumer.resume(*self._claims.recover([], ids=list(there)))
        return len(there)

    def forget(self, seqs: Sequence[int]) -> int:
        """Remove records by their numbers; how many of them there were.

        Raises:
            IndexBusy: a page of the same fingerprint is being judged; call again.
        """
        return self._remover.forget(seqs)

    def _begin_reading(self, committed: Mapping[Partition, int]) -> None:
        """End what the last reader of a partition left there, before it is in the way of a page that comes earlier."""
        if gained := committed.keys() - self._reading:
            self._resumer.resume(*self._claims.recover(list(gained)))
        self._reading = frozenset(committed)

    # Waiting -------------------------------------------------------------------------------------------------------

    def _answers(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        answers: dict[bytes, Answer] = {}
        blocker = b""
        for attempt, wait in enumerate(WAITS_SECONDS * 2):
            pending = [entry for entry in entries if entry.observation not in answers]
            try:
                blocker = self._round(pending, committed, answers)
            except TakenOver:
                blocker = b""
            except Unsettled:
                self._keeper.settle()
                continue
            except BaseMoved as error:
                self._follow(error)
                continue
            if all(entry.observation in answers for entry in entries):
                return [answers[entry.observation] for entry in entries]
            # Nothing is held any more: what could be judged is finished.
            if attempt == len(WAITS_SECONDS) - 1:
                self._look_after(pending, committed)
            time.sleep(wait * random.uniform(0.5, 1.5))
        raise IndexBusy(
            f"a page like one of this batch is being judged by another worker, or was by one that has died and whose "
            f"pages have not been read again yet (claim {blocker.hex() or 'lost'})"
        )

    def _look_after(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> None:
        """End what others have left in the partitions that are ours to read now, and removals: it is in our way, or in
        the way of somebody who is in ours."""
        partitions = dict.fromkeys([*committed, *(e.position.partition for e in entries if e.position)])
        others = any(entry.position is None for entry in entries)
        self._resumer.resume(*self._claims.recover(list(partitions), removals=True, others=others))

    # Judging -------------------------------------------------------------------------------------------------------

    def _round(
        self, entries: Sequence[Entry], committed: Mapping[Partition, int], answers: dict[bytes, Answer]
    ) -> bytes:
        """Answer all pages that nobody is in the way of; the last claim that was in the way of one, or nothing."""
        base, decided = self._decided(entries)
        claimed = self._claims.claim(entries, committed, base, self._retention.max_documents)
        held: list[tuple[Entry, Numbered | None]] = []
        blocker, window = b"", claimed.window
        for entry, reply in zip(entries, claimed.replies, strict=True):
            if isinstance(reply, Journalled):
                answers[entry.observation] = self._answer(reply.answer, entry)
            elif isinstance(reply, Busy):
                blocker = reply.claim
            elif isinstance(reply, Numbered):
                held.append((entry, reply))
            elif reply == "claimed":
                held.append((entry, None))
        if held:
            found, window = self._settled(claimed, held, decided)
            answers |= {entry.observation: self._answer(found[entry.observation], entry) for entry, _ in held}
        self._tell({page: answer for page, answer in answers.items() if page not in decided})
        self._remover.expire(claimed.now_ms, window, EXPIRE_PER_PAGE * len(entries))
        return blocker

    def _settled(
        self, claimed: Claimed, held: Held, of_base: Mapping[bytes, bytes]
    ) -> tuple[dict[bytes, bytes], Window]:
        """Read, number, write, finish: the answers to pages whose claims we hold.

        Args:
            of_base: what the base answers for some of them; they are not stored, unless they are stored already.
        """
        views, records = self._reader.views([entry for entry, _ in held])
        answers: dict[bytes, bytes] = {}
        decided: dict[bytes, tuple[int, Own | Match | Fresh]] = {}
        fresh: list[Fresh] = []
        given = claimed.seq
        for view, (entry, numbered) in zip(views, held, strict=True):
            found: Own | Match | Fresh | None
            if numbered:
                found = Fresh(entry, number_of(numbered.record), numbered.record)
            else:
                horizon = self._horizon(claimed, given - claimed.seq)
                found = judged(view, records, fresh, self.spec.relation, horizon)
                if entry.observation in of_base and not isinstance(found, Own):
                    answers[entry.observation] = of_base[entry.observation]
                    continue
            if found is None:
                given += 1
                found = Fresh(entry, given)
            if isinstance(found, Fresh):
                fresh.append(found)
            decided[entry.observation] = view.compared, found
        self._store(claimed, held, fresh)
        answers |= {page: encoded(compared, found) for page, (compared, found) in decided.items()}
        partitions = dict.fromkeys(entry.position.partition for entry, _ in held if entry.position)
        window = self._claims.finish(claimed.nonce, answers, [self._claims.journal(p) for p in partitions])
        self._crowds.note(views)
        return answers, window

    def _store(self, claimed: Claimed, held: Held, fresh: Sequence[Fresh]) -> None:
        """Number the unique pages that have no number yet; write all of them."""
        new = [page for page in fresh if not page.data]
        if new:
            observations = [entry.observation for entry, _ in held]
            floor = self._horizon(claimed, len(new)).first_seq
            numbered = self._claims.number(
                claimed.nonce, observations, [page.entry for page in new], self._retention.max_documents, floor
            )
            for page, data in zip(new, numbered, strict=True):
                page.seq, page.data = number_of(data), data
        written = [
            operation
            for page in fresh
            for operation in self._placement.insertion(self._placement.key(page.entry), page.data, page.entry.verifier)
        ]
        if written:
            writers = [writer for _, numbered in held if numbered for writer in numbered.writers]
            self._nodes.write(self._placement, written, claimed.nonce, writers)

    def _horizon(self, claimed: Claimed, new: int) -> Horizon:
        """What has expired by the time that `new` pages of this batch have been numbered."""
        age, most = self._retention.max_age_ms, self._retention.max_documents
        return Horizon(-1 if age is None else claimed.now_ms - age, claimed.floor(new, most))

    def _answer(self, data: bytes, entry: Entry) -> Answer:
        return self._layout.answer(data, entry)

    # A base --------------------------------------------------------------------------------------------------------

    def _decided(self, entries: Sequence[Entry]) -> tuple[str, dict[bytes, bytes]]:
        """The base's generation, and its answers to those pages that it knows."""
        if self._beside is None:
            return NO_BASE, {}
        with translated_on_cluster():
            base = self._beside.current()
        found = zip(entries, base.decisions(entries), strict=True)
        return base.generation, {e.observation: self._layout.answered(d, e) for e, d in found if d}

    def _follow(self, error: BaseMoved) -> None:
        """Another worker judges beside another base: do the same."""
        if self._beside is None:
            raise IndexMismatch(f"the index is judged beside base {error}: name it by the setting `base`") from error
        with translated_on_cluster():
            self._beside.follow()

    def _tell(self, answers: Mapping[bytes, Answer]) -> None:
        """Note the numbers that the index has given. A match's may be the base's, from the journal."""
        for answer in answers.values():
            if isinstance(answer.decision, Unique):
                self._keeper.told(answer.decision.seq)
            elif self._beside is None:
                self._keeper.told(answer.decision.match.seq)
