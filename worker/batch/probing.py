"""Permuted, sorted tables of one set of signatures, and blocks of others looked up in all of them at once.

The relation is that of `simhash.index.interface.Relation`, computed on columns. A table keeps its entries sorted by a
key (the lead of a permuted fingerprint, or a band key) and where each bucket starts: the entries whose keys begin
with the same bits. A block of probes is permuted, its buckets are looked up, and the entries in them are compared: by
fingerprint first, which turns nearly all away, then by what the relation says of those that still matter (`keeping`).
Sorted tables: Manku, Jain, Das Sarma, WWW 2007, section 3; built from the smaller set and carried to the larger: its
section 4.

Worked example (4-bit keys, buckets by 2 bits): the keys 0110 1011 0111 sorted are 0110 0111 1011, the starts 0 0 2 3 3;
a probe 0101 has the bucket 01, which is the entries from 0 to 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.index.interface import Relation
from simhash.relation.tables import Table
from simhash.signature.minhash import BAND_BITS
from worker.batch.keeping import Keeper
from worker.batch.signatures import Signatures

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]

PROBES = 1 << 15
"""Probes looked up at once: their columns stay in the processor's cache."""
CANDIDATES = 1 << 20
"""Candidates compared at once (some 40 bytes each), however many have the same key."""
NARROW, TILE = 1 << 5, 1 << 10
"""Probes and entries of a bucket's first tile, and entries of a tile where there are many probes."""
CROWDED = 256
"""Entries from which a bucket counts as crowded: its probes and entries are then compared as a rectangle."""
LARGEST_BUCKET_BITS = 24


@dataclass(frozen=True)
class _Key:
    """The bits that a table is sorted by: the lead of a permuted fingerprint, or a band key where `table` is None."""

    table: Table | None
    band: int = 0

    @property
    def width(self) -> int:
        return BAND_BITS if self.table is None else self.table.prefix

    def of(self, signatures: Signatures) -> Words:
        """The keys, shape (n,)."""
        if self.table is None:
            keys: Words = signatures.bands[self.band]
            return keys
        keys = np.zeros(len(signatures), dtype=np.uint64)
        put = self.table.prefix
        for block in self.table.blocks:
            if put <= 0:
                break
            # A lead may end within a block; then only its left part counts.
            width = min(block.width, put)
            put -= width
            shift = np.uint64(self.table.bits - block.start - width)
            keys |= ((signatures.gates >> shift) & np.uint64((1 << width) - 1)) << np.uint64(put)
        return keys


@dataclass(frozen=True)
class _Sorted:
    """One table.

    Attributes:
        bucket_bits: how many leading bits of a key choose its bucket.
        order: the entries' numbers, sorted by bucket, shape (m,).
        gates: their fingerprints in that order, shape (m,).
        starts: where each bucket begins, and the end, shape (2 ** bucket_bits + 1,).
    """

    key: _Key
    bucket_bits: int
    order: NDArray[np.uint32]
    gates: Words
    starts: NDArray[np.uint32]

    def buckets(self, probes: Signatures) -> Numbers:
        """The probes' own buckets, shape (n,)."""
        return (self.key.of(probes) >> np.uint64(self.key.width - self.bucket_bits)).astype(np.int64)


def _sorted(key: _Key, entries: Signatures) -> _Sorted:
    keys = key.of(entries)
    # A band key of 0 is no key; a fingerprint's lead may well be 0.
    held = np.flatnonzero(keys) if key.table is None else np.arange(len(keys))
    bits = min(key.width, LARGEST_BUCKET_BITS, max(1, len(entries).bit_length()))
    buckets = (keys[held] >> np.uint64(key.width - bits)).astype(np.int64)
    order = held[np.argsort(buckets, kind="stable")].astype(np.uint32)
    starts = np.zeros((1 << bits) + 1, dtype=np.uint32)
    np.cumsum(np.bincount(buckets, minlength=1 << bits), out=starts[1:])
    return _Sorted(key, bits, order, entries.gates[order], starts)


