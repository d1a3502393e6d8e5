"""Real-valued sparse vectors of any dimension: a mapping `dimension -> value`.

A vector's simhash hashes each dimension's number: the bits of that hash, read as +1 and -1, are what one component of
`bits` random vectors would be, so no matrix of them is ever kept. A bit differs between two vectors with probability
angle / pi (Goemans and Williamson, "Improved approximation algorithms for maximum cut", 1995, lemma 3.2; Charikar 2002,
section 3).
"""

from __future__ import annotations

from collections.abc import Mapping

from simhash.features.hashes import Hash
from simhash.signature.fingerprint import fingerprint

Vector = Mapping[int, float]


def vector_fingerprint(vector: Vector, hash_: str | Hash = "xxh3_64", bits: int = 64, zero_sum: int = 0) -> int | None:
    """Simhash of a vector; None for the zero vector. Each dimension is hashed as its decimal digits.

    Raises:
        ProfileError: the hash is unknown or narrower than the fingerprint, or `bits` is not in 8..256.
        ValueError: a value is not finite.
    """
    return fingerprint({str(d): value for d, value in vector.items()}, hash_, bits, zero_sum)
