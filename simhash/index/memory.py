"""The index in this process's memory: nothing is kept when it ends.

Small enough to be read in one go, it is also the model that the Redis backend is tested against. A record is the bytes
that it is in Redis (`simhash.index.redis.layout`); its number is its place in the order of insertion, from 1.

Pages without a fingerprint are found by their digest. Those with one are met in *places*, a prefix of a permutation
table or the leading bits of a band key, in each of which stand `Relation.place_limit` pages. `stored` gives what keeps
them: the native kernel, for fingerprints of up to 64 bits, or `StoredInPython`, which finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from simhash import native
from simhash.errors import StaleObservation
from simhash.index.interface import (
    DAY_MS,
    FIRST_DAY,
    STORED_BYTES,
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
)
from simhash.index.redis.layout import BAND_FIELD_BITS, FINGERPRINT_AT, TIME_BYTES, Layout
from simhash.index.texts import TextIndex, spec_for
from simhash.index.versions import is_of, url_hash
from simhash.native import StoredPages
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profiles import DEFAULT, Profile

_OBSERVATION = slice(FINGERPRINT_AT - STORED_BYTES, FINGERPRINT_AT)
"""Where a record has its page's."""


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
        self._layout = Layout("memory", self._spec)
        self._stored = stored(self._layout)
        self._crowded: dict[tuple[str, bytes], int] = {}
        self._by_digest: dict[str, int] = {}
        self._journal: dict[Partition, dict[int, tuple[bytes, Answer]]] = {}
        self._marks: dict[Partition, int] = {}
        self._first, self._seq = 1, 0
        self._versions: dict[int, tuple[int, bytes]] = {}
        self._turn = Lock()  # else two threads that look for one text at the same time would both store it

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""
        return self._spec

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """See `Index.check_and_insert`."""
        with self._turn:
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

    def journalled(self, observations: Mapping[Position, bytes | None]) -> list[Position]:
        """See `Index.journalled`."""
        return [
            at
            for at, observed in observations.items()
            if (found := self._journal.get(at.partition, {}).get(at.offset)) and observed in (None, found[0])
        ]

    def look_at_base(self) -> None:
        """See `Index.look_at_base`: this backend takes no base."""

    def documents(self) -> int:
        """See `Index.documents`."""
        return self._seq - self._first + 1

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        reach = self._spec.relation.reach
        with self._turn:
            met = [self._layout.record(seq, self._stored.record(seq)) for seq in self._stored.met(fingerprint)]
        now = self._clock()
        found = [
            Neighbour(other, distance, record)
            for other, record in met
            if other is not None
            and (distance := (other ^ fingerprint).bit_count()) <= reach
            and self._lives(record.inserted_ms, now)
        ]
        return sorted(found, key=lambda n: (n.distance, n.record.seq))

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        with self._turn:
            numbers = range(self._first, self._seq + 1)
            return iter([self._layout.record(seq, self._stored.record(seq)) for seq in numbers])

    def watermark(self) -> str:
        """None: what this process forgets is gone with it."""
        return ""

    def present(self, watermarks: Iterable[str], others: Callable[[], Iterable[str]] = tuple) -> None:
        """It gave none."""

    def unchanged(self) -> None:
        """It is in this process."""

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
        if entry.version is not None:
            answer = replace(answer, previous=self._exchange(entry, entry.version, now))
        if entry.position is not None:
            journal = self._journal.setdefault(entry.position.partition, {})
            journal[entry.position.offset] = (entry.observation, answer)
        return answer

    def _exchange(self, entry: Entry, own: bytes, now: int) -> bytes | None:
        """The last version of the page's URL, whose place its own takes."""
        day, last = self._versions.get(url := url_hash(entry.url), (0, b""))
        if is_of(last, entry):
            return None  # read again: nobody knows any more what was before it
        self._versions[url] = (day_of(now), own)
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
        matches, candidates = self._matches(entry)
        records = ((seq, distance, self._stored.record(seq)) for seq, distance in matches)
        live = [match for match in records if self._lives(_inserted_ms(match[2]), now)]
        own = entry.observation[:STORED_BYTES]
        for seq, _, record in live:
            if record[_OBSERVATION] == own:
                return Answer(Unique(seq), candidates)
        for seq, distance, record in live:
            return Answer(Duplicate(distance, self._layout.record(seq, record)[1]), candidates)
        return Answer(Unique(self._insert(entry, now)), candidates)

    def _matches(self, entry: Entry) -> tuple[list[tuple[int, int]], int]:
        """Number and distance of all records that `entry` matches, oldest first; and with how many it was compared."""
        if entry.fingerprint is None:
            seq = self._by_digest.get(entry.digest)
            return ([], 0) if seq is None else ([(seq, 0)], 1)
        copy = self._crowded.get(self._layout.crowd_field(entry.fingerprint, entry.digest)) if self._crowded else None
        return self._stored.matches(entry.fingerprint, self._layout.verifier_of(entry), copy)

    def _insert(self, entry: Entry, now: int) -> int:
        record = now.to_bytes(TIME_BYTES) + self._layout.body(entry)  # first: what has no bytes must not take a number
        crowded = self._stored.add(record, entry.fingerprint is not None)
        self._seq += 1
        if entry.fingerprint is None:
            self._by_digest[entry.digest] = self._seq
        elif crowded:
            self._crowded[self._layout.crowd_field(entry.fingerprint, entry.digest)] = self._seq
        limit = self._retention.max_documents
        while limit is not None and self.documents() > limit:
            self._forget()
        return self._seq

    def _expire(self, now: int) -> None:
        while self._first <= self._seq and not self._lives(_inserted_ms(self._stored.record(self._first)), now):
            self._forget()

    def _forget(self) -> None:
        """Forget the oldest record."""
        seq = self._first
        fingerprint, record = self._layout.record(seq, self._stored.record(seq))
        self._stored.forget(seq, fingerprint is not None)
        self._first += 1
        if fingerprint is None:
            if self._by_digest.get(record.digest) == seq:
                del self._by_digest[record.digest]
        elif self._crowded.get(field := self._layout.crowd_field(fingerprint, record.digest)) == seq:
            del self._crowded[field]

    def _lives(self, inserted_ms: int, now: int) -> bool:
        age = self._retention.max_age_ms
        return age is None or inserted_ms >= now - age