@dataclass(frozen=True)
class Tables:
    """All tables of a relation over the same entries; `numbers` are the entries' own, ascending, shape (entries,)."""

    relation: Relation
    entries: Signatures
    numbers: Numbers
    tables: tuple[_Sorted, ...]

    def find(self, probes: Signatures, keeper: Keeper) -> None:
        """Give the keeper what matches of the pairs that it wants: numbers of probes and entries, from 0."""
        for start in range(0, len(probes), PROBES):
            block = probes.take(slice(start, start + PROBES))
            for table in self.tables:
                self._find_in(table, block, start, keeper)

    def _find_in(self, table: _Sorted, probes: Signatures, start: int, keeper: Keeper) -> None:
        """The pairs that meet in one table; the probes are numbered from `start`."""
        own = table.buckets(probes)
        flips = [0, *(1 << bit for bit in range(table.bucket_bits))] if self._radius(table) else [0]
        for flip in flips:
            for rows, entries in self._candidates(table, own ^ flip, probes, start, keeper):
                some = keeper.wanted(rows + start, entries)
                some[some] = self._verified(table, probes, rows[some], entries[some])
                if some.any():
                    keeper.add(rows[some] + start, entries[some])

    def _radius(self, table: _Sorted) -> int:
        return table.key.table.radius if table.key.table else 0

    def _verified(self, table: _Sorted, probes: Signatures, rows: Numbers, entries: Numbers) -> NDArray[np.bool_]:
        """Which of these pairs, within reach, meet in this table and have verifiers that agree."""
        if table.key.table is None:
            meet = probes.bands[table.key.band][rows] == self.entries.bands[table.key.band][entries]
        else:
            different = probes.gates[rows] ^ self.entries.gates[entries]
            meet = np.bitwise_count(different & np.uint64(table.key.table.lead)) <= self._radius(table)
        if self.relation.verifier_reach is not None:
            apart = np.bitwise_count(probes.sketches[rows] ^ self.entries.sketches[entries]).sum(axis=1)
            meet &= apart <= self.relation.verifier_reach
        found: NDArray[np.bool_] = meet
        return found

    def _candidates(
        self, table: _Sorted, buckets: Numbers, probes: Signatures, start: int, keeper: Keeper
    ) -> Iterator[tuple[Numbers, Numbers]]:
        """Rows of probes, numbered from `start` to the keeper, and entries in their buckets that are within reach."""
        starts = table.starts[buckets].astype(np.int64)
        counts = table.starts[buckets + 1] - starts
        crowded = np.flatnonzero(counts >= CROWDED)
        for bucket in np.unique(buckets[crowded]):
            rows = crowded[buckets[crowded] == bucket]
            places = np.arange(table.starts[bucket], table.starts[bucket + 1], dtype=np.int64)
            for some, others in self._meeting(table, probes, rows, places):
                yield from _rectangle(table, some, others, probes.gates, self.relation.reach, start, keeper)
        counts[crowded] = 0
        rows = np.flatnonzero(counts)
        starts, counts = starts[rows], counts[rows]
        ends = np.cumsum(counts)
        for low, high in _pieces(ends):
            piece = counts[low:high]
            offset = ends[low] - counts[low]
            within = np.arange(ends[high - 1] - offset) - np.repeat(ends[low:high] - piece - offset, piece)
            places = np.repeat(starts[low:high], piece) + within
            row = np.repeat(rows[low:high], piece)
            near = np.bitwise_count(probes.gates[row] ^ table.gates[places]) <= self.relation.reach
            if near.any():
                yield row[near], table.order[places[near]].astype(np.int64)

    def _meeting(
        self, table: _Sorted, probes: Signatures, rows: Numbers, places: Numbers
    ) -> Iterator[tuple[Numbers, Numbers]]:
        """Of a bucket's probes and places those that share a whole key; all, where keys need not be equal."""
        if self._radius(table):
            yield rows, places
            return
        if table.key.table is None:
            bands = table.key.band
            asked, held = probes.bands[bands][rows], self.entries.bands[bands][table.order[places]]
        else:
            lead = np.uint64(table.key.table.lead)
            asked, held = probes.gates[rows] & lead, table.gates[places] & lead
        rows, asked = _ordered(rows, asked)
        places, held = _ordered(places, held)
        keys, firsts = np.unique(asked, return_index=True)
        lows, highs = (np.searchsorted(held, keys, side) for side in ("left", "right"))
        edges = [*firsts.tolist(), len(rows)]
        for number in np.flatnonzero(lows < highs).tolist():
            yield rows[edges[number] : edges[number + 1]], places[lows[number] : highs[number]]


def _ordered(numbers: Numbers, keys: Words) -> tuple[Numbers, Words]:
    """Both by key; under one key numbers keep their order."""
    order = np.argsort(keys, kind="stable")
    return numbers[order], keys[order]


def build(relation: Relation, entries: Signatures, numbers: Numbers) -> Tables:
    """The tables of `entries`, whose own numbers are `numbers`."""
    keys = [_Key(table) for table in relation.design.tables] + [_Key(None, band) for band in range(relation.bands)]
    return Tables(relation, entries, numbers, tuple(_sorted(key, entries) for key in keys))


def _pieces(ends: Numbers) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `CANDIDATES` candidates each; `ends`: how many there are up to each row."""
    low = 0
    while low < len(ends):
        before = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + CANDIDATES, side="right")))
        yield low, high
        low = high


def _rectangle(
    table: _Sorted, rows: Numbers, places: Numbers, gates: Words, reach: int, start: int, keeper: Keeper
) -> Iterator[tuple[Numbers, Numbers]]:
    """All these rows of probes against all these places of a table, tile by tile.

    The keeper is asked what of a tile is to be compared. Tiles are small at first: of a crowd in which each matches
    each, the first few probes and entries are enough.
    """
    first, side, widest = 0, NARROW, max(TILE, CANDIDATES // len(rows))
    while first < len(places):
        held = places[first : first + side]
        entries = table.order[held].astype(np.int64)
        at, step, longest = 0, NARROW, max(1, CANDIDATES // len(held))
        while at < len(rows):
            some = rows[at : at + step]
            for probes, others in keeper.parts(some + start, entries):
                near = np.bitwise_count(gates[some[probes], None] ^ table.gates[held[others]]) <= reach
                row, place = np.nonzero(near)
                if len(row):
                    yield some[probes][row], entries[others][place]
            at, step = at + step, min(2 * step, longest)
        first, side = first + side, min(2 * side, widest)
