"""Ascending keys to compressed blocks and back: section 3.2 of Manku, Jain, Das Sarma (WWW 2007).

A block holds the same number of keys as any other but the last. Its first key stands there raw, `width` bits. Each
further one is the Huffman code of h, the position of the first bit in which it differs from its predecessor, and then
the bits to the right of it: to the left they are the predecessor's, and bit h itself goes from 0 to 1. Equal
neighbours have a symbol of their own, h = `width`, with nothing behind it. Zeros fill the last byte.

Worked example (8 bits, codes: h = 6 is 0, equal is 1): 11011001, 11011011, 11011011 are 11011001, 0 1, 1 and five
zeros; bit 6 is the first that differs, and the rest to its right is "1".

The native kernel does the same; `BlockCode` asks it where it is in use. Both check a block before they decode it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash import native
from simhash.compressed import keys as arrays
from simhash.compressed.huffman import LONGEST, Code
from simhash.compressed.keys import WORD, Keys
from simhash.compressed.packing import BitReader, Counts, Words, low_bits, packed
from simhash.errors import BrokenBlock, OrderError

Checks = NDArray[np.uint32]
Sizes = NDArray[np.uint32]


@dataclass(frozen=True)
class Encoded:
    """Whole blocks: their bytes, one behind the other, the size of each in bytes, and the check of each."""

    data: bytes
    sizes: Sizes
    checks: Checks


def check(block: bytes | memoryview) -> int:
    """The check of a block: the lower 32 bits of its XXH3."""
    return xxhash.xxh3_64_intdigest(block) & 0xFFFFFFFF


@dataclass(frozen=True)
class BlockCode:
    """Blocks of `block_keys` keys of `width` bits, in the code of one table.

    Attributes:
        code: of the symbols 0 to `width`.
        kernel: the native kernel's side of it, None where it is not in use.
    """

    width: int
    block_keys: int
    code: Code
    kernel: native.BlockKernel | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = native.blocks()
        made = found and found.BlockKernel(self.width, self.block_keys, list(self.code.lengths))
        object.__setattr__(self, "kernel", made)

    def encode(self, keys: Keys) -> Encoded:
        """Blocks of ascending keys; the last one is short when there are no more.

        Raises:
            OrderError: a key is smaller than the one before.
        """
        if self.kernel is None:
            return encode_in_numpy(self, keys)
        try:
            data, sizes, checks = self.kernel.encode(keys.tobytes())
        except ValueError as error:
            raise OrderError(*error.args) from error
        return Encoded(data, np.frombuffer(sizes, np.uint32), np.frombuffer(checks, np.uint32))

    def decode(self, blocks: Encoded, count: int) -> Keys:
        """The keys of blocks that hold `count` in all: each `block_keys`, but perhaps the last.

        Raises:
            BrokenBlock: the bytes of a block are not what was written.
        """
        if self.kernel is None:
            return decode_in_numpy(self, blocks, count)
        sizes, checks = blocks.sizes.tobytes(), blocks.checks.tobytes()
        try:
            data = self.kernel.decode(blocks.data, sizes, checks, count)
        except ValueError as error:
            raise BrokenBlock(*error.args) from error
        return np.frombuffer(data, np.uint64).reshape(-1, arrays.words(self.width))

    def near(self, blocks: Encoded, count: int, range_: Keys, reach: int) -> Keys:
        """Of the same keys those from `range_[0]` to `range_[1]`, within `reach` bits of `range_[2]`.

        Raises:
            BrokenBlock: the bytes of a block are not what was written.
        """
        if self.kernel is None:
            keys = decode_in_numpy(self, blocks, count)
            low, high, query = (range_[i : i + 1] for i in range(3))
            wanted = ~arrays.less(keys, low) & ~arrays.less(high, keys)
            return keys[wanted & (arrays.distances(keys, query) <= reach)]
        sizes, checks = blocks.sizes.tobytes(), blocks.checks.tobytes()
        try:
            data = self.kernel.near(blocks.data, sizes, checks, count, range_.tobytes(), reach)
        except ValueError as error:
            raise BrokenBlock(*error.args) from error
        return np.frombuffer(data, np.uint64).reshape(-1, arrays.words(self.width))


def gap_counts(keys: Keys, width: int) -> Counts:
    """How often each h (0 to `width`, that for equal neighbours) occurs among ascending keys; shape (width + 1,).

    Raises:
        OrderError: a key is smaller than the one before.
    """
    found = native.blocks()
    if found is None:
        _refuse_descending(keys)
        return np.bincount(arrays.first_differences(keys, width), minlength=width + 1).astype(np.int64)
    try:
        counts = found.gap_counts(keys.tobytes(), width)
    except ValueError as error:
        raise OrderError(*error.args) from error
    return np.array(counts, np.int64)


def _refuse_descending(keys: Keys) -> None:
    falls = np.flatnonzero(arrays.less(keys[1:], keys[:-1]))
    if len(falls):
        raise OrderError(f"key {falls[0] + 1} is smaller than the one before")


# The same without the kernel ---------------------------------------------------------------------------------------


def encode_in_numpy(code: BlockCode, keys: Keys) -> Encoded:
    """`BlockCode.encode`, every key at once: each is pieces of at most 64 bits, whose places are sums of lengths."""
    _refuse_descending(keys)
    starts = np.arange(0, len(keys), code.block_keys)
    gaps = np.concatenate((np.full(min(1, len(keys)), -1), arrays.first_differences(keys, code.width)))
    gaps[starts] = -1
    without = np.setdiff1d(gaps[gaps >= 0], np.flatnonzero(code.code.lengths))
    if len(without):
        raise OrderError(f"the code was made for other keys: it has none for h = {without[0]}")
    values, lengths = _pieces(code, keys, gaps)
    bits = lengths.sum(axis=1)
    sizes = -(-np.add.reduceat(bits, starts) // 8) if len(starts) else np.zeros(0, np.int64)
    begins = np.cumsum(sizes) - sizes
    before = np.cumsum(bits) - bits
    block = np.arange(len(keys)) // code.block_keys
    places = 8 * begins[block] + before - before[starts][block]
    within = np.cumsum(lengths, axis=1) - lengths
    data = packed(values.ravel(), lengths.ravel(), (places[:, None] + within).ravel(), int(sizes.sum()))
    checks = [check(data[at : at + size]) for at, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
    return Encoded(data, sizes.astype(np.uint32), np.array(checks, np.uint32))


def _pieces(code: BlockCode, keys: Keys, gaps: Counts) -> tuple[Words, Counts]:
    """Of each key the code of its gap (-1: none, a raw key) and what lies to the right, word by word."""
    size = keys.shape[1]
    values = np.zeros((len(keys), 1 + size), np.uint64)
    lengths = np.zeros((len(keys), 1 + size), np.int64)
    values[:, 0] = np.array([*code.code.codes, 0], np.uint64)[gaps]
    lengths[:, 0] = np.array([*code.code.lengths, 0], np.int64)[gaps]
    for word in range(size):
        end = min(code.width - WORD * word, WORD)
        length = np.maximum(end - np.clip(gaps + 1 - WORD * word, 0, WORD), 0)
        values[:, 1 + word] = (keys[:, word] >> np.uint64(WORD - end)) & low_bits(length)
        lengths[:, 1 + word] = length
    return values, lengths


def decode_in_numpy(code: BlockCode, blocks: Encoded, count: int) -> Keys:
    """`BlockCode.decode`, all blocks in step: the first key of each, then the second of each, and so on."""
    ends = np.cumsum(blocks.sizes, dtype=np.int64)
    begins = ends - blocks.sizes
    _check(blocks, begins.tolist(), ends.tolist())
    reader, size = BitReader(blocks.data), arrays.words(code.width)
    symbols = np.array(code.code.rows(), np.int64)
    lengths = np.array([*code.code.lengths, 0], np.int64)
    found = np.zeros((len(ends), code.block_keys, size), np.uint64)
    held = np.minimum(count - code.block_keys * np.arange(len(ends)), code.block_keys)
    places = 8 * begins
    for step in range(code.block_keys if len(ends) else 0):
        active = np.flatnonzero(held > step)
        at = places[active]
        if step == 0:
            gaps = np.full(len(active), -1)
        else:
            gaps = symbols[(reader.peek(at) >> np.uint64(WORD - LONGEST)).astype(np.int64)]
            _refuse(active[gaps < 0])
            at = at + lengths[gaps]
        before = found[active, step - 1] if step else np.zeros((len(active), size), np.uint64)
        after, at, risen = _followed(code.width, reader, before, gaps, at)
        _refuse(active[~risen | (at > 8 * ends[active])])
        found[active, step], places[active] = after, at
    _refuse(np.flatnonzero((places + 7) // 8 != ends))
    return found.reshape(-1, size)[:count]


def _followed(
    width: int, reader: BitReader, before: Keys, gaps: Counts, at: Counts
) -> tuple[Keys, Counts, NDArray[np.bool_]]:
    """The keys with those first differences (-1: raw) from `before`, their rest read at `at`; where it ends; and
    whether the bit that differs was 0 before."""
    after, risen = before.copy(), np.ones(len(before), bool)
    for word in range(before.shape[1]):
        end = min(width - WORD * word, WORD)
        kept = np.clip(gaps - WORD * word, 0, WORD)
        length = np.maximum(end - np.clip(gaps + 1 - WORD * word, 0, WORD), 0)
        shift = (WORD - np.maximum(length, 1)).astype(np.uint64)
        rest = np.where(length > 0, reader.peek(at) >> shift, np.uint64(0)) << np.uint64(WORD - end)
        own = (gaps >= WORD * word) & (gaps < WORD * word + end)
        bit = np.where(own, np.uint64(1) << (WORD - 1 - np.where(own, kept, 0)).astype(np.uint64), np.uint64(0))
        risen &= before[:, word] & bit == 0
        keep = ~low_bits(WORD - kept)
        after[:, word] = (before[:, word] & keep) | bit | rest
        at = at + length
    return after, at, risen


def _check(blocks: Encoded, begins: Sequence[int], ends: Sequence[int]) -> None:
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        found, stored = check(blocks.data[begin:end]), int(blocks.checks[number])
        if found != stored:
            raise BrokenBlock(number, f"its check is {found:08x}, not {stored:08x}")


def _refuse(blocks: Counts) -> None:
    if len(blocks):
        raise BrokenBlock(int(blocks.min()), "it does not hold the keys that it should")
