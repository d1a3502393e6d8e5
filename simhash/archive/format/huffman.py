"""Huffman codes of bounded length: from how often symbols occur to code lengths, from those to the code itself.

A code is *canonical*: it follows from its lengths alone (shorter codes first, among equals the smaller symbol), so a
file stores only those. Lengths are optimal under their bound (package-merge: Larmore and Hirschberg, "A fast algorithm
for optimal length-limited Huffman codes", JACM 37, 1990).

Worked example: counts 5, 2, 1, 0 give the lengths 1, 2, 2, 0 and the codes 0, 10, 11 and none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
