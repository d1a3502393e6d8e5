"""The index in this process's memory: sorted lists and dictionaries, nothing kept.

Small enough to be read in one go, it is also the model that the Redis backend is tested against. One sorted list of
permuted fingerprints for each table; the fingerprints under each band key; the records of each fingerprint.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from simhash.errors import StaleObservation
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
from simhash.tables import Table


class MemoryIndex:
    """See `simhash.index.interface.Index`.

    Args:
        spec: what the index is for.
        retention: what to forget, when.
        clock: milliseconds since the epoch; only ages are taken from it.
    """

    def __init__(
        self, spec: IndexSpec, retention: Retention = Retention(), clock: Callable[[], int] = lambda: 0
    ) -> None:
        self._spec = spec
        self._retention = retention
        self._clock = clock
        self._tables: list[list[int]] = [[] for _ in spec.relation.design.tables]
        self._bands: dict[tuple[int, int], set[int]] = {}
        self._records: dict[int, list[Record]] = {}
        self._by_digest: dict[str, Record] = {}
        self._log: deque[tuple[int | None, Record]] = deque()
        self._journal: dict[Partition, dict[int, tuple[bytes, Answer]]] = {}
        self._marks: dict[Partition, int] = {}
        self._seq = 0

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""
        return self._spec

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """See `Index.check_and_insert`."""
        for partition, offset in committed.items():
            self._move_mark(partition, offset)
        for entry in entries:
            self._refuse_stale(entry)
        now = self._clock()
        self._expire(now)
        return [self._answer(entry, now) for entry in entries]

    def mark(self, partition: Partition) -> int | None:
        """See `Index.mark`."""
        return self._marks.get(partition)

    def rewind(self, partition: Partition, offset: int) -> None:
        """See `Index.rewind`."""
        self._marks[partition] = offset

    def journalled(self, position: Position) -> bool:
        """See `Index.journalled`."""
        return position.offset in self._journal.get(position.partition, {})

    def look_at_base(self) -> None:
        """See `Index.look_at_base`: this backend takes no base."""

    def documents(self) -> int:
        """See `Index.documents`."""
        return len(self._log)

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        reach = self._spec.relation.reach
        found = [
            Neighbour(candidate, distance, record)
            for candidate in self._candidates(fingerprint)
            if (distance := (candidate ^ fingerprint).bit_count()) <= reach
            for record in self._records[candidate]
            if self._live(record, self._clock())
        ]
        return sorted(found, key=lambda n: (n.distance, n.record.seq))

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        return iter(list(self._log))

    def ping(self) -> None:
        """It is here."""

    def receipt(self) -> str:
        """None: what this process forgets is gone with it."""
        return ""

    def present(self, receipts: Iterable[str]) -> None:
        """It gave none."""

    def server_change(self) -> str:
        """It has no server."""
        return ""

    def replicated(self) -> None:
        """There is but one of it."""

    def _move_mark(self, partition: Partition, offset: int) -> None:
        mark = max(offset, self._marks.get(partition, 0))
        self._marks[partition] = mark
        journal = self._journal.get(partition, {})
        for done in [o for o in journal if o < mark]:
            del journal[done]

    def _refuse_stale(self, entry: Entry) -> None:
        if entry.position is None:
            return
        partition, offset = entry.position.partition, entry.position.offset
        mark = self._marks.get(partition, 0)
        if offset < mark:
            raise StaleObservation(f"{partition.topic}[{partition.number}]@{offset} is below the committed mark {mark}")

    def _answer(self, entry: Entry, now: int) -> Answer:
        decided = self._decided(entry)
        if decided is not None:
            return decided
        answer = self._judge(entry, now)
        if entry.position is not None:
            journal = self._journal.setdefault(entry.position.partition, {})
            journal[entry.position.offset] = (entry.observation, answer)
        return answer

    def _decided(self, entry: Entry) -> Answer | None:
        if entry.position is None:
            return None
        journal = self._journal.get(entry.position.partition, {})
        observation, answer = journal.get(entry.position.offset, (None, None))
        return answer if observation == entry.observation else None

    def _judge(self, entry: Entry, now: int) -> Answer:
        matches, candidates = self._matches(entry, now)
        own = next((r for _, r in matches if r.is_of(entry)), None)
        if own is not None:
            return Answer(Unique(own.seq), candidates)
        if matches:
            distance, oldest = min(matches, key=lambda match: match[1].seq)
            return Answer(Duplicate(distance, oldest), candidates)
        return Answer(Unique(self._insert(entry, now)), candidates)

    def _matches(self, entry: Entry, now: int) -> tuple[list[tuple[int, Record]], int]:
        """All live records that `entry` matches, with their distance; and how many fingerprints were compared."""
        if entry.fingerprint is None:
            record = self._by_digest.get(entry.digest)
            return ([(0, record)], 1) if record and self._live(record, now) else ([], 0)
        relation = self._spec.relation
        met = self._candidates(entry.fingerprint)
        candidates = met | self._banded(entry.verifier)
        matches = [
            (distance, record)
            for candidate in candidates
            if (distance := (candidate ^ entry.fingerprint).bit_count()) <= relation.reach
            for record in self._records[candidate]
            if self._live(record, now)
            and (candidate in met or relation.shares_band(entry.verifier, record.verifier))
            and relation.verified(entry.verifier, record.verifier)
        ]
        return matches, len(candidates)

    def _candidates(self, fingerprint: int) -> set[int]:
        """Every stored fingerprint that shares a prefix with this one in some table."""
        found: set[int] = set()
        design = self._spec.relation.design
        for table, entries in zip(design.tables, self._tables, strict=True):
            for low, high in _probes(table, fingerprint, design.radius):
                start, end = bisect_left(entries, low), bisect_left(entries, high)
                found.update(map(table.restore, entries[start:end]))
        return found

    def _banded(self, verifier: int | None) -> set[int]:
        """Every stored fingerprint with a band key of this verifier's."""
        return set().union(*(self._bands.get(band, ()) for band in self._band_places(verifier)))

    def _band_places(self, verifier: int | None) -> list[tuple[int, int]]:
        return [(i, key) for i, key in enumerate(self._spec.relation.band_keys(verifier)) if key]

    def _live(self, record: Record, now: int) -> bool:
        age = self._retention.max_age_ms
        return age is None or record.inserted_ms >= now - age

    def _insert(self, entry: Entry, now: int) -> int:
        self._seq += 1
        record = Record.of(entry, self._seq, now)
        if entry.fingerprint is None:
            self._by_digest[entry.digest] = record
        else:
            self._insert_fingerprint(entry.fingerprint, record)
        self._log.append((entry.fingerprint, record))
        limit = self._retention.max_documents
        while limit is not None and len(self._log) > limit:
            self._forget(*self._log.popleft())
        return record.seq

    def _insert_fingerprint(self, fingerprint: int, record: Record) -> None:
        if fingerprint not in self._records:
            for table, entries in zip(self._spec.relation.design.tables, self._tables, strict=True):
                insort(entries, table.permute(fingerprint))
        self._records.setdefault(fingerprint, []).append(record)
        for band in self._band_places(record.verifier):
            self._bands.setdefault(band, set()).add(fingerprint)

    def _expire(self, now: int) -> None:
        while self._log and not self._live(self._log[0][1], now):
            self._forget(*self._log.popleft())

    def _forget(self, fingerprint: int | None, record: Record) -> None:
        if fingerprint is None:
            if self._by_digest.get(record.digest) is record:
                del self._by_digest[record.digest]
            return
        self._records[fingerprint].remove(record)
        kept = {band for other in self._records[fingerprint] for band in self._band_places(other.verifier)}
        for band in set(self._band_places(record.verifier)) - kept:
            self._bands[band].discard(fingerprint)
        if not self._records[fingerprint]:
            del self._records[fingerprint]
            for table, entries in zip(self._spec.relation.design.tables, self._tables, strict=True):
                del entries[bisect_left(entries, table.permute(fingerprint))]


def _probes(table: Table, fingerprint: int, radius: int) -> Iterator[tuple[int, int]]:
    """The ranges [low, high) of permuted fingerprints whose prefix is within `radius` bits of this one's."""
    below = table.bits - table.prefix
    own = table.permute(fingerprint) >> below
    flips = (1 << i for i in range(table.prefix)) if radius else iter(())
    for prefix in chain([own], (own ^ flip for flip in flips)):
        yield prefix << below, (prefix + 1) << below
