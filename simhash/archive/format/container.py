"""The file: a header, an index with the last key of each block, and the blocks; written in order, read anywhere.

    header  0  magic "SDTABLE\\n"         what this is
            8  u32 version, u32 kind      1; 1: sorted table, 2: records
           16  u32 width, u32 per block   bits of a key; items of each block, but perhaps the last
           24  u64 items                  in all blocks
           32  u64 blocks' start          where in the file the first block begins
           40  u64 size of the file
           48  16 bytes identity          digest of what the file is for
           64  u32 length, extra          what the blocks' code needs; then zeros up to 8 bytes
               u64 check                  XXH3 of all before
    index      u64 last key               W words a block, the most significant first
               u64 end                    a block; bytes behind the blocks' start
               u32 check                  a block, lower half of its XXH3; then zeros up to 8 bytes
               u64 check                  XXH3 of the index
    blocks

Numbers are little-endian. Every byte is covered by a check or, as padding, must be 0; the size must be what the header
says. What the blocks hold is not known here: `table_file` and `record_file` say it. docs/compressed-tables.md has it
all.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import Encoded
from simhash.archive.format.keys import Keys
from simhash.errors import TableCorrupt, TableMismatch

MAGIC = b"SDTABLE\n"
VERSION = 1
TABLE, RECORDS = 1, 2
PARTIAL = ".partial"
_HEAD = struct.Struct("<8sIIIIQQQ16sI")
_CHECK = struct.Struct("<Q")


@dataclass(frozen=True)
class Header:
    """What a file says of itself.

    Attributes:
        kind: TABLE or RECORDS.
        width: bits of a key.
        block_items: items of each block but perhaps the last.
        items: in all blocks.
        identity: 16 bytes; a file in another's place is told by them.
        extra: what the blocks' code needs.
    """

    kind: int
    width: int
    block_items: int
    items: int
    identity: bytes
    extra: bytes

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.items // self.block_items)

    @property
    def index_start(self) -> int:
        """Where the index begins: behind header and check."""
        return _padded(_HEAD.size + len(self.extra)) + _CHECK.size

    @property
    def blocks_start(self) -> int:
        """Where the first block begins: behind the index and its check."""
        return self.index_start + _padded(self.blocks * (8 * arrays.words(self.width) + 8 + 4)) + _CHECK.size

    def encode(self, size: int) -> bytes:
        """The bytes of the header of a file of that size, check included."""
        fixed = (MAGIC, VERSION, self.kind, self.width, self.block_items, self.items, self.blocks_start, size)
        return _checked(_HEAD.pack(*fixed, self.identity, len(self.extra)) + self.extra)


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _checked(data: bytes) -> bytes:
    data += bytes(_padded(len(data)) - len(data))
    return data + _CHECK.pack(xxhash.xxh3_64_intdigest(data))


class ContainerWriter:
    """Writes one file, blocks in order; it gets its name when it is whole, and is durable by then.

    Index and header come first in the file and are written last: a cut-off file has lost blocks, not its index.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._file = open(_partial(path), "wb")  # noqa: SIM115
        self._file.seek(header.blocks_start)
        self._lasts: list[Keys] = []
        self._sizes: list[NDArray[np.uint32]] = []
        self._checks: list[NDArray[np.uint32]] = []

    def add(self, blocks: Encoded, lasts: Keys) -> None:
        """Append blocks, with the last key of each."""
        self._file.write(blocks.data)
        self._lasts.append(lasts)
        self._sizes.append(blocks.sizes)
        self._checks.append(blocks.checks)

    def close(self) -> None:
        """Finish the file."""
        lasts = b"".join(last.astype("<u8").tobytes() for last in self._lasts)
        sizes = np.concatenate([np.zeros(0, np.uint64), *self._sizes]).astype("<u8")
        checks = b"".join(checks.astype("<u4").tobytes() for checks in self._checks)
        if len(sizes) != self._header.blocks:
            raise ValueError(f"{len(sizes)} blocks were written, {self._header.blocks} announced")
        index = _checked(lasts + np.cumsum(sizes).astype("<u8").tobytes() + checks)
        end = self._file.tell()
        self._file.seek(0)
        self._file.write(self._header.encode(end) + index)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        _partial(self._path).replace(self._path)

    def discard(self) -> None:
        """Give up; nothing is left."""
        self._file.close()
        _partial(self._path).unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


