"""The index in this process's memory: sorted lists and dictionaries, nothing kept.

Small enough to be read in one go, it is also the model that the Redis backend is tested against. The stored pages of
each place (a prefix of a table, the leading bits of a band key), oldest first; those of each exact text; those of each
digest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from simhash.errors import StaleObservation
from simhash.index.interface import (
    DAY_MS,
    FIRST_DAY,
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
    day_of,
    shortened,
)
from simhash.index.texts import TextIndex, spec_for
from simhash.index.versions import is_of, url_hash
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profiles import DEFAULT, Profile

BAND_SCORE_BITS = 7
"""Of a band key behind the bucket's bits, those that choose its place (see `simhash.index.redis.layout`)."""
Place = tuple[str, int, int]
"""A table ("t") or band ("b"), its number, and a prefix."""
Stored = tuple[int, Record]
"""A stored page with a fingerprint, and its record."""


class MemoryIndex(TextIndex):
    """See `simhash.index.interface.Index`, and `TextIndex` for asking it with texts.

    Args:
        spec: what the index is for; None: texts by `profile`.
        retention: what to forget, when.
        clock: milliseconds since the epoch; only ages are taken from it.
        profile: the recipe of texts that are added.
    """

    def __init__(
        self,
        spec: IndexSpec | None = None,
        retention: Retention = Retention(),
        clock: Callable[[], int] = lambda: 0,
        profile: Profile = DEFAULT,
    ) -> None:
        self.profile = profile
        self._spec = spec or spec_for(profile)
        self._retention = retention
        self._clock = clock
        self._places: dict[Place, list[Stored]] = {}
        self._copies: dict[tuple[int, str], Stored] = {}
        self._by_digest: dict[str, Record] = {}
        self._log: deque[tuple[int | None, Record]] = deque()
        self._journal: dict[Partition, dict[int, tuple[bytes, Answer]]] = {}
        self._marks: dict[Partition, int] = {}
        self._seq = 0
        self._versions: dict[int, tuple[int, bytes]] = {}

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
            Neighbour(other, distance, record)
            for other, record in self._met(fingerprint)
            if (distance := (other ^ fingerprint).bit_count()) <= reach and self._live(record, self._clock())
        ]
        return sorted(found, key=lambda n: (n.distance, n.record.seq))

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        return iter(list(self._log))

    def ping(self) -> None:
        """It is here."""

    def watermark(self) -> str:
        """None: what this process forgets is gone with it."""
        return ""

    def present(self, watermarks: Iterable[str]) -> None:
        """It gave none."""

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
        answer = replace(self._judge(entry, now), previous=self._exchange(entry, now))
        if entry.position is not None:
            journal = self._journal.setdefault(entry.position.partition, {})
            journal[entry.position.offset] = (entry.observation, answer)
        return answer

    def _exchange(self, entry: Entry, now: int) -> bytes | None:
        """The last version of the page's URL, whose place its own takes."""
        if entry.version is None:
            return None
        day, last = self._versions.get(url := url_hash(entry.url), (0, b""))
        if is_of(last, entry):
            return None  # read again: nobody knows any more what was before it
        self._versions[url] = (day_of(now), entry.version)
        age = self._retention.max_age_ms
        is_old = age is not None and (day + 1 + FIRST_DAY) * DAY_MS <= now - age
        return None if is_old or not last else last

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
        met = self._met(entry.fingerprint)
        copy = self._copies.get((entry.fingerprint, shortened(entry.digest)))
        met |= {copy} if copy else set()
        candidates = met | self._standing(self._bands(entry.verifier))
        matches = [
            (distance, record)
            for fingerprint, record in candidates
            if (distance := (fingerprint ^ entry.fingerprint).bit_count()) <= relation.reach
            and self._live(record, now)
            and ((fingerprint, record) in met or relation.shares_band(entry.verifier, record.verifier))
            and relation.verified(entry.verifier, record.verifier)
        ]
        return matches, len(candidates)

    def _standing(self, places: Iterable[Place]) -> set[Stored]:
        """Every stored page that stands in one of these places."""
        return set().union(*(self._places.get(place, ()) for place in places))

    def _own_places(self, fingerprint: int) -> Iterator[Place]:
        """Where a page with this fingerprint stands in each table."""
        for number, table in enumerate(self._spec.relation.design.tables):
            yield "t", number, table.permute(fingerprint) >> (table.bits - table.prefix)

    def _met(self, fingerprint: int) -> set[Stored]:
        """The stored pages whose prefixes are within the tables' radii of this fingerprint's, as far as they count."""
        relation = self._spec.relation
        met = self._standing(self._own_places(fingerprint))
        for kind, number, prefix in self._own_places(fingerprint):
            bits = range(relation.design.tables[number].probes - 1)
            around = [self._places.get((kind, number, prefix ^ (1 << bit)), []) for bit in bits]
            too_many = sum(map(len, around)) > relation.place_limit
            met.update(*(each[: relation.neighbour_limits[number]] if too_many else each for each in around))
        return met

    def _bands(self, verifier: int | None) -> Iterator[Place]:
        """Where a page with this verifier stands by its band keys: by as many bits of each as Redis keeps apart."""
        kept = min(self._spec.bucket_bits + BAND_SCORE_BITS, BAND_BITS)
        for number, key in enumerate(self._spec.relation.band_keys(verifier)):
            if key:
                yield "b", number, key >> (BAND_BITS - kept)

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
        for place in (*self._own_places(fingerprint), *self._bands(record.verifier)):
            standing = self._places.setdefault(place, [])
            if len(standing) < self._spec.relation.place_limit:
                standing.append((fingerprint, record))
        self._copies[fingerprint, record.digest] = (fingerprint, record)

    def _expire(self, now: int) -> None:
        while self._log and not self._live(self._log[0][1], now):
            self._forget(*self._log.popleft())

    def _forget(self, fingerprint: int | None, record: Record) -> None:
        if fingerprint is None:
            if self._by_digest.get(record.digest) is record:
                del self._by_digest[record.digest]
            return
        for place in (*self._own_places(fingerprint), *self._bands(record.verifier)):
            if (fingerprint, record) in self._places[place]:
                self._places[place].remove((fingerprint, record))
        if self._copies.get((fingerprint, record.digest)) == (fingerprint, record):
            del self._copies[fingerprint, record.digest]
