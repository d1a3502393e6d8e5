"""The stored pages of an index in this process's memory: their records, and which of them a page meets.

A record is the bytes that it is in Redis (`simhash.index.redis.layout`); its number is its place in the order of
insertion, from 1. A *place* is a prefix of a permutation table, or the leading bits of a band key;
`Relation.place_limit` says how many pages stand in one. `stored` gives what keeps them: the native kernel, for
fingerprints of up to 64 bits, or `StoredInPython`, which finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simhash import native
from simhash.index.redis.layout import BAND_FIELD_BITS, FINGERPRINT_AT, Layout
from simhash.native import StoredPages
from simhash.signature.minhash import BAND_BITS

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
        fields=_fields(layout),
        bands=relation.bands,
        band_rest=BAND_BITS - _kept(layout),
        limit=relation.place_limit,
        reach=relation.reach,
        verifier_reach=relation.verifier_bits if relation.verifier_reach is None else relation.verifier_reach,
    )
    return kernel or StoredInPython(layout)


def _fields(layout: Layout) -> tuple[int, int, int]:
    """Where the fingerprint begins in a record, where the verifier does, and where its band keys end."""
    verifier = FINGERPRINT_AT + layout.fingerprint_bytes
    return FINGERPRINT_AT, verifier, verifier + layout.verifier_bytes


def _kept(layout: Layout) -> int:
    """Bits of a band key that choose its place."""
    return min(layout.spec.bucket_bits + BAND_FIELD_BITS, BAND_BITS)


class StoredInPython:
    """See `simhash.native.StoredPages`: dictionaries of lists."""

    def __init__(self, layout: Layout) -> None:
        self._fields = _fields(layout)
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
