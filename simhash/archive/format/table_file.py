"""One sorted table in a file: written from ascending keys, read as ranges of keys.

A table may hold equal keys. Its header's extra bytes are the lengths of its Huffman code, one byte a symbol.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simhash import native
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import BlockCode
from simhash.archive.format.container import TABLE, Container, ContainerWriter, Header
from simhash.archive.format.huffman import canonical, code_lengths
from simhash.archive.format.keys import WORD, Keys
from simhash.errors import BrokenBlock, OrderError, TableCorrupt

BLOCK_KEYS = 512
"""Keys of a block: at 64 bits its index entry and raw first key then cost 0.37 bits a fingerprint, under 1 %; half as
many would cost twice that, and twice as many double the time of a single lookup."""
_AT_ONCE = 2048
"""Blocks handled at a time: about a million keys."""

Numbers = NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


class TableWriter:
    """Writes a table from ascending keys.

    Args:
        gaps: how often each first differing bit occurs among them (`blocks.gap_counts` of all, borders included).
    """

    def __init__(
        self, path: Path, identity: bytes, width: int, items: int, gaps: Sequence[int], block_keys: int = BLOCK_KEYS
    ) -> None:
        code = canonical(code_lengths(gaps))
        self._code = BlockCode(width, block_keys, code)
        self._out = ContainerWriter(path, Header(TABLE, width, block_keys, items, identity, bytes(code.lengths)))
        self._waiting = np.zeros((0, arrays.words(width)), np.uint64)
        self._last = self._waiting

    def add(self, keys: Keys) -> None:
        """Append keys, none smaller than one before.

        Raises:
            OrderError: one is smaller; the table is then good for nothing.
        """
        if len(self._last) and len(keys) and arrays.less(keys[:1], self._last).any():
            raise OrderError("keys are smaller than those before")
        self._last = keys[-1:] if len(keys) else self._last
        self._waiting = np.concatenate((self._waiting, keys)) if len(self._waiting) else keys
        per_block = self._code.block_keys
        whole = len(self._waiting) // per_block * per_block
        for start in range(0, whole, _AT_ONCE * per_block):
            self._write(self._waiting[start : min(start + _AT_ONCE * per_block, whole)])
        self._waiting = self._waiting[whole:]

    def close(self) -> None:
        """Write what is left, and finish the file."""
        if len(self._waiting):
            self._write(self._waiting)
        self._out.close()

    def discard(self) -> None:
        """Give up; nothing is left."""
        self._out.discard()

    def _write(self, keys: Keys) -> None:
        per_block = self._code.block_keys
        ends = np.minimum(np.arange(per_block, len(keys) + per_block, per_block), len(keys)) - 1
        self._out.add(self._code.encode(keys), keys[ends])


@dataclass(frozen=True)
class Ranges:
    """Ranges of keys, each with the query that its keys are compared with; ascending, any two equal or apart.

    Attributes:
        lows, highs: the least and the greatest key of each, shape (n, W): they share their first `prefix` bits.
        first, last: the blocks that may hold some, shape (n,).
        queries: shape (n, W).
    """

    lows: Keys
    highs: Keys
    first: Numbers
    last: Numbers
    queries: Keys
    prefix: int

    def __len__(self) -> int:
        return len(self.lows)

    def blocks(self) -> Numbers:
        """The blocks that any of them needs, each once, ascending."""
        # Ranges ascend, so a range brings the blocks behind the last one of the range before.
        begins = np.maximum(self.first, np.concatenate(([0], self.last[:-1] + 1)))
        counts = np.maximum(self.last - begins + 1, 0)
        behind = np.cumsum(counts)
        return np.repeat(begins - behind + counts, counts) + np.arange(behind[-1] if len(behind) else 0)

    def some(self, which: slice) -> Ranges:
        """A part of them."""
        lows, highs, queries = (each[which] for each in (self.lows, self.highs, self.queries))
        return Ranges(lows, highs, self.first[which], self.last[which], queries, self.prefix)


class TableFile:
    """A table, open to be read; see `Container` for what it raises."""

    def __init__(self, path: Path, identity: bytes | None = None) -> None:
        self.file = Container(path, TABLE, identity)
        header = self.file.header
        try:
            code = canonical(tuple(header.extra))
            self._code = BlockCode(header.width, header.block_items, code)
        except ValueError as error:
            raise TableCorrupt(f"{path}: its header holds no code: {error}") from error
        size = arrays.words(header.width)
        self._spare, self._below = WORD * size - header.width, WORD * (size - 1)
        kernel = native.blocks()
        self._open = None if kernel is None else kernel.BlockFile(str(path))
        # The first words of the blocks' last keys are enough to choose blocks by: among equal ones too many are read.
        self._first_words = self.file.lasts.ravel().data[::size]

    def __len__(self) -> int:
        return self.file.header.items

    @property
    def width(self) -> int:
        """Bits of a key."""
        return self.file.header.width

    def span(self, lows: Keys, highs: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each range of keys [low, high] the first and the last block that may hold some; none: first > last."""
        blocks = len(self.file.lasts)
        last = np.minimum(arrays.bound(self.file.lasts, highs, after=True), blocks - 1)
        return arrays.bound(self.file.lasts, lows, after=False), last

    def decode(self, numbers: NDArray[np.int64]) -> Keys:
        """The keys of the blocks of those numbers, ascending.

        Raises:
            TableCorrupt: a block is damaged; the message names it.
        """
        if not len(numbers):
            return np.zeros((0, arrays.words(self.width)), np.uint64)
        try:
            return self._code.decode(self.file.blocks(numbers), self._count(numbers))
        except BrokenBlock as error:
            raise self.file.corrupt(int(numbers[error.block]), error.reason) from error

    def near(self, ranges: Ranges, reach: int) -> tuple[Numbers, Keys, Numbers] | None:
        """The keys of each range within `reach` bits of its query, by the kernel; None where it is not in use.

        Each block is read and decoded once, in the order of the file, without the interpreter's lock.

        Returns:
            Numbers of ranges, keys and distances; equal keys of a block are one.

        Raises:
            TableCorrupt: a block is damaged; the message names it. Or the file cannot be read any more.
        """
        if self._open is None or self._code.kernel is None:
            return None
        numbers = ranges.blocks()
        if not len(numbers):
            return _NONE, np.zeros((0, arrays.words(self.width)), np.uint64), _NONE
        begins, sizes, checks = self.file.places(numbers)
        first = np.searchsorted(numbers, ranges.first).astype(np.uint32)
        last = first + (ranges.last - ranges.first).astype(np.uint32)
        try:
            data = self._code.kernel.near_ranges(
                self._open,
                begins.tobytes(),
                sizes.tobytes(),
                checks.tobytes(),
                self._count(numbers),
                first.tobytes(),
                last.tobytes(),
                ranges.lows.tobytes(),
                ranges.queries.tobytes(),
                ranges.prefix,
                reach,
            )
        except ValueError as error:
            block, reason = error.args
            raise self.file.corrupt(int(numbers[block]), reason) from error
        except OSError as error:
            self.file.check_length()
            raise TableCorrupt(f"{self.file.path} cannot be read: {error}") from error
        found, distances = (np.frombuffer(data[i], np.uint32).astype(np.int64) for i in (0, 2))
        return found, np.frombuffer(data[1], np.uint64).reshape(-1, arrays.words(self.width)), distances

    def within(self, low: int, high: int, query: int, reach: int) -> list[int]:
        """The keys from `low` to `high` that are within `reach` bits of `query`; all as plain numbers.

        For one range at a time: what NumPy costs a call would be most of it.

        Raises:
            TableCorrupt: a block is damaged; the message names it.
        """
        first, last = self._blocks_between(low, high)
        if first > last:
            return []
        numbers = np.arange(first, last + 1)
        range_ = arrays.from_ints((low, high, query), self.width)
        try:
            found = self._code.near(self.file.blocks(numbers), self._count(numbers), range_, reach)
        except BrokenBlock as error:
            raise self.file.corrupt(first + error.block, error.reason) from error
        return arrays.to_ints(found, self.width) if len(found) else []

    def will_need(self, low: int, high: int) -> None:
        """`within` will be asked for these: have them read from disk meanwhile."""
        first, last = self._blocks_between(low, high)
        if first <= last:
            self.file.will_need(first, last)

    def _blocks_between(self, low: int, high: int) -> tuple[int, int]:
        """The first and the last block that may hold keys of a range; none: first > last."""
        first = bisect_left(self._first_words, low << self._spare >> self._below)
        last = bisect_right(self._first_words, high << self._spare >> self._below)
        return first, min(last, len(self._first_words) - 1)

    def _count(self, numbers: NDArray[np.int64]) -> int:
        return self._code.block_keys * (len(numbers) - 1) + self.file.items_of(int(numbers[-1]))

    def chunks(self) -> Iterator[Keys]:
        """All keys, ascending, about a million at a time."""
        for numbers in self.file.spans(_AT_ONCE):
            yield self.decode(numbers)
