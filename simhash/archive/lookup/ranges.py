"""Which keys of a table lie near which of many queries: sorted ranges of keys, one pass over the blocks they touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simhash import native
from simhash.archive.format import keys as arrays
from simhash.archive.format.keys import WORD, Keys
from simhash.archive.format.table_file import TableFile

BLOCKS_AT_ONCE = 256
"""Larger portions leave the cache, and cost a third more a key."""
PAIRS_AT_ONCE = 1 << 21
"""Pairs of a query and a key compared at a time: a prefix that everybody shares must not take all memory."""

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Ranges:
    """Ranges of keys, each with the query that its keys are compared with; ascending, any two equal or apart.

    Attributes:
        lows, highs: the least and the greatest key of each, shape (n, W).
        first, last: the blocks that may hold some, shape (n,).
        queries: shape (n, W).
    """

    lows: Keys
    highs: Keys
    first: Places
    last: Places
    queries: Keys

    def __len__(self) -> int:
        return len(self.lows)

    def blocks(self) -> Places:
        """The blocks that any of them needs, each once, ascending."""
        # Ranges ascend, so a range brings the blocks behind the last one of the range before.
        begins = np.maximum(self.first, np.concatenate(([0], self.last[:-1] + 1)))
        counts = np.maximum(self.last - begins + 1, 0)
        behind = np.cumsum(counts)
        return np.repeat(begins - behind + counts, counts) + np.arange(behind[-1] if len(behind) else 0)

    def some(self, which: slice) -> Ranges:
        """A part of them."""
        lows, highs, queries = (each[which] for each in (self.lows, self.highs, self.queries))
        return Ranges(lows, highs, self.first[which], self.last[which], queries)


@dataclass(frozen=True)
class KeyPairs:
    """Which query met which key: `query` is its number, shape (m,); `keys` (m, W); `distances` in bits, (m,)."""

    query: Places
    keys: Keys
    distances: Places

    def __len__(self) -> int:
        return len(self.query)


@cache
def nothing(size: int) -> KeyPairs:
    """None at all; keys of `size` words."""
    return KeyPairs(np.zeros(0, np.int64), np.zeros((0, size), np.uint64), np.zeros(0, np.int64))


def joined(found: list[KeyPairs], size: int) -> KeyPairs:
    """All of them; keys of `size` words."""
    if len(found) < 2:
        return found[0] if found else nothing(size)
    return KeyPairs(
        np.concatenate([pairs.query for pairs in found]),
        np.concatenate([pairs.keys for pairs in found]),
        np.concatenate([pairs.distances for pairs in found]),
    )


@dataclass(frozen=True)
class Question:
    """What a table is asked: which of its keys share their first `prefix` bits with a query, but for at most `radius`
    of these. `queries` are as the table has its keys; shape (q, W)."""

    table: TableFile
    queries: Keys
    prefix: int
    radius: int


def probe(asked: Sequence[Question], reach: int, threads: int) -> list[KeyPairs]:
    """For each question the keys within `reach` bits of its queries.

    By the kernel, in one call and without the interpreter's lock, several tables at the same time where there is much
    to read: each block is read and decoded once, in the order of its file. Without the kernel one after the other.

    Raises:
        TableCorrupt: a block is damaged, or cannot be read; the message names it.
    """
    for question in asked:
        question.table.file.check_length()
    kernel = native.blocks()
    if kernel is None or any(question.table.opened is None for question in asked):
        return [_probed(question, reach) for question in asked]
    told = [(q.table.opened, q.queries.tobytes(), q.prefix, q.radius) for q in asked if q.table.opened is not None]
    try:
        answers = kernel.near_in(told, reach, threads)
    except ValueError as error:
        number, block, reason = error.args
        file = asked[number].table.file
        file.check_length()
        raise file.corrupt(block, reason) from error
    return [_pairs(question, *answer) for question, answer in zip(asked, answers, strict=True)]


def _pairs(question: Question, queries: bytes, keys: bytes, distances: bytes) -> KeyPairs:
    if not queries:
        return nothing(question.queries.shape[1])
    found, apart = (np.frombuffer(data, np.uint32).astype(np.int64) for data in (queries, distances))
    return KeyPairs(found, np.frombuffer(keys, np.uint64).reshape(-1, question.queries.shape[1]), apart)


def _probed(question: Question, reach: int) -> KeyPairs:
    """The answer in NumPy."""
    table, size = question.table, question.queries.shape[1]
    if not len(table):
        return nothing(size)
    ranges, query = _sorted_ranges(table, question.queries, question.prefix, question.radius)
    found = []
    for blocks, some in _portions(ranges):
        keys = table.decode(blocks)
        part = ranges.some(some)
        starts = arrays.bound(keys, part.lows, after=False)
        stops = arrays.bound(keys, part.highs, after=True)
        found += list(_within(keys, part.queries, query[some], starts, stops, reach))
    return joined(found, size)


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
    return Ranges(lows[some], highs[some], first[some], last[some], queries[query]), query


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


def _within(keys: Keys, queries: Keys, query: Places, starts: Places, stops: Places, reach: int) -> Iterator[KeyPairs]:
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
        yield KeyPairs(query[owner[near]], keys[place[near]], distances[near])