def _inserted_ms(record: bytes) -> int:
    return int.from_bytes(record[:TIME_BYTES])


# Stored pages ---------------------------------------------------------------------------------------------------------

_Place = tuple[str, int, int]
"""A table ("t") or band ("b"), its number, and a prefix."""
WORD_BITS = 64


def stored(layout: Layout) -> StoredPages:
    """What keeps the pages of an index; none is stored yet."""
    relation = layout.spec.relation
    if relation.design.bits > WORD_BITS:
        return StoredInPython(layout)
    kernel = native.stored(
        tables=[
            ([(m.take, m.mask, m.put) for m in table.moves], table.bits, table.prefix, table.radius, most)
            for table, most in zip(relation.design.tables, relation.neighbour_limits, strict=True)
        ],
        fields=layout.compared_at,
        bands=relation.bands,
        band_rest=BAND_BITS - _kept(layout),
        limit=relation.place_limit,
        reach=relation.reach,
        verifier_reach=relation.verifier_bits if relation.verifier_reach is None else relation.verifier_reach,
    )
    return kernel or StoredInPython(layout)


def _kept(layout: Layout) -> int:
    """Bits of a band key that choose its place."""
    return min(layout.spec.bucket_bits + BAND_FIELD_BITS, BAND_BITS)


class StoredInPython:
    """See `simhash.native.StoredPages`: dictionaries of lists."""

    def __init__(self, layout: Layout) -> None:
        self._fields = layout.compared_at
        self._relation = layout.spec.relation
        self._kept = _kept(layout)
        self._places: dict[_Place, list[int]] = {}
        self._records: dict[int, bytes] = {}
        self._next = 1

    def matches(self, fingerprint: int, verifier: bytes, copy: int | None) -> tuple[list[tuple[int, int]], int]:
        """See `StoredPages.matches`."""
        relation, own = self._relation, int.from_bytes(verifier)
        met = {*self.met(fingerprint), *([] if copy is None else [copy])}
        matches, candidates = [], sorted(met | self._in(self._bands(own)))
        for number in candidates:
            other, sketch = self._compared(number)
            meet = number in met or relation.shares_band(own, sketch)
            distance = (fingerprint ^ other).bit_count()
            if meet and distance <= relation.reach and relation.verified(own, sketch):
                matches.append((number, distance))
        return matches, len(candidates)

    def met(self, fingerprint: int) -> list[int]:
        """See `StoredPages.met`."""
        relation = self._relation
        met = self._in(self._prefixes(fingerprint))
        for kind, number, prefix in self._prefixes(fingerprint):
            bits = range(relation.design.tables[number].probes - 1)
            around = [self._places.get((kind, number, prefix ^ (1 << bit)), []) for bit in bits]
            too_many = sum(map(len, around)) > relation.place_limit
            met.update(*(each[: relation.neighbour_limits[number]] if too_many else each for each in around))
        return sorted(met)

    def record(self, number: int) -> bytes:
        """See `StoredPages.record`."""
        return self._records[number]

    def add(self, record: bytes, stands: bool) -> bool:
        """See `StoredPages.add`."""
        number, full = self._next, False
        self._next += 1
        self._records[number] = record
        for place in self._places_of(number) if stands else ():
            there = self._places.setdefault(place, [])
            if len(there) < self._relation.place_limit:
                there.append(number)
            else:
                full = True
        return full

    def forget(self, number: int, stands: bool) -> None:
        """See `StoredPages.forget`."""
        for place in self._places_of(number) if stands else ():
            there = self._places.get(place, [])  # it took no more when the page came, and all that stood there is gone
            if number in there:
                there.remove(number)
            if not there:
                self._places.pop(place, None)
        del self._records[number]

    def _compared(self, number: int) -> tuple[int, int]:
        """Fingerprint and verifier of a record."""
        record, (fingerprint, verifier, end) = self._records[number], self._fields
        return int.from_bytes(record[fingerprint:verifier]), int.from_bytes(record[verifier:end])

    def _in(self, places: Iterable[_Place]) -> set[int]:
        """All that stand in one of these places."""
        return set().union(*(self._places.get(place, ()) for place in places))

    def _places_of(self, number: int) -> list[_Place]:
        fingerprint, verifier = self._compared(number)
        return [*self._prefixes(fingerprint), *self._bands(verifier)]

    def _prefixes(self, fingerprint: int) -> Iterator[_Place]:
        for number, table in enumerate(self._relation.design.tables):
            yield "t", number, table.permute(fingerprint) >> (table.bits - table.prefix)

    def _bands(self, verifier: int) -> Iterator[_Place]:
        for number, key in enumerate(self._relation.band_keys(verifier)):
            if key:
                yield "b", number, key >> (BAND_BITS - self._kept)
