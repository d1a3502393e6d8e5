"""MinHash of a text's shingles: the verifier that estimates Jaccard similarity, and the band keys beside it.

The gate (a simhash) is a sieve: it finds candidates and lets strangers through. The verifier tells them apart. It is a
one-permutation MinHash of the set of token n-grams (Li, Owen, Zhang, "One Permutation Hashing", NIPS 2012) of which
one bit a bin is kept (Li and Koenig, "b-Bit Minwise Hashing", WWW 2010), empty bins borrowing from others by hashing
(Shrivastava, "Optimal Densification for Fast and Accurate Minwise Hashing", ICML 2017). A bit differs with probability
(1 - J) / 2: at 256 bins, pages of Jaccard 0.8 are 25.6 bits apart on average, strangers 128.

A band key is a hash of `rows` minima (Broder 1997; banding: Indyk and Motwani 1998): two texts share it with about
probability J ** rows, wherever their gates differ.

Exact recipe, all arithmetic modulo 2**64, with `gram_hashes` of `shingles` as g:

    bin  = g >> (64 - log2(bins))         value = the bits below           minimum of the values in each bin
    an empty bin b takes the minimum of bin mix64((1024 b + a) * GOLDEN) mod bins, for the first a = 1 to 1024 at
    which that bin was not empty to begin with; 0 if there is no such a
    verifier bit b (b = 0 is the most significant) = bit (b mod 32) of bin b's minimum, counted from the least
    group q = the least minimum of bins 8 q to 8 q + 7, before borrowing; 2**64 - 1 when all are empty
    band i  = mix64(sum of group (rows * i + j) * MULTIPLIERS[j] over j < rows) >> 32; 0 when its groups are all empty

The number that comes out holds the verifier's bits, and behind them the band keys of 32 bits each, first to last.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simhash.errors import ProfileError
from simhash.features.shingles import MULTIPLIERS, mix64, mix64_of

BAND_BITS = 32
GROUP_BINS = 8
MOST_BINS = 1 << 16
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_EMPTY = int(EMPTY)
_MULTIPLIERS: tuple[int, ...] = tuple(MULTIPLIERS.tolist())
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BIT_POSITIONS = 32
_ATTEMPTS = 1024
"""Bins that an empty bin asks before it gives up and counts as 0: with 5 of 128 filled once in 10**17, with 5 of 256
once in 10**8."""
_FEW = 6
"""So few empty bins are asked for one by one: NumPy's calls would take longer."""
_STAGES = (8, 64)
"""Nearly always one of the first 8 lends; the others are looked at only then, from 64 on only for next to nothing."""


