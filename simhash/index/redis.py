"""The index in Redis: one script call judges a batch, atomically.

`layout` says what lies where; the files of `script` are the judgement; this file translates between entries and the
script's bytes. `opening` opens an index; `safekeeping` knows whether Redis still has what it got.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import redis

from simhash.errors import IndexMismatch
from simhash.index.base import FIELD as BASE_FIELD
from simhash.index.base import NONE as NO_BASE
from simhash.index.base import Base, Beside
from simhash.index.calls import CallSize, Script
from simhash.index.faults import BaseMoved, NextMoved, translated
from simhash.index.generations import next_layout
from simhash.index.inside import Inside, source
from simhash.index.interface import (
    Answer,
    Duplicate,
    Entry,
    IndexSpec,
    Neighbour,
    Partition,
    Position,
    Record,
    Retention,
    Unique,
)
from simhash.index.layout import OFFSET_BYTES, Layout, literal, untagged
from simhash.index.safekeeping import Durability, Safekeeping, receipt_in
from simhash.index.server import check_server
from simhash.index.surroundings import CROWD, Reading, Surroundings

CALL_WORK = 3500
"""Work after which the script leaves the rest of a call to the next one, about 5 ms: a page is 50, a candidate 1."""
CALLS_UNDER_WAY = 2
EXPIRE_PER_PAGE = 2
"""Expired records removed for each page judged: more than one, so that removal overtakes insertion."""
_PARTS = ("call", "bits", "records", "beside", "retention", "writing", "judging", "crowds", "journals", "batch")


class Known(NamedTuple):
    """What a base answers, before the index is asked: its generation, and for each page an answer's bytes or None."""

    generation: str
    answers: Sequence[bytes | None]

    def of(self, pages: slice) -> Known:
        """The same for some of the pages."""
        return Known(self.generation, self.answers[pages])


