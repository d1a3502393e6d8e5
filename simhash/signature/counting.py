"""What adds up while a text is read piece by piece: counts of feature hashes, n-grams of tokens, the digest.

Only what is distinct is kept, so memory follows what a page says and not how often it says it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.features.shingles import distinct, gram_hashes
from simhash.signature.fingerprint import Counts
from simhash.signature.minhash import MinHashSketch

MERGE_AT = 1 << 18
"""Rows that may wait for merging (2 MB of 64-bit hashes)."""
RANGES = 64
"""A text of millions of different features has them in so many ranges of hashes, of which one is merged after the
other: a page's memory is what it keeps, 9 bytes a feature where counts are capped, and not twice that."""
_MOST_IN_A_BYTE = 127
"""Two such counts add up within a byte."""


class HashCounts:
    """Counts of hashes of shape (n,) or (n, words). Equal hashes are one feature.

    Args:
        cap: counts beyond it need not be told apart; None: all are.
    """

    def __init__(self, cap: int | None = None) -> None:
        self.total = 0
        self._small = cap is not None and cap <= _MOST_IN_A_BYTE
        self._kept: list[Counted] = []
        self._waiting: list[NDArray[np.uint64]] = []
        self._rows = 0

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Count each of these once more."""
        if not len(hashes):
            return
        self._waiting.append(hashes)
        self._rows += len(hashes)
        self.total += len(hashes)
        if self._rows > MERGE_AT:
            self.counted()

    def counted(self) -> list[Counted]:
        """Distinct hashes and how often each was added, in one part or more; nothing at all where nothing was added.

        Counts are what they are up to the cap; above, some number from the cap on.
        """
        if self._waiting:
            rows = np.concatenate(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
            self._waiting, self._rows = [], 0
            fresh = counts_of(rows)
            if self._kept:
                self._merge(fresh)
            else:
                self._kept = [fresh]
        return self._kept

    def _merge(self, fresh: Counted) -> None:
        if fresh[0].ndim > 1:
            self._kept = [_summed_rows(self._kept[0], fresh)]
            return
        if len(self._kept) == 1:
            self._kept = [self._shrunk(part) for part in _in_ranges(self._kept[0])]
        for number, (each, more) in enumerate(zip(self._kept, _in_ranges(fresh), strict=True)):
            self._kept[number] = self._shrunk(_merged(each, self._shrunk(more)))

    def _shrunk(self, counted: Counted) -> Counted:
        hashes, counts = counted
        if self._small:
            return hashes, np.minimum(counts, _MOST_IN_A_BYTE).astype(np.uint8)
        return hashes, counts.astype(np.int32)


Counted = tuple[NDArray[np.uint64], Counts]
"""Distinct hashes, ascending, and how often each occurs."""


def _in_ranges(counted: Counted) -> list[Counted]:
    """The same in RANGES parts by the leading bits."""
    hashes, counts = counted
    begins = np.arange(1, RANGES, dtype=np.uint64) << np.uint64(64 - RANGES.bit_length() + 1)
    places = [0, *np.searchsorted(hashes, begins).tolist(), len(hashes)]
    return [(hashes[a:b].copy(), counts[a:b].copy()) for a, b in pairwise(places)]


def counts_of(hashes: NDArray[np.uint64]) -> Counted:
    """Count hashes of shape (n,) or (n, words), n being 1 at least."""
    if hashes.ndim > 1:
        unique, counts = np.unique(hashes, return_counts=True, axis=0)
        return unique, counts
    ordered = np.sort(hashes)
    edge = np.empty(len(ordered) + 1, dtype=bool)
    edge[0] = edge[-1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=edge[1:-1])
    bounds = edge.nonzero()[0]
    return ordered.take(bounds[:-1]), bounds[1:] - bounds[:-1]


def _summed_rows(a: Counted, b: Counted) -> Counted:
    """Both together, of hashes of several words."""
    unique, where = np.unique(np.concatenate((a[0], b[0])), return_inverse=True, axis=0)
    counts = np.zeros(len(unique), dtype=np.int64)
    np.add.at(counts, where.reshape(-1), np.concatenate((a[1], b[1])))
    return unique, counts


def _merged(a: Counted, b: Counted) -> Counted:
    """The same of hashes of one word, in a third of the memory, for a page may have millions; may change `a`."""
    (hashes, counts), (others, more) = a, b
    if not len(hashes) or not len(others):
        return b if len(others) else a
    places = np.searchsorted(hashes, others)
    known = hashes.take(places, mode="clip") == others
    counts[places[known]] += more[known]
    new = ~known
    places = places[new]
    return np.insert(hashes, places, others[new]), cast("Counts", np.insert(counts, places, more[new]))


class GramSet:
    """The distinct n-grams of a text's hashed tokens, over the seams of pieces."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._grams: list[NDArray[np.uint64]] = []
        self._waiting = 0
        self._last = np.empty(0, dtype=np.uint64)

    def add(self, tokens: NDArray[np.uint64]) -> None:
        """Go on with these tokens."""
        if len(self._last):
            tokens = np.concatenate((self._last, tokens))
        self._last = tokens[max(0, len(tokens) - self._n + 1) :]
        if len(tokens) < self._n:
            return
        grams = distinct(gram_hashes(tokens, self._n))
        self._grams.append(grams)
        self._waiting += len(grams)
        if self._waiting > max(MERGE_AT, 2 * len(self._grams[0])):
            self._merge()

    def hashes(self) -> NDArray[np.uint64]:
        """Distinct n-grams, ascending; of a text with fewer tokens the one shorter n-gram, if any."""
        if not self._grams:
            return gram_hashes(self._last, self._n)
        if len(self._grams) > 1:
            self._merge()
        return self._grams[0]

    def _merge(self) -> None:
        self._grams = [distinct(np.concatenate(self._grams))]
        self._waiting = len(self._grams[0])


class GramMinima:
    """The bin minima of a text's n-grams, for its MinHash sketch; the n-grams themselves are not kept."""

    def __init__(self, sketch: MinHashSketch) -> None:
        self._sketch = sketch
        self._minima = sketch.no_minima()
        self._last = np.empty(0, dtype=np.uint64)
        self._begun = False

    def add(self, tokens: NDArray[np.uint64]) -> None:
        """Go on with these tokens."""
        n = self._sketch.n
        tokens = np.concatenate((self._last, tokens)) if len(self._last) else tokens
        self._last = tokens[max(0, len(tokens) - n + 1) :]
        if len(tokens) >= n:
            self._take(tokens)
            self._begun = True

    def sketch(self) -> int | None:
        """The sketch; of a text with fewer than n tokens that of its one shorter n-gram; None without tokens."""
        if not self._begun and len(self._last):
            self._take(self._last)
        return self._sketch.of_minima(self._minima)

    def _take(self, tokens: NDArray[np.uint64]) -> None:
        self._sketch.lower(self._minima, gram_hashes(tokens, self._sketch.n))


class TextDigest:
    """xxh3_128 of a text with each run of white space as one space and none at its ends, in UTF-8."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()
        self._begun = False
        self._spaced = False

    def add(self, part: str) -> None:
        """Go on with this part of the text."""
        words = " ".join(part.split())
        if not words:
            self._spaced = self._spaced or bool(part)
            return
        if self._begun and (self._spaced or part[0].isspace()):
            self._state.update(b" ")
        self._state.update(words.encode())
        self._begun, self._spaced = True, part[-1].isspace()

    def hex(self) -> str | None:
        """32 hexadecimal digits; None if there was nothing but white space."""
        return self._state.hexdigest() if self._begun else None
