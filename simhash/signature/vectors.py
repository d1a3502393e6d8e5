"""Real-valued sparse vectors of any dimension, and the slow references that the fast simhash is held against.

A vector is a mapping `dimension -> value`. Its simhash hashes each dimension's number: the bits of that
hash, read as +1 and -1, are what one component of `bits` random vectors would be, so no matrix of them is
ever kept.

The references draw those components otherwise. All three agree in law: a bit differs between two vectors
with probability angle / pi (Goemans and Williamson, "Improved approximation algorithms for maximum cut",
1995, lemma 3.2; Charikar 2002, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.features.hashes import Hash, utf8
from simhash.signature.fingerprint import fingerprint, from_sums

Vector = Mapping[int, float]


def vector_fingerprint(vector: Vector, hash_: str | Hash = "xxh3_64", bits: int = 64, zero_sum: int = 0) -> int | None:
    """Simhash of a vector; None for the zero vector. Each dimension is hashed as its decimal digits.

    Raises:
        ProfileError: the hash is unknown or narrower than the fingerprint, or `bits` is not in 8..256.
        ValueError: a value is not finite.
    """
    return fingerprint({str(d): value for d, value in vector.items()}, hash_, bits, zero_sum)


def hyperplane_fingerprint(vector: Vector, bits: int = 64, seed: int = 0) -> int | None:
    """Reference: on which side of each random hyperplane the vector lies (Charikar 2002); None for zero.

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
    """Reference: a hash function for each bit i (xxh3_64 with seed i, its lowest bit); None without weight.

    It computes `bits` hashes for each feature where the simhash computes one.
    """
    sums = np.zeros(bits)
    for feature, weight in bag.items():
        data = utf8(feature)
        signs = [1 if xxhash.xxh3_64_intdigest(data, seed) & 1 else -1 for seed in range(bits)]
        sums += weight * np.array(signs)
    return from_sums(sums) if any(bag.values()) else None
