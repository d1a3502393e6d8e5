"""The simhash itself: hashes of features and their weights in, one fingerprint out.

Charikar, "Similarity estimation techniques from rounding algorithms" (STOC 2002), section 3; Manku, Jain,
Das Sarma, "Detecting near-duplicates for web crawling" (WWW 2007), section 2. Each feature's f-bit hash
stands for a vector of +1 (bit set) and -1 (bit clear); the vectors are added up, each times its feature's
weight; bit i of the fingerprint is 1 where component i of the sum is > 0. The probability that a bit of two
fingerprints differs is angle / pi, the angle being the one between the two bags of weighted features.

Worked example, f = 8 (bit 0 leftmost): the features 01011001 with weight 45.11 and 11001011 with weight
32.09.

    01011001    -45.11  45.11 -45.11  45.11  45.11 -45.11 -45.11  45.11
    11001011     32.09  32.09 -32.09 -32.09  32.09 -32.09  32.09  32.09
    sum         -13.02  77.20 -77.20  13.02  77.20 -77.20 -13.02  77.20
    simhash          0      1      0      1      1      0      0      1

**The sign is that of the exact sum.** Floats added in another order give another last digit, and with it
another bit where a sum is near zero; then a fingerprint would depend on the order of features and on the
machine. So sums whose rounding error could reach zero are added again exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simhash.features.hashes import Hash, wide_enough

Counts = NDArray[np.int64] | NDArray[np.int32] | NDArray[np.uint8]
Weighing = NDArray[np.float64] | Counts
"""Weights of features: real, or whole where they are counts."""

ROWS_AT_ONCE = 2_048
"""Features whose bits are unpacked together, however many a page has: 64 bits take half a megabyte as float32. From
some thousands on the product would be shared among threads, which wait for each other forty times as long."""

MAX_TOTAL = 2.0**1000
"""The weights of a page stay below this together, safely below where doubles overflow."""

_EXACT_IN_FLOAT32 = 2.0**24
_EXACT_IN_FLOAT64 = 2.0**53
_EPSILON = 2.0**-52


def bit_rows(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.uint8]:
    """Unpack the low `bits` bits of each hash: shape (n, bits) of 0 and 1, column 0 being the *lowest* bit.

    Args:
        hashes: shape (n,), or (n, words) with the most significant word first.
        bits: how many, from the lowest.
    """
    rows = hashes if hashes.ndim == 1 else hashes[:, ::-1]
    packed = np.ascontiguousarray(rows, dtype="<u8").view(np.uint8)
    words = 1 if hashes.ndim == 1 else hashes.shape[1]
    unpacked = np.unpackbits(packed, bitorder="little").reshape(len(hashes), 64 * words)
    return unpacked if unpacked.shape[1] == bits else unpacked[:, :bits]


def bit_sums(hashes: NDArray[np.uint64], weights: Weighing, bits: int) -> NDArray[np.float64]:
    """Component i: the weights of the features whose hash has bit i (1 << i), minus the others'.

    Each component has the sign of the exact sum, whatever the order of the features.

    Args:
        hashes: shape (n,) or (n, words), see `bit_rows`.
        weights: shape (n,), real or whole numbers; negative ones are allowed.
        bits: width of the fingerprint.

    Raises:
        ValueError: a weight is not finite, or they are MAX_TOTAL and more together.
    """
    if weights.dtype.kind == "i" and len(weights) <= ROWS_AT_ONCE:
        exact = weights.astype(np.float32)
        # Of whole numbers the squares' sum bounds the sum; one call, of a page's few hundred features.
        if float(exact @ exact) < _EXACT_IN_FLOAT32 / 2:
            return 2.0 * (exact @ bit_rows(hashes, bits).astype(np.float32)).astype(np.float64) - float(exact.sum())
    total = float(np.abs(weights).sum())
    if not total < MAX_TOTAL:
        raise ValueError(f"weights must be finite and together below 2**1000, not {total}")
    whole = weights.dtype.kind == "i" or bool((weights == np.rint(weights)).all())
    single = whole and total < _EXACT_IN_FLOAT32
    set_bits = _weight_of_set_bits(hashes, weights, bits, np.float32 if single else np.float64)
    sums: NDArray[np.float64] = 2.0 * set_bits - weights.sum()
    if whole and total < _EXACT_IN_FLOAT64:
        return sums
    return _settle(sums, hashes, weights, error=4.0 * (len(weights) + 2) * _EPSILON * total)


def _weight_of_set_bits(
    hashes: NDArray[np.uint64],
    weights: Weighing,
    bits: int,
    dtype: type[np.float32] | type[np.float64],
) -> NDArray[np.float64]:
    """Component i: the weights of the features whose hash has bit i."""
    sums = np.zeros(bits)
    for start in range(0, len(weights), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        sums += weights[part].astype(dtype) @ bit_rows(hashes[part], bits).astype(dtype)
    return sums


def _settle(
    sums: NDArray[np.float64], hashes: NDArray[np.uint64], weights: Weighing, error: float
) -> NDArray[np.float64]:
    """Add up again, exactly, each component that is nearer to zero than its possible rounding error."""
    for column in np.flatnonzero(np.abs(sums) <= error):
        signed = (
            np.where(bit_rows(hashes[start : start + ROWS_AT_ONCE], int(column) + 1)[:, column], 1.0, -1.0)
            * weights[start : start + ROWS_AT_ONCE]
            for start in range(0, len(weights), ROWS_AT_ONCE)
        )
        sums[column] = math.fsum(value for part in signed for value in part.tolist())
    return sums


def from_sums(sums: NDArray[np.float64], zero_sum: int = 0) -> int:
    """Turn component sums into a fingerprint: 1 where a sum is > 0, `zero_sum` where it is 0."""
    ones = sums > 0 if zero_sum == 0 else sums >= 0
    return int.from_bytes(np.packbits(ones, bitorder="little").tobytes(), "little")


def simhash(hashes: NDArray[np.uint64], weights: Weighing, bits: int, zero_sum: int = 0) -> int:
    """Fingerprint of hashed features.

    Args:
        hashes: shape (n,), or (n, words) with the most significant word first; the low `bits` bits count.
        weights: shape (n,).
        bits: width of the fingerprint, 8 to 256.
        zero_sum: the bit where a component's sum is exactly 0: 0 (default, "strictly > 0") or 1.

    Raises:
        ValueError: a weight is not finite.

    >>> hashes = np.array([0b01011001, 0b11001011], dtype=np.uint64)
    >>> f"{simhash(hashes, np.array([45.11, 32.09]), bits=8):08b}"
    '01011001'
    """
    return from_sums(bit_sums(hashes, weights, bits), zero_sum)


def fingerprint(
    bag: Mapping[str, float], hash_: str | Hash = "xxh3_64", bits: int = 64, zero_sum: int = 0
) -> int | None:
    """Fingerprint of a bag of weighted features; None for an empty bag, or one in which nothing has weight.

    Raises:
        ProfileError: the hash is unknown or narrower than the fingerprint, or `bits` is not in 8..256.
        ValueError: a weight is not finite.
    """
    hashing = wide_enough(hash_, bits)
    weights = np.fromiter(bag.values(), dtype=np.float64, count=len(bag))
    if not weights.any():
        return None
    return simhash(hashing.words(bag), weights, bits, zero_sum)
