"""What is true of a pair of pages: near-duplicates, strangers, or neither; by Jaccard similarity or by labels.

Only pairs of Jaccard >= 0.5 are listed; every pair that is not is a pair of strangers. A label of a person overrides
what the Jaccard similarity says.

    exact      Jaccard 1, or the same digest of the normalised text: any method finds them, so they stand apart
    positive   Jaccard >= 0.8, or labelled "duplicate"
    grey       Jaccard of 0.5 to 0.8: not scored, people disagree about them
    negative   all other pairs of the set, listed or not; or labelled "different"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

POSITIVE_JACCARD = 0.8
GREY_JACCARD = 0.5
Pair = tuple[str, str]
_Value = TypeVar("_Value", float, bool)


class PairClass(IntEnum):
    """What a pair counts as."""

    NEGATIVE = 0
    GREY = 1
    POSITIVE = 2
    EXACT = 3


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """All pairs of pages that are not simply strangers: listed ones, and copies.

    Copies are all pairs of pages with one digest; they are never listed, for 20,000 pages of one text are 200 million
    pairs. Listed is, of those, only what a person has labelled different.

    Attributes:
        first, second: listed pairs by the numbers of their pages, shape (n,), first < second, in ascending order.
        jaccard: shape (n,); 0 for a pair known by its label alone.
        reading: values of `PairClass`, shape (n,).
        digest: number of each page's digest among the distinct ones, shape (pages,).
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    reading: NDArray[np.int8]
    digest: NDArray[np.int64]

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Which of the listed pairs have one digest all the same: labelled different; shape (n,)."""
        equal: NDArray[np.bool_] = self.digest[self.first] == self.digest[self.second]
        return equal

    def readings_of(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int8]:
        """The reading of any pairs of pages, first < second; shape as theirs."""
        same = self.digest[first] == self.digest[second]
        unlisted = np.where(same, np.int8(PairClass.EXACT), np.int8(PairClass.NEGATIVE))
        if not len(self.first):
            return unlisted
        keys = self.first * len(self.digest) + self.second
        wanted = first * len(self.digest) + second
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, self.reading[at], unlisted)


@dataclass(frozen=True)
class Truth:
    """Pairs by the numbers of their pages, first < second, with their Jaccard similarity; and labels.

    Attributes:
        unknown_pairs, unknown_labels: how many of them name a page that is not in the set; they are left out.
    """

    pages: int
    jaccard: Mapping[tuple[int, int], float]
    labels: Mapping[tuple[int, int], bool]
    unknown_pairs: int = 0
    unknown_labels: int = 0

    def known(self, digests: Sequence[str]) -> KnownPairs:
        """The pairs with their readings, for pages of these digests."""
        digest = np.unique(digests, return_inverse=True)[1].astype(np.int64)
        listed = sorted(self.jaccard.keys() | self.labels.keys())
        pairs = [pair for pair in listed if digests[pair[0]] != digests[pair[1]] or self.labels.get(pair) is False]
        places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        jaccard = np.array([self.jaccard.get(pair, 0.0) for pair in pairs], dtype=float)
        readings = np.array([self._reading(pair) for pair in pairs], dtype=np.int8)
        return KnownPairs(places[:, 0], places[:, 1], jaccard, readings, digest)

    def _reading(self, pair: tuple[int, int]) -> PairClass:
        """Of a listed pair whose digests differ, or which is labelled."""
        label, jaccard = self.labels.get(pair), self.jaccard.get(pair, 0.0)
        if label is False:
            return PairClass.NEGATIVE
        if jaccard >= 1:
            return PairClass.EXACT
        if label or jaccard >= POSITIVE_JACCARD:
            return PairClass.POSITIVE
        return PairClass.GREY if jaccard >= GREY_JACCARD else PairClass.NEGATIVE


def make_truth(ids: Sequence[str], pairs: Mapping[Pair, float], labels: Mapping[Pair, bool] | None = None) -> Truth:
    """The truth about the pages called `ids`.

    Args:
        pairs: Jaccard similarity by the two pages' ids, in either order.
        labels: True for duplicates, False for different ones.
    """
    number = {name: at for at, name in enumerate(ids)}
    labels = labels or {}
    unknown = [sum(a not in number or b not in number for a, b in given) for given in (pairs, labels)]
    return Truth(len(ids), dict(_numbered(pairs, number)), dict(_numbered(labels, number)), *unknown)


def _numbered(pairs: Mapping[Pair, _Value], number: Mapping[str, int]) -> Iterable[tuple[tuple[int, int], _Value]]:
    for (a, b), value in pairs.items():
        if a in number and b in number and a != b:
            first, second = sorted((number[a], number[b]))
            yield (first, second), value
