"""Slow ways to a fingerprint, as the papers draw their random vectors: the fast simhash is held against them.

All agree in law: a bit differs between two vectors with probability angle / pi (Charikar 2002, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.features.hashes import utf8
from simhash.signature.fingerprint import from_sums
from simhash.signature.vectors import Vector


def hyperplane_fingerprint(vector: Vector, bits: int = 64, seed: int = 0) -> int | None:
    """On which side of each random hyperplane the vector lies (Charikar 2002); None for zero.

    A dimension's `bits` normal deviates come from a generator seeded with that dimension, so that vectors of
    any dimension share their hyperplanes.
    """
    sums = np.zeros(bits)
    for dimension, value in vector.items():
        sums += value * np.random.default_rng((seed, dimension)).standard_normal(bits)
    return from_sums(sums) if any(vector.values()) else None


def dot_fingerprint(vector: Sequence[float] | NDArray[np.float64], directions: NDArray[np.float64]) -> int:
    """Fingerprint of a dense vector by dot products with given directions, shape (bits, dimensions).

    Direction 0 gives bit 0, the leftmost.
    """
    return from_sums((directions @ np.asarray(vector, dtype=np.float64))[::-1])


def fingerprint_with_a_hash_per_bit(bag: Mapping[str, float], bits: int = 64) -> int | None:
    """A hash function for each bit i (xxh3_64 with seed i, its lowest bit); None without weight.

    It computes `bits` hashes for each feature where the simhash computes one.
    """
    sums = np.zeros(bits)
    for feature, weight in bag.items():
        data = utf8(feature)
        signs = [1 if xxhash.xxh3_64_intdigest(data, seed) & 1 else -1 for seed in range(bits)]
        sums += weight * np.array(signs)
    return from_sums(sums) if any(bag.values()) else None
