"""Hamming distances in NumPy: popcounts of exclusive ors.

Worked example: rows 0b0110 and 0b0011 differ in two bits, so their distance is 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
    """Bits in which rows of `a` differ from those of `b`, both (n, words); shape (n,)."""
    found: NDArray[np.int64] = np.bitwise_count(a ^ b).sum(axis=1, dtype=np.int64)
    return found


def halves_joined(halves: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """(n, m) numbers of 32 bits as half as many of 64, a zero in front where m is odd: distances stay the same."""
    if halves.shape[1] % 2:
        halves = np.concatenate([np.zeros((len(halves), 1), np.uint32), halves], axis=1)
    return np.ascontiguousarray(halves).view(np.uint64)