class Container:
    """One file, open to be read. Any number of threads may do so.

    It is mapped to be opened: header and index are checked in the map, and the index is copied from it. Blocks are read
    by position: where a file was cut off meanwhile, or the disk fails, the system kills who touches the map, and a read
    says so.

    Args:
        path: the file.
        kind: what it must be.
        identity: what it must be for; None: anything.

    Raises:
        TableCorrupt: it is damaged in its header or index, or cut off; the message says where.
        TableMismatch: it is whole, and something else than was asked for.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, kind: int, identity: bytes | None = None) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        size = os.fstat(self._file).st_size
        if not size:
            raise TableCorrupt(f"{path} is empty")
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            self.header, announced = self._header(view)
            if self.header.kind != kind or identity not in (None, self.header.identity):
                raise TableMismatch(f"{path} is no file of this place: another was put there")
            self._check_index(view)
            start, blocks, width = self.header.index_start, self.header.blocks, arrays.words(self.header.width)
            self.lasts: Keys = np.frombuffer(view, "<u8", blocks * width, start).reshape(-1, width).copy()
            """The last key of each block; shape (blocks, W)."""
            start += 8 * blocks * width
            self._ends = np.frombuffer(view, "<u8", blocks, start).astype(np.int64)
            self._checks = np.frombuffer(view, "<u4", blocks, start + 8 * blocks).copy()
        self._start = self.header.blocks_start
        self.size = self._start + (int(self._ends[-1]) if blocks else 0)
        """Bytes of the file."""
        if self.size != announced:
            raise TableCorrupt(f"{path}: its header contradicts its index")
        self._refuse_length(size)

    def _header(self, view: memoryview) -> tuple[Header, int]:
        if len(view) < _HEAD.size or view[:8] != MAGIC:
            raise TableCorrupt(f"{self.path}: no compressed table, or its header is damaged or cut off")
        _, version, kind, width, per_block, items, start, announced, identity, extra = _HEAD.unpack_from(view)
        end = _padded(_HEAD.size + extra)
        if len(view) < end + _CHECK.size:
            raise TableCorrupt(f"{self.path}: cut off within its header, or that is damaged")
        if xxhash.xxh3_64_intdigest(view[:end]) != _CHECK.unpack_from(view, end)[0]:
            raise TableCorrupt(f"{self.path}: its header is damaged")
        if version != VERSION:
            raise TableMismatch(f"{self.path} has version {version} of the format, {VERSION} can be read here")
        code = bytes(view[_HEAD.size : _HEAD.size + extra])
        header = Header(kind, width, per_block, items, identity, code)
        if not width or not per_block or header.blocks_start != start:
            raise TableCorrupt(f"{self.path}: its header contradicts itself")
        return header, announced

    def _check_index(self, view: memoryview) -> None:
        start, end = self.header.index_start, self.header.blocks_start - _CHECK.size
        if len(view) < self.header.blocks_start:
            raise TableCorrupt(f"{self.path}: cut off within its index")
        if xxhash.xxh3_64_intdigest(view[start:end]) != _CHECK.unpack_from(view, end)[0]:
            raise TableCorrupt(f"{self.path}: its index is damaged")

    def _refuse_length(self, size: int) -> None:
        if size < self._start:
            raise TableCorrupt(f"{self.path}: cut off within its index: {size:,} of {self.size:,} bytes are left")
        if size < self.size:
            block = int(np.searchsorted(self._ends, size - self._start, "right"))
            at = f"{size:,} of {self.size:,} bytes are left"
            raise TableCorrupt(f"{self.path}: cut off within block {block} of {self.header.blocks}: {at}")
        if size > self.size:
            raise TableCorrupt(f"{self.path}: {size - self.size:,} bytes too many behind its last block")

    def check_length(self) -> None:
        """Look whether the file is as long as it was, so that a cut is told at once and not when its place is read.

        Raises:
            TableCorrupt: it was cut off, or written to.
        """
        self._refuse_length(os.fstat(self._file).st_size)

    def place(self, block: int) -> tuple[int, int]:
        """Where a block begins and ends, in bytes of the file."""
        begin = int(self._ends[block - 1]) if block else 0
        return self._start + begin, self._start + int(self._ends[block])

    def items_of(self, block: int) -> int:
        """How many items a block holds."""
        return min(self.header.block_items, self.header.items - block * self.header.block_items)

    def blocks(self, numbers: NDArray[np.int64]) -> Encoded:
        """The blocks of those numbers, ascending, as they stand in the file: one stretch is read at once.

        Raises:
            TableCorrupt: the file was cut off meanwhile, or cannot be read; the message names the block.
        """
        if len(numbers) == 1:
            begin, end = self.place(number := int(numbers[0]))
            return Encoded(self._read(begin, end), np.array([end - begin], np.uint32), self._checks[number:][:1])
        begins = np.where(numbers > 0, self._ends[numbers - 1], 0)
        ends = self._ends[numbers]
        breaks = np.flatnonzero(begins[1:] != ends[:-1])
        starts = begins[np.concatenate(([0], breaks + 1))] + self._start
        stops = ends[np.concatenate((breaks, [len(numbers) - 1]))] + self._start
        data = b"".join(map(self._read, starts.tolist(), stops.tolist()))
        return Encoded(data, (ends - begins).astype(np.uint32), self._checks[numbers].astype(np.uint32))

    def _read(self, begin: int, end: int) -> bytes:
        try:
            data = os.pread(self._file, end - begin, begin)
        except OSError as error:
            raise self._unreadable(begin, str(error)) from error
        if len(data) < end - begin:
            raise self._unreadable(begin + len(data), "the file was cut off there while it was open")
        return data

    def _unreadable(self, place: int, reason: str) -> TableCorrupt:
        return self.corrupt(int(np.searchsorted(self._ends, place - self._start, "right")), reason)

    def index(self) -> tuple[bytes, bytes, bytes]:
        """Of each block the last key, the end, counted from the blocks' start (u64), and the check (u32)."""
        return self.lasts.tobytes(), self._ends.tobytes(), self._checks.tobytes()

    def corrupt(self, block: int, reason: str) -> TableCorrupt:
        """The error that names a block of this file."""
        begin, end = self.place(block)
        total = self.header.blocks
        return TableCorrupt(f"{self.path}: block {block} of {total} (bytes {begin} to {end}) is damaged: {reason}")

    def spans(self, size: int) -> Iterator[NDArray[np.int64]]:
        """The numbers of all blocks, so many at a time."""
        for start in range(0, self.header.blocks, size):
            yield np.arange(start, min(start + size, self.header.blocks))