@dataclass(frozen=True, slots=True)
class MinHashSketch:
    """The verifier and bands of a text.

    Attributes:
        n: tokens in a shingle.
        bins: bits of the verifier, a power of two.
        bands: number of band keys.
        rows: groups of bins whose minima make up one band key.
    """

    n: int = 5
    bins: int = 256
    bands: int = 6
    rows: int = 4

    def __post_init__(self) -> None:
        if not GROUP_BINS <= self.bins <= MOST_BINS or self.bins & (self.bins - 1):
            raise ProfileError(f"a sketch has a power of two of bins, {GROUP_BINS} to {MOST_BINS}, not {self.bins}")
        if not 1 <= self.n <= len(MULTIPLIERS) or not 1 <= self.rows <= len(MULTIPLIERS):
            raise ProfileError(f"shingles and rows are 1 to {len(MULTIPLIERS)}")
        if self.bands * self.rows > self.bins // GROUP_BINS:
            raise ProfileError(f"{self.bins} bins have no {self.bands * self.rows} groups of {GROUP_BINS}")

    @property
    def width(self) -> int:
        """Bits of the whole number: verifier and band keys."""
        return self.bins + BAND_BITS * self.bands

    def similarity(self, a: int, b: int) -> float:
        """Jaccard similarity of two sets, estimated from their sketches: 1 - 2 d / bins, at least 0, without bias
        (Li and Koenig, WWW 2010, section 4, for one bit); its standard deviation is 2 sqrt(p (1 - p) / bins), where
        p = (1 - J) / 2: at 256 bins .037 at J = .8, .027 at .9.
        """
        different = ((a ^ b) >> (BAND_BITS * self.bands)).bit_count()
        return max(0.0, 1 - 2 * different / self.bins)

    def no_minima(self) -> NDArray[np.uint64]:
        """What `lower` begins with: EMPTY in each bin, shape (bins,)."""
        return np.full(self.bins, EMPTY)

    def lower(self, minima: NDArray[np.uint64], grams: NDArray[np.uint64]) -> None:
        """Take n-grams into the least value of each bin, in place."""
        shift = 64 - self.bins.bit_length() + 1
        np.minimum.at(minima, (grams >> np.uint64(shift)).view(np.int64), grams & np.uint64((1 << shift) - 1))

    def of_minima(self, minima: NDArray[np.uint64]) -> int | None:
        """The sketch; None when every bin is empty."""
        empty = (minima == EMPTY).nonzero()[0]
        if len(empty) == self.bins:
            return None
        full = _densified(minima, empty) if len(empty) else minima
        sketch = int.from_bytes(np.packbits((full & _kept_bits(self.bins)) != 0).tobytes())
        for key in self._band_keys(minima):
            sketch = sketch << BAND_BITS | key
        return sketch

    def _band_keys(self, minima: NDArray[np.uint64]) -> Iterator[int]:
        """In plain integers: of a dozen numbers NumPy's calls would cost more than their work."""
        groups: list[int] = np.minimum.reduce(minima.reshape(-1, GROUP_BINS), axis=1).tolist()
        for start in range(0, self.bands * self.rows, self.rows):
            least = groups[start : start + self.rows]
            key = mix64_of(sum(map(operator.mul, least, _MULTIPLIERS))) >> (64 - BAND_BITS)
            yield 0 if min(least) == _EMPTY else key


def _densified(minima: NDArray[np.uint64], empty: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Every empty bin with the minimum that it borrows."""
    out = minima.copy()
    if len(empty) <= _FEW:
        first = _first_donors(len(minima))
        lent = [_lent(minima, first[bin_]) for bin_ in empty.tolist()]
        out[empty] = lent
        empty = empty if _EMPTY in lent else empty[:0]
    for asked_in_turn in _stages(len(minima)):
        if not len(empty):
            return out
        asked = minima.take(asked_in_turn.take(empty, axis=0))
        out[empty] = asked[np.arange(len(empty)), (asked != EMPTY).argmax(axis=1)]
        empty = empty[out[empty] == EMPTY]
    out[empty] = 0
    return out


def _lent(minima: NDArray[np.uint64], donors: list[int]) -> int:
    """The minimum of the first of these bins that is not empty; EMPTY where all are."""
    return next((value for donor in donors if (value := minima.item(donor)) != _EMPTY), _EMPTY)


@cache
def _first_donors(bins: int) -> list[list[int]]:
    """The first of the bins that each bin asks, in plain integers."""
    donors: list[list[int]] = _stages(bins)[0].tolist()
    return donors


@cache
def _stages(bins: int) -> list[NDArray[np.intp]]:
    """The bins that each bin asks, stage by stage."""
    return [part.copy() for part in np.split(_donors(bins), _STAGES, axis=1)]


@cache
def _kept_bits(bins: int) -> NDArray[np.uint64]:
    """The one bit that is kept of each bin's minimum, shape (bins,)."""
    positions: NDArray[np.uint64] = np.arange(bins, dtype=np.uint64) % np.uint64(_BIT_POSITIONS)
    return np.uint64(1) << positions


def _donors(bins: int) -> NDArray[np.intp]:
    """The bins that each bin asks in turn, shape (bins, _ATTEMPTS); 2 MB for 256."""
    bin_numbers: NDArray[np.uint64] = np.arange(bins, dtype=np.uint64)
    attempts: NDArray[np.uint64] = np.arange(1, _ATTEMPTS + 1, dtype=np.uint64)
    asking = np.add.outer(bin_numbers * np.uint64(1024), attempts) * _GOLDEN
    return (mix64(asking) % np.uint64(bins)).astype(np.intp)
