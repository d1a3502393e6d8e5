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
from itertools import pairwise

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash import native
from simhash.archive.format import keys as arrays
from simhash.archive.format.keys import Keys
from simhash.errors import BrokenBlock, OrderError

Checks = NDArray[np.uint32]
Sizes = NDArray[np.uint32]
Counts = NDArray[np.int64]


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
            return encode_in_python(self, keys)
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
            return decode_in_python(self, blocks, count)
        sizes, checks = blocks.sizes.tobytes(), blocks.checks.tobytes()
        try:
            data = self.kernel.decode(blocks.data, sizes, checks, count)
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


# The same without the kernel: whole blocks as one number each, for one block in half a millisecond ------------------


def encode_in_python(code: BlockCode, keys: Keys) -> Encoded:
    """`BlockCode.encode`, key by key."""
    _refuse_descending(keys)
    values = arrays.to_ints(keys, code.width)
    size = code.block_keys
    blocks = [_encoded(code, values[start : start + size]) for start in range(0, len(values), size)]
    sizes, checks = map(len, blocks), map(check, blocks)
    return Encoded(b"".join(blocks), np.array([*sizes], np.uint32), np.array([*checks], np.uint32))


def _encoded(code: BlockCode, values: Sequence[int]) -> bytes:
    bits, count = values[0], code.width
    for before, value in pairwise(values):
        gap = code.width - (before ^ value).bit_length()
        if not (length := code.code.lengths[gap]):
            raise OrderError(f"the code was made for other keys: it has none for h = {gap}")
        right = max(0, code.width - 1 - gap)
        bits = (bits << length | code.code.codes[gap]) << right | value & ~(-1 << right)
        count += length + right
    return (bits << -count % 8).to_bytes(-(-count // 8))


def decode_in_python(code: BlockCode, blocks: Encoded, count: int) -> Keys:
    """`BlockCode.decode`, key by key."""
    ends = np.cumsum(blocks.sizes, dtype=np.int64).tolist()
    begins = [0, *ends][:-1]
    _check(blocks, begins, ends)
    symbols = code.code.rows()
    found: list[int] = []
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        held = min(count - code.block_keys * number, code.block_keys)
        values = _decoded(code, symbols, blocks.data[begin:end], held)
        if values is None:
            raise BrokenBlock(number, "it does not hold the keys that it should")
        found += values
    return arrays.from_ints(found, code.width)


def _decoded(code: BlockCode, symbols: Sequence[int], block: bytes, held: int) -> list[int] | None:
    """The keys of a block; None where its bits are not those of so many."""
    left = 8 * len(block) - code.width
    if left < 0:
        return None
    bits = int.from_bytes(block) << LONGEST  # so that a code may be looked for behind the last one
    value = bits >> left + LONGEST
    values = [value]
    for _ in range(held - 1):
        gap = symbols[bits >> left & ~(-1 << LONGEST)]
        right = max(0, code.width - 1 - gap)
        left -= code.code.lengths[gap] + right
        if gap < 0 or left < 0:
            return None
        if gap < code.width:
            above = value >> right
            if above & 1:
                return None
            value = (above | 1) << right | bits >> left + LONGEST & ~(-1 << right)
        values.append(value)
    return values if left < 8 else None


def _check(blocks: Encoded, begins: Sequence[int], ends: Sequence[int]) -> None:
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        found, stored = check(blocks.data[begin:end]), int(blocks.checks[number])
        if found != stored:
            raise BrokenBlock(number, f"its check is {found:08x}, not {stored:08x}")


# Huffman codes --------------------------------------------------------------------------------------------------------
#
# Of bounded length: from how often symbols occur to code lengths, from those to the code itself. A code is *canonical*:
# it follows from its lengths alone (shorter codes first, among equals the smaller symbol), so a file stores only those.
# Lengths are optimal under their bound (package-merge: Larmore and Hirschberg, "A fast algorithm for optimal
# length-limited Huffman codes", JACM 37, 1990).
#
# Worked example: counts 5, 2, 1, 0 give the lengths 1, 2, 2, 0 and the codes 0, 10, 11 and none.

LONGEST = 12
"""Bits of the longest code. A decoder's table then has 4,096 rows and stays in a core's first cache; against codes of
any length it costs under 0.01 bits a fingerprint, since only symbols rarer than 1 in 4,096 get a shorter code."""


@dataclass(frozen=True)
class Code:
    """A canonical code.

    Attributes:
        lengths: bits of each symbol's code; 0: the symbol does not occur.
        codes: each symbol's code, right-aligned.
    """

    lengths: tuple[int, ...]
    codes: tuple[int, ...]

    def rows(self) -> list[int]:
        """For each number of `LONGEST` bits the symbol whose code it begins with; -1: none."""
        rows = [-1] * (1 << LONGEST)
        for symbol, (length, code) in enumerate(zip(self.lengths, self.codes, strict=True)):
            if length:
                start = code << (LONGEST - length)
                rows[start : start + (1 << (LONGEST - length))] = [symbol] * (1 << (LONGEST - length))
        return rows


def code_lengths(counts: Sequence[int], longest: int = LONGEST) -> tuple[int, ...]:
    """Lengths of the best code for symbols that occur so often, none longer than `longest`."""
    leaves = sorted((count, (symbol,)) for symbol, count in enumerate(counts) if count)
    if len(leaves) > 1 << longest:
        raise ValueError(f"{len(leaves)} symbols do not fit into codes of {longest} bits")
    lengths = [0] * len(counts)
    if len(leaves) == 1:
        lengths[leaves[0][1][0]] = 1
    packages: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(longest if len(leaves) > 1 else 0):
        merged = sorted(leaves + packages)
        pairs = zip(merged[::2], merged[1::2], strict=False)
        packages = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
    for _, symbols in packages[: len(leaves) - 1]:
        for symbol in symbols:
            lengths[symbol] += 1
    return tuple(lengths)


def canonical(lengths: Sequence[int]) -> Code:
    """The code of those lengths.

    Raises:
        ValueError: no code has them.
    """
    codes, code, before = [0] * len(lengths), 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code <<= length - before
        codes[symbol] = code
        code, before = code + 1, length
    if before > LONGEST or code > 1 << before:
        raise ValueError(f"no code has the lengths {list(lengths)}")
    return Code(tuple(lengths), tuple(codes))