class RedisIndex:
    """See `simhash.index.interface.Index`. Made by `simhash.index.opening.open_index`.

    Args:
        client: a connection; answers as bytes.
        name: ns, what all keys start with.
        spec: what the index was made with.
        generation: must be what the index says of itself at each call.
        retention: what to forget, when.
        clock: milliseconds since the epoch; None: the server's own clock.
        durability: what must hold of the server before a verdict counts.
        keys: what its tables' keys start with; None: its name (see `Layout`).
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        spec: IndexSpec,
        generation: str,
        retention: Retention = Retention(),
        clock: Callable[[], int] | None = None,
        durability: Durability = Durability(),
        keys: str | None = None,
    ) -> None:
        self._layout = Layout(name, spec, keys)
        self._safekeeping = Safekeeping(client, self._layout.meta, durability)
        self._client: Any = self._safekeeping.client  # its types say "bytes or str" of every answer; ours are all bytes
        self._inside = Inside(self._client, self._layout, generation)
        self._retention = retention
        self._clock = clock
        self._script = Script(self._client, self._layout.for_script() + source(*_PARTS))
        self._generation = generation
        self._size = CallSize()
        self._beside: Beside | None = None
        self._next: Layout | None = None

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""
        return self._layout.spec

    @property
    def inside(self) -> Inside:
        """For what operators do with an index: see the modules that take it."""
        return self._inside

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """See `Index.check_and_insert`; several calls when the batch is large, each atomic."""
        answers: list[Answer] = []
        self._safekeeping.begin()
        known = self._known(entries)
        while len(answers) < len(entries):
            left = slice(len(answers), len(entries))
            try:
                with translated():
                    crowded = self._judge_some(entries[left], committed, known.of(left), answers)
                    if crowded:
                        self._judge_in_crowd(entries[len(answers)], committed, known.generation, answers)
            except BaseMoved as error:
                self._follow(error)
                known = self._known(entries)
            except NextMoved:
                with translated():
                    self._next = next_layout(self._client, self._layout.name)
                self._size = CallSize()  # a page takes twice the time now, or half of it
        return answers

    def judge_beside(self, base: Base) -> None:
        """Ask a base before the index, from now on; an index that has none yet takes it.

        Raises:
            BaseDiffers: the index is judged beside another.
        """
        with translated():
            beside = Beside(self._client, self._layout.meta, base)
            beside.begin()
        self._beside = beside

    def look_at_base(self) -> None:
        """See `Index.look_at_base`."""
        if self._beside is not None:
            with translated():
                self._beside.current()

    def base(self) -> str:
        """The generation of the base that the index is judged beside; "": none."""
        with translated():
            stored: bytes | None = self._client.hget(self._layout.meta, BASE_FIELD)
        return (stored or b"").decode()

    def announce_base(self, generation: str) -> None:
        """Say beside which base the index is judged from now on ("": none). No worker may be running."""
        with translated():
            self._client.hset(self._layout.meta, BASE_FIELD, generation)

    def mark(self, partition: Partition) -> int | None:
        """See `Index.mark`."""
        with translated():
            mark = self._client.hget(self._layout.journal(partition), "mark")
        return None if mark is None else int(mark)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that the index has a journal of; slow on large indexes."""
        start = f"{self._layout.name}:j:"
        with translated():
            keys = [key.decode() for key in self._client.scan_iter(f"{literal(start)}*", count=1000)]
        for topic, _, number in (key.removeprefix(start).rpartition(":") for key in sorted(set(keys))):
            yield Partition(topic, int(number))

    def marks(self) -> dict[Partition, int]:
        """The committed mark of every partition that the index has seen."""
        found = {partition: self.mark(partition) for partition in self.partitions()}
        return {partition: mark for partition, mark in found.items() if mark is not None}

    def rewind(self, partition: Partition, offset: int) -> None:
        """See `Index.rewind`."""
        with translated():
            self._client.hset(self._layout.journal(partition), "mark", str(offset))

    def journalled(self, position: Position) -> bool:
        """See `Index.journalled`."""
        field = position.offset.to_bytes(OFFSET_BYTES)
        with translated():
            return bool(self._client.hexists(self._layout.journal(position.partition), field))

    def documents(self) -> int:
        """See `Index.documents`."""
        with translated():
            return int(self._client.hget(self._layout.meta, "documents") or 0)

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        reading = Reading(self._inside)
        with translated():
            near = [fingerprint, *(set(reading.near(fingerprint)) - {fingerprint})]
            found = [Neighbour(f, (f ^ fingerprint).bit_count(), record) for f, record in reading.records(near)]
        return sorted(found, key=lambda n: (n.distance, n.record.seq))

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        layout = self._layout
        with translated():
            for key in self._client.scan_iter(f"{literal(layout.keys)}:r:*", count=1000):
                for field, value in self._client.hgetall(key).items():
                    for record in layout.records_in(value):
                        yield int.from_bytes(field), record
            for key in self._client.scan_iter(f"{literal(layout.keys)}:x:*", count=1000):
                for field, value in self._client.hgetall(key).items():
                    yield None, layout.record(value, untagged(field))

    def ping(self) -> None:
        """See `Index.ping`."""
        with translated():
            self._client.ping()

    def present(self, receipts: Iterable[str]) -> None:
        """See `Index.present`; also that the server, which may be another one now, would not lose keys."""
        with translated():
            check_server(self._client)
            self._safekeeping.present(filter(None, map(receipt_in, receipts)))

    def server_change(self) -> str:
        """See `Index.server_change`."""
        return self._safekeeping.change

    def accept(self) -> None:
        """The operator announces that the index is right as it is, whatever receipts say of it."""
        with translated():
            self._safekeeping.accept()

    def receipt(self) -> str:
        """See `Index.receipt`."""
        return str(self._safekeeping.receipt or "")

    def replicated(self) -> None:
        """See `Index.replicated`."""
        with translated():
            self._safekeeping.replicated()

    def _judge_some(
        self,
        entries: Sequence[Entry],
        committed: Mapping[Partition, int],
        known: Known,
        answers: list[Answer],
        read: Surroundings | None = None,
    ) -> bool:
        """Add the answers for `entries`, or for the first of them when a call is cut short.

        The script that cuts one short refuses what is under way behind it, which it knows by the name they share.

        Args:
            read: what was read for an entry that meets a crowd, and is alone.

        Returns:
            Whether the next entry meets a crowd.
        """
        try:
            return self._judge(entries, committed, known, answers, read)
        except redis.exceptions.NoScriptError:
            self._script.load()
            return False

    def _judge(
        self,
        entries: Sequence[Entry],
        committed: Mapping[Partition, int],
        known: Known,
        answers: list[Answer],
        read: Surroundings | None,
    ) -> bool:
        at, crowded = 0, False
        sent: deque[slice] = deque()
        call: dict[str, object] = {"name": secrets.token_hex(8), "work": CALL_WORK, "crowd": CROWD}
        call["history"] = self._safekeeping.expected()
        if read:
            call["read"] = read.for_script(self._layout.fingerprint_bytes)
        with self._script.line() as line:
            while at < len(entries) or sent:
                if at < len(entries) and len(sent) < CALLS_UNDER_WAY:
                    wanted = self._size.first(len(entries)) if at == 0 else self._size.pages
                    some = slice(at, min(at + wanted, len(entries)))
                    arguments = self._arguments(call, entries[some], committed, known.of(some))
                    sent.append(some)
                    line.send(self._layout.meta, arguments)
                    at = some.stop
                    continue
                some = sent.popleft()
                found, microseconds = line.receive()
                if found and self._layout.meets_crowd(found[-1]):
                    found.pop()
                    crowded = True
                elif found:
                    self._size.took(len(found), microseconds)
                answers += map(self._told, found, entries[some], known.answers[some])
                if len(found) < some.stop - some.start:
                    at = len(entries)
        return crowded

    def _judge_in_crowd(
        self, entry: Entry, committed: Mapping[Partition, int], base: str, answers: list[Answer]
    ) -> None:
        """Add the answer for an entry that meets more stored pages than one call may compare."""
        wanted, undecided = len(answers) + 1, Known(base, [None])
        while len(answers) < wanted:
            read = Reading(self._inside).surroundings(entry)
            self._judge_some([entry], committed, undecided, answers, read)

    def _told(self, data: bytes, entry: Entry, of_base: bytes | None) -> Answer:
        answer = self._layout.answer(data, entry)
        if not of_base:
            self._tell(answer.decision)
        return answer

    def _arguments(
        self,
        call: Mapping[str, object],
        entries: Sequence[Entry],
        committed: Mapping[Partition, int],
        known: Known,
    ) -> list[object]:
        numbers, partitions = self._partitions(entries, committed)
        pages = [self._page(e, numbers[e.position.partition] if e.position else 0) for e in entries]
        decided = {n: answer for n, answer in enumerate(known.answers, start=1) if answer}
        of_call = {
            "now_ms": self._clock() if self._clock else -1,
            "max_age_ms": _or_minus_one(self._retention.max_age_ms),
            "max_documents": _or_minus_one(self._retention.max_documents),
            "expire_per_page": EXPIRE_PER_PAGE,
            "partitions": partitions,
            "base": known.generation,
            "decided": list(decided),
            "next": self._next.keys if self._next else "",
        }
        return [self._generation, msgspec.json.encode({**call, **of_call}), *pages, *decided.values()]

    def _page(self, entry: Entry, partition: int) -> bytes:
        page = self._layout.page(entry, partition)
        if self._next is None or entry.fingerprint is None:
            return page
        return page + self._next.stands(self._next.key_of(entry.fingerprint))

    def _tell(self, decision: Unique | Duplicate) -> None:
        """Note a number that the index has given. A match's may be the base's, from the journal."""
        if isinstance(decision, Unique):
            self._safekeeping.told(decision.seq)
        elif self._beside is None:
            self._safekeeping.told(decision.match.seq)

    def _known(self, entries: Sequence[Entry]) -> Known:
        """What the base answers."""
        if self._beside is None:
            return Known(NO_BASE, [None] * len(entries))
        with translated():
            base = self._beside.current()
        found = zip(entries, base.decisions(entries), strict=True)
        return Known(base.generation, [self._layout.answered(d, entry) if d else None for entry, d in found])

    def _follow(self, error: BaseMoved) -> None:
        """Another worker judges beside another base: do the same."""
        if self._beside is None:
            raise IndexMismatch(f"the index is judged beside base {error}: name it by the setting `base`") from error
        with translated():
            self._beside.follow()

    def _partitions(
        self, entries: Sequence[Entry], committed: Mapping[Partition, int]
    ) -> tuple[dict[Partition, int], list[tuple[str, int]]]:
        wanted = dict.fromkeys([*committed, *(e.position.partition for e in entries if e.position)])
        numbers = {partition: number for number, partition in enumerate(wanted, start=1)}
        return numbers, [(self._layout.journal(p), committed.get(p, -1)) for p in wanted]


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value
