"""Which keys of a table lie near which of many queries: sorted ranges of keys, one pass over the blocks they touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.archive.format import keys as arrays
from simhash.archive.format.keys import WORD, Keys
from simhash.archive.format.table_file import Ranges, TableFile

BLOCKS_AT_ONCE = 256
"""Larger portions leave the cache, and cost a third more a key."""
PAIRS_AT_ONCE = 1 << 21
"""Pairs of a query and a key compared at a time: a prefix that everybody shares must not take all memory."""

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Which query met which key: `query` is its number, shape (m,); `keys` (m, W); `distances` in bits, (m,)."""

    query: Places
    keys: Keys
    distances: Places

    def __len__(self) -> int:
        return len(self.query)


def joined(found: list[Pairs], size: int) -> Pairs:
    """All of them; keys of `size` words."""
    return Pairs(
        np.concatenate([np.zeros(0, np.int64), *(pairs.query for pairs in found)]),
        np.concatenate([np.zeros((0, size), np.uint64), *(pairs.keys for pairs in found)]),
        np.concatenate([np.zeros(0, np.int64), *(pairs.distances for pairs in found)]),
    )


def probe(table: TableFile, queries: Keys, prefix: int, radius: int, reach: int) -> Pairs:
    """Keys of a table that share their first `prefix` bits with a query (but for `radius`), within `reach` bits of it.

    Args:
        queries: as the table has its keys; shape (q, W).

    Raises:
        TableCorrupt: a block is damaged; the message names it.
    """
    if not len(table):
        return joined([], queries.shape[1])
    ranges, query = _sorted_ranges(table, queries, prefix, radius)
    near = table.near(ranges, reach)
    if near is not None:
        return Pairs(query[near[0]], *near[1:])
    found = []
    for blocks, some in _portions(ranges):
        keys = table.decode(blocks)
        part = ranges.some(some)
        starts = arrays.bound(keys, part.lows, after=False)
        stops = arrays.bound(keys, part.highs, after=True)
        found += list(_within(keys, part.queries, query[some], starts, stops, reach))
    return joined(found, queries.shape[1])


def probe_one(table: TableFile, query: int, prefix: int, radius: int, reach: int) -> Iterator[int]:
    """The same for one query, in plain numbers: what NumPy costs a call would be most of the time."""
    for low, high in _ranges(table, query, prefix, radius):
        yield from table.within(low, high, query, reach)


def announce(table: TableFile, query: int, prefix: int, radius: int) -> None:
    """`probe_one` will be asked this: where several tables are announced first, the disk reads for all at once."""
    for low, high in _ranges(table, query, prefix, radius):
        table.will_need(low, high)


def _ranges(table: TableFile, query: int, prefix: int, radius: int) -> Iterator[tuple[int, int]]:
    """The least and the greatest key of each prefix that is near enough."""
    below = table.width - prefix
    for flip in (0, *(1 << bit for bit in range(prefix if radius else 0))):
        low = (query >> below ^ flip) << below
        yield low, low + (1 << below) - 1


def _sorted_ranges(table: TableFile, queries: Keys, prefix: int, radius: int) -> tuple[Ranges, Places]:
    """The ranges that may hold keys near the queries, ascending, and whose each is: of its own prefix, and of each
    with one bit flipped."""
    size = queries.shape[1]
    lows = np.concatenate([(queries & arrays.front_mask(prefix, size)) ^ flip for flip in _flips(prefix, radius, size)])
    order = np.argsort(lows[:, 0]) if size == 1 else np.lexsort(lows.T[::-1])
    lows, query = lows[order], order % len(queries)
    highs = lows | ~arrays.front_mask(prefix, size)
    first, last = table.span(lows, highs)
    some = np.flatnonzero(first <= last)
    query = query[some]
    return Ranges(lows[some], highs[some], first[some], last[some], queries[query], prefix), query


def _flips(prefix: int, radius: int, size: int) -> Iterator[Keys]:
    """What to change a query by: nothing, and each bit of its prefix."""
    yield np.zeros(size, np.uint64)
    for bit in range(prefix if radius else 0):
        flip = np.zeros(size, np.uint64)
        flip[bit // WORD] = np.uint64(1 << (WORD - 1 - bit % WORD))
        yield flip


def _portions(ranges: Ranges) -> Iterator[tuple[Places, slice]]:
    """The blocks that any range touches, so many at a time, with the ranges that touch them."""
    first, last = ranges.first, ranges.last
    touched = np.cumsum(last - first + 1)
    at = 0
    while at < len(ranges):
        most = BLOCKS_AT_ONCE + (int(touched[at - 1]) if at else 0)
        end = max(at + 1, int(np.searchsorted(touched, most, "right")))
        if end > at + 1:
            yield ranges.some(slice(at, end)).blocks(), slice(at, end)
        else:
            for start in range(int(first[at]), int(last[at]) + 1, BLOCKS_AT_ONCE):
                yield np.arange(start, min(start + BLOCKS_AT_ONCE, int(last[at]) + 1)), slice(at, end)
        at = end


def _within(keys: Keys, queries: Keys, query: Places, starts: Places, stops: Places, reach: int) -> Iterator[Pairs]:
    """The pairs of each range's keys and its query that are near enough; `query` are the queries' numbers."""
    counts = stops - starts
    edges = np.cumsum(counts)
    total = int(edges[-1]) if len(edges) else 0
    for begin in range(0, total, PAIRS_AT_ONCE):
        pair = np.arange(begin, min(begin + PAIRS_AT_ONCE, total))
        owner = np.searchsorted(edges, pair, "right")
        place = stops[owner] - (edges[owner] - pair)
        distances = arrays.distances(keys[place], queries[owner])
        near = distances <= reach
        yield Pairs(query[owner[near]], keys[place[near]], distances[near])
