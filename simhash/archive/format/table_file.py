"""One sorted table in a file: written from ascending keys, read as ranges of keys.

A table may hold equal keys. Its header's extra bytes are the lengths of its Huffman code, one byte a symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simhash import native
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import BlockCode, canonical, code_lengths
from simhash.archive.format.container import TABLE, Container, ContainerWriter, Header
from simhash.archive.format.keys import Keys
from simhash.errors import BrokenBlock, OrderError, TableCorrupt

BLOCK_KEYS = 512
"""Keys of a block: at 64 bits its index entry and raw first key then cost 0.37 bits a fingerprint, under 1 %; half as
many would cost twice that, and twice as many double the time of a single lookup."""
_AT_ONCE = 2048
"""Blocks handled at a time: about a million keys."""

Numbers = NDArray[np.int64]


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
        self.opened = None if self._code.kernel is None else self._by_kernel(self._code.kernel)
        """The kernel's side of it; None where that is not in use."""

    def _by_kernel(self, kernel: native.BlockKernel) -> native.BlockFile | None:
        functions, file = native.blocks(), self.file
        if functions is None:
            return None
        return functions.BlockFile(str(file.path), kernel, *file.index(), file.header.blocks_start, len(self))

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

    def _count(self, numbers: NDArray[np.int64]) -> int:
        return self._code.block_keys * (len(numbers) - 1) + self.file.items_of(int(numbers[-1]))

    def chunks(self) -> Iterator[Keys]:
        """All keys, ascending, about a million at a time."""
        for numbers in self.file.spans(_AT_ONCE):
            yield self.decode(numbers)
