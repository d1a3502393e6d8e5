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


class Reading(IntEnum):
    """What a pair counts as."""

    NEGATIVE = 0
    GREY = 1
    POSITIVE = 2
    EXACT = 3


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """All pairs of `pages` pages that are not simply strangers, in ascending order of `first * pages + second`.

    Attributes:
        first, second: numbers of pages, shape (n,), first < second.
        jaccard: shape (n,); 0 for a pair known by its label alone.
        reading: values of `Reading`, shape (n,).
    """

    pages: int
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    reading: NDArray[np.int8]

    def readings_of(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int8]:
        """The reading of any pairs, first < second; shape as theirs."""
        if not len(self.first):
            return np.full(len(first), Reading.NEGATIVE, dtype=np.int8)
        keys = self.first * self.pages + self.second
        wanted = first * self.pages + second
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, self.reading[at], np.int8(Reading.NEGATIVE))

    def among(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the known pairs are among those given; shape (n,)."""
        return np.isin(self.first * self.pages + self.second, first * self.pages + second)


@dataclass(frozen=True)
class Truth:
    """Pairs by the numbers of their pages, first < second, with their Jaccard similarity; and labels.

    Attributes:
        unknown: how many listed or labelled pairs name a page that is not in the set; they are left out.
    """

    pages: int
    jaccard: Mapping[tuple[int, int], float]
    labels: Mapping[tuple[int, int], bool]
    unknown: int

    def known(self, digests: Sequence[str]) -> KnownPairs:
        """The pairs with their readings, for pages of these digests."""
        exact = set(_copies(digests))
        pairs = sorted(exact | self.jaccard.keys() | self.labels.keys())
        places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        readings = [self._reading(pair, pair in exact) for pair in pairs]
        jaccard = [1.0 if pair in exact else self.jaccard.get(pair, 0.0) for pair in pairs]
        return KnownPairs(
            self.pages, places[:, 0], places[:, 1], np.array(jaccard, dtype=float), np.array(readings, dtype=np.int8)
        )

    def _reading(self, pair: tuple[int, int], same_digest: bool) -> Reading:
        label, jaccard = self.labels.get(pair), self.jaccard.get(pair, 0.0)
        if label is False:
            return Reading.NEGATIVE
        if same_digest or jaccard >= 1:
            return Reading.EXACT
        if label or jaccard >= POSITIVE_JACCARD:
            return Reading.POSITIVE
        return Reading.GREY if jaccard >= GREY_JACCARD else Reading.NEGATIVE


def make_truth(ids: Sequence[str], pairs: Mapping[Pair, float], labels: Mapping[Pair, bool] | None = None) -> Truth:
    """The truth about the pages called `ids`.

    Args:
        pairs: Jaccard similarity by the two pages' ids, in either order.
        labels: True for duplicates, False for different ones.
    """
    number = {name: at for at, name in enumerate(ids)}
    labels = labels or {}
    unknown = sum(a not in number or b not in number for given in (pairs, labels) for a, b in given)
    return Truth(len(ids), dict(_numbered(pairs, number)), dict(_numbered(labels, number)), unknown)


def _numbered(pairs: Mapping[Pair, _Value], number: Mapping[str, int]) -> Iterable[tuple[tuple[int, int], _Value]]:
    for (a, b), value in pairs.items():
        if a in number and b in number and a != b:
            first, second = sorted((number[a], number[b]))
            yield (first, second), value


def _copies(digests: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Every pair of pages with the same digest."""
    members: dict[str, list[int]] = {}
    for number, digest in enumerate(digests):
        earlier = members.setdefault(digest, [])
        yield from ((other, number) for other in earlier)
        earlier.append(number)
