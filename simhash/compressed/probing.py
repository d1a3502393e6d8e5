"""Which keys of a table lie near which of many queries: sorted ranges of keys, one pass over the blocks they touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.compressed import keys as arrays
from simhash.compressed.keys import WORD, Keys
from simhash.compressed.tables import TableFile

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
    lows, query = _lows(queries, prefix, radius)
    order = np.lexsort(lows.T[::-1]) if len(lows) > 1 else np.arange(len(lows))
    lows, query = lows[order], query[order]
    highs = lows | ~arrays.front_mask(prefix, queries.shape[1])
    first, last = table.span(lows, highs)
    found = []
    for blocks, some in _portions(first, last):
        keys = table.decode(blocks)
        starts = arrays.bound(keys, lows[some], after=False)
        stops = arrays.bound(keys, highs[some], after=True)
        found += list(_within(keys, queries, query[some], starts, stops, reach))
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


def _lows(queries: Keys, prefix: int, radius: int) -> tuple[Keys, Places]:
    """The smallest key of each range, and whose it is: the query's own prefix, and each with one bit flipped."""
    mask = arrays.front_mask(prefix, queries.shape[1])
    flips = [np.zeros(queries.shape[1], np.uint64)]
    for bit in range(prefix if radius else 0):
        flip = np.zeros(queries.shape[1], np.uint64)
        flip[bit // WORD] = np.uint64(1 << (WORD - 1 - bit % WORD))
        flips.append(flip)
    lows = np.concatenate([(queries & mask) ^ flip for flip in flips])
    return lows, np.tile(np.arange(len(queries)), len(flips))


def _portions(first: Places, last: Places) -> Iterator[tuple[Places, Places]]:
    """The blocks that any range touches, so many at a time, with the ranges that touch them.

    Ranges are ascending and equal or apart, so `first` and `last` ascend too.
    """
    some = np.flatnonzero(first <= last)
    first, last = first[some], last[some]
    touched = np.cumsum(last - first + 1)
    at = 0
    while at < len(some):
        most = BLOCKS_AT_ONCE + (int(touched[at - 1]) if at else 0)
        end = max(at + 1, int(np.searchsorted(touched, most, "right")))
        for start in range(int(first[at]), int(last[end - 1]) + 1 if end == at + 1 else 0, BLOCKS_AT_ONCE):
            stop = min(start + BLOCKS_AT_ONCE, int(last[at]) + 1)
            yield np.arange(start, stop), some[at:end]
        if end > at + 1:
            yield _union(first[at:end], last[at:end]), some[at:end]
        at = end


def _union(first: Places, last: Places) -> Places:
    """All numbers from any first to its last, each once, ascending."""
    counts = last - first + 1
    return np.unique(np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum()))


def _within(keys: Keys, queries: Keys, query: Places, starts: Places, stops: Places, reach: int) -> Iterator[Pairs]:
    """The pairs of each range's keys and its query that are near enough."""
    counts = stops - starts
    edges = np.cumsum(counts)
    total = int(edges[-1]) if len(edges) else 0
    for begin in range(0, total, PAIRS_AT_ONCE):
        pair = np.arange(begin, min(begin + PAIRS_AT_ONCE, total))
        owner = np.searchsorted(edges, pair, "right")
        place = stops[owner] - (edges[owner] - pair)
        asked = query[owner]
        distances = arrays.distances(keys[place], queries[asked])
        near = distances <= reach
        yield Pairs(asked[near], keys[place[near]], distances[near])
