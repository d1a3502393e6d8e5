"""Permuted, sorted tables of one set of signatures, and blocks of others looked up in all of them at once.

The relation is that of `simhash.index.interface.Relation`, computed on columns. A table keeps its entries sorted by a
key (the lead of a permuted fingerprint, or a band key) and where each bucket starts: the entries whose keys begin
with the same bits. A block of probes is permuted, its buckets are looked up, and the entries in them are compared: by
fingerprint first, which turns nearly all away, then by what the relation says of the rest. Sorted tables: Manku, Jain,
Das Sarma, WWW 2007, section 3; built from the smaller set and carried to the larger: its section 4.

Worked example (4-bit keys, buckets by 2 bits): the keys 0110 1011 0111 sorted are 0110 0111 1011, the starts 0 0 2 3 3;
a probe 0101 has the bucket 01, which is the entries from 0 to 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simhash.index.interface import Relation
from simhash.sketch import BAND_BITS
from simhash.tables import Table
from worker.batch.signatures import Signatures

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]

PROBES = 1 << 15
"""Probes looked up at once: their columns stay in the processor's cache."""
CANDIDATES = 1 << 20
"""Candidates compared at once (some 40 bytes each), however many have the same key."""
CROWDED = 256
"""Entries from which a bucket counts as crowded: its probes and entries are then compared as a rectangle."""
LARGEST_BUCKET_BITS = 24


class Pairs(NamedTuple):
    """Matches: numbers of probe and entry, and the distance of their fingerprints in bits; shapes (n,)."""

    probes: Numbers
    entries: Numbers
    distances: NDArray[np.uint8]


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8))


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
    """All tables of a relation over the same entries; `first` is the number of the first of them."""

    relation: Relation
    entries: Signatures
    first: int
    tables: tuple[_Sorted, ...]

    def matches(self, probes: Signatures) -> Iterator[Pairs]:
        """All pairs of a probe and an entry that match, each once, block after block of probes.

        Entries are numbered from `first`, probes from 0.
        """
        for start in range(0, len(probes), PROBES):
            block = probes.take(slice(start, start + PROBES))
            found = [pairs for table in self.tables for pairs in self._in(table, block)]
            if found:
                pairs = _distinct(found, len(self.entries))
                yield Pairs(pairs.probes + start, pairs.entries + self.first, pairs.distances)

    def _in(self, table: _Sorted, probes: Signatures) -> Iterator[Pairs]:
        """The pairs that meet in one table."""
        own = table.buckets(probes)
        flips = [0, *(1 << bit for bit in range(table.bucket_bits))] if self._radius(table) else [0]
        for flip in flips:
            for rows, places in _candidates(table, own ^ flip, probes.gates, self.relation.reach):
                pairs = self._verified(table, probes, rows, table.order[places].astype(np.int64))
                if len(pairs.probes):
                    yield pairs

    def _radius(self, table: _Sorted) -> int:
        return self.relation.design.radius if table.key.table else 0

    def _verified(self, table: _Sorted, probes: Signatures, rows: Numbers, entries: Numbers) -> Pairs:
        """Of candidates within reach, those that meet in this table and whose verifiers agree."""
        different = probes.gates[rows] ^ self.entries.gates[entries]
        if table.key.table is None:
            meet = probes.bands[table.key.band][rows] == self.entries.bands[table.key.band][entries]
        else:
            meet = np.bitwise_count(different & np.uint64(table.key.table.lead)) <= self._radius(table)
        if self.relation.verifier_reach is not None:
            apart = np.bitwise_count(probes.sketches[rows] ^ self.entries.sketches[entries]).sum(axis=1)
            meet &= apart <= self.relation.verifier_reach
        return Pairs(rows[meet], entries[meet], np.bitwise_count(different[meet]))


def build(relation: Relation, entries: Signatures, first: int = 0) -> Tables:
    """The tables of `entries`, which are numbered from `first`."""
    keys = [_Key(table) for table in relation.design.tables] + [_Key(None, band) for band in range(relation.bands)]
    return Tables(relation, entries, first, tuple(_sorted(key, entries) for key in keys))


def _candidates(table: _Sorted, buckets: Numbers, gates: Words, reach: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Rows of probes, and places in the table, of the entries in their buckets that are within reach."""
    starts = table.starts[buckets].astype(np.int64)
    counts = table.starts[buckets + 1] - starts
    crowded = counts >= CROWDED
    if crowded.any():
        yield from _rectangles(table, np.flatnonzero(crowded), buckets, gates, reach)
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
        near = np.bitwise_count(gates[row] ^ table.gates[places]) <= reach
        if near.any():
            yield row[near], places[near]


def _pieces(ends: Numbers) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `CANDIDATES` candidates each; `ends`: how many there are up to each row."""
    low = 0
    while low < len(ends):
        before = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + CANDIDATES, side="right")))
        yield low, high
        low = high


def _rectangles(
    table: _Sorted, rows: Numbers, buckets: Numbers, gates: Words, reach: int
) -> Iterator[tuple[Numbers, Numbers]]:
    """The same for rows whose buckets are crowded: all rows of a bucket against all its entries, tile by tile."""
    for bucket in np.unique(buckets[rows]):
        inside = rows[buckets[rows] == bucket]
        low, high = int(table.starts[bucket]), int(table.starts[bucket + 1])
        for start in range(low, high, CANDIDATES):
            entries = table.gates[start : min(high, start + CANDIDATES)]
            step = max(1, CANDIDATES // len(entries))
            for first in range(0, len(inside), step):
                some = inside[first : first + step]
                near = np.bitwise_count(gates[some, None] ^ entries) <= reach
                row, place = np.nonzero(near)
                if len(row):
                    yield some[row], place + start


def _distinct(found: list[Pairs], entries: int) -> Pairs:
    """Each pair once, though it may meet in several tables; in the order of probes, then entries."""
    probes, numbers, distances = (np.concatenate(columns) for columns in zip(*found, strict=True))
    _, first = np.unique(probes * entries + numbers, return_index=True)
    return Pairs(probes[first], numbers[first], distances[first])
