"""MinHash of a text's shingles: the verifier that estimates Jaccard similarity, and the band keys beside it.

The gate (a simhash) is a sieve: it finds candidates and lets strangers through. The verifier tells them apart. It is a
one-permutation MinHash of the set of token n-grams (Li, Owen, Zhang, "One Permutation Hashing", NIPS 2012) of which
one bit a bin is kept (Li and Koenig, "b-Bit Minwise Hashing", WWW 2010), empty bins borrowing from others by hashing
(Shrivastava, "Optimal Densification for Fast and Accurate Minwise Hashing", ICML 2017). Such a bit differs with
probability (1 - J) / 2. Where pages are alike that is seldom, and a bit that seldom differs tells little: so the
exclusive or of several may be kept in the place of each ("Combining bits", Li and Koenig, section 5). Of `fold` bits it
differs with probability (1 - J ** fold) / 2: at 344 bits of 2, pages of Jaccard 0.8 are 61.9 bits apart on average,
strangers 172.

A band key is a hash of `rows` minima (Broder 1997; banding: Indyk and Motwani 1998): two texts share it with about
probability J ** rows, wherever their gates differ.

Exact recipe, all arithmetic modulo 2**64, with `gram_hashes` of `shingles` as g, and m the least power of two that is
not below bins * fold:

    bin  = g >> (64 - log2(m))            value = the bits below           minimum of the values in each bin
    an empty bin s takes the minimum of bin mix64((1024 s + a) * GOLDEN) mod m, for the first a = 1, 2, ... at which
    that bin was not empty to begin with; fold 1: 0 if there is no such a up to 1024; else, from a = 9 on, each 8 times
    it asks among an eighth as many bins, each the least of 8 of those before, and in the end the least of all
    verifier bit b (b = 0 is the most significant) = the exclusive or, over i = 0 to fold - 1 and with s = bins * i + b,
    of bit ((s + i) mod 32) of bin s's minimum, counted from the least
    group q = the least minimum of the next m / 32 bins, at least 8, before borrowing; 2**64 - 1 when all are empty
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
LEAST_GROUP, GROUPS = 8, 32
BINS = range(8, (1 << 16) + 1, 8)
COARSER = 8
"""So often an empty bin asks before it asks among so many times fewer: however short a page is, among a thousand bins
at most 40 times."""
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
        bins: bits of the verifier, a multiple of 8.
        bands: number of band keys.
        rows: groups of minima that make up one band key.
        fold: minima of which each bit of the verifier is made.
    """

    n: int = 5
    bins: int = 344
    bands: int = 6
    rows: int = 4
    fold: int = 2

    def __post_init__(self) -> None:
        if self.fold < 1 or self.bins not in BINS or self.bins * self.fold not in BINS:
            raise ProfileError(
                f"the bins of a sketch are a multiple of {BINS.step}, and with fold, 1 or more, multiplied at most"
                f" {BINS[-1]:,}: not {self.bins} with fold {self.fold}"
            )
        if not 1 <= self.n <= len(MULTIPLIERS) or not 1 <= self.rows <= len(MULTIPLIERS):
            raise ProfileError(f"shingles and rows are 1 to {len(MULTIPLIERS)}")
        if self.bands < 0:
            raise ProfileError(f"a sketch has 0 bands or more, not {self.bands}")
        if self.bands * self.rows > self.minima // self.group:
            raise ProfileError(f"{self.minima} minima have no {self.bands * self.rows} groups of {self.group}")

    @property
    def minima(self) -> int:
        """How many minima are taken: a power of two."""
        return 1 << (self.bins * self.fold - 1).bit_length()

    @property
    def group(self) -> int:
        """Bins of a group, of whose minima a band key takes the least."""
        return max(LEAST_GROUP, self.minima // GROUPS)

    @property
    def width(self) -> int:
        """Bits of the whole number: verifier and band keys."""
        return self.bins + BAND_BITS * self.bands

    def similarity(self, a: int, b: int) -> float:
        """Jaccard similarity of two sets, estimated from their sketches."""
        return self.similarity_at(((a ^ b) >> (BAND_BITS * self.bands)).bit_count(), self.bins)

    def similarity_at(self, different: int, of: int) -> float:
        """The same from how many of so many bits of two verifiers differ: (1 - 2 d / bins) ** (1 / fold), at least 0
        (Li and Koenig, WWW 2010, sections 4 and 5).

        With p = (1 - J ** fold) / 2 its standard deviation is about 2 sqrt(p (1 - p) / bins) / (fold J ** (fold - 1)):
        of 256 bins .037 at J = .8, of 344 with fold 2 .026.
        """
        return float(max(0.0, 1 - 2 * different / of) ** (1 / self.fold))

    def no_minima(self) -> NDArray[np.uint64]:
        """What `lower` begins with: EMPTY in each bin, shape (minima,)."""
        return np.full(self.minima, EMPTY)

    def lower(self, minima: NDArray[np.uint64], grams: NDArray[np.uint64]) -> None:
        """Take n-grams into the least value of each bin, in place."""
        shift = 64 - self.minima.bit_length() + 1
        np.minimum.at(minima, (grams >> np.uint64(shift)).view(np.int64), grams & np.uint64((1 << shift) - 1))

    def of_minima(self, minima: NDArray[np.uint64]) -> int | None:
        """The sketch; None when every bin is empty."""
        empty = (minima == EMPTY).nonzero()[0]
        if len(empty) == len(minima):
            return None
        full = (_densified if self.fold == 1 else _lent_by_all)(minima, empty[empty < self.bins * self.fold])
        kept = (full[: self.bins * self.fold] & _kept_bits(self.bins, self.fold)) != 0
        sketch = int.from_bytes(np.packbits(np.logical_xor.reduce(kept.reshape(self.fold, -1))).tobytes())
        for key in self._band_keys(minima):
            sketch = sketch << BAND_BITS | key
        return sketch

    def _band_keys(self, minima: NDArray[np.uint64]) -> Iterator[int]:
        """In plain integers: of a dozen numbers NumPy's calls would cost more than their work."""
        groups: list[int] = np.minimum.reduce(minima.reshape(-1, self.group), axis=1).tolist()
        for start in range(0, self.bands * self.rows, self.rows):
            least = groups[start : start + self.rows]
            key = mix64_of(sum(map(operator.mul, least, _MULTIPLIERS))) >> (64 - BAND_BITS)
            yield 0 if min(least) == _EMPTY else key


def _densified(minima: NDArray[np.uint64], empty: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The minima, with what these empty bins borrow; itself where there are none."""
    if not len(empty):
        return minima
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


def _lent_by_all(minima: NDArray[np.uint64], empty: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The minima, with what these empty bins borrow of bins, then of ever coarser ones."""
    out, lenders, step = minima.copy(), minima, 0
    while len(empty):
        asked = lenders.take(_asked(len(minima), len(lenders), step).take(empty, axis=0))
        out[empty] = asked[np.arange(len(empty)), (asked != EMPTY).argmax(axis=1)]
        empty = empty[out[empty] == EMPTY]
        lenders, step = np.minimum.reduce(lenders.reshape(-1, min(COARSER, len(lenders))), axis=1), step + 1
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
def _asked(bins: int, lenders: int, step: int) -> NDArray[np.intp]:
    """Whom of so many lenders each bin asks at this step, shape (bins, COARSER)."""
    return _donors(bins, range(COARSER * step + 1, COARSER * (step + 1) + 1), lenders)


@cache
def _stages(bins: int) -> list[NDArray[np.intp]]:
    """The bins that each bin asks, stage by stage."""
    return [part.copy() for part in np.split(_donors(bins, range(1, _ATTEMPTS + 1), bins), _STAGES, axis=1)]


@cache
def _kept_bits(bins: int, fold: int) -> NDArray[np.uint64]:
    """The one bit that is kept of each bin's minimum, shape (bins * fold,)."""
    positions = np.add.outer(np.arange(fold) * (bins + 1), np.arange(bins)).ravel() % _BIT_POSITIONS
    return np.uint64(1) << positions.astype(np.uint64)


def _donors(bins: int, attempts: range, lenders: int) -> NDArray[np.intp]:
    """The lenders that each bin asks in turn, shape (bins, attempts)."""
    first = np.arange(bins, dtype=np.uint64) * np.uint64(_ATTEMPTS)
    asking = np.add.outer(first, np.array(attempts, dtype=np.uint64)) * _GOLDEN
    return (mix64(asking) % np.uint64(lenders)).astype(np.intp)
