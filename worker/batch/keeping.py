"""What is kept of the pairs that the tables find: as much as the decision needs, in bounded memory.

A crawler's trap is many pages of which each matches each: of n pages n * n / 2 pairs, which nobody can keep or write.
So whoever looks for pairs says beforehand, by a keeper, which of them can still matter: others are not verified, and of
a crowd most are not even compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

NO = np.iinfo(np.uint32).max
JOIN_PAIRS = 1 << 18
"""Pairs that `Forest` gathers before it joins them: each time costs a pass over all labels."""


Part = tuple[Mask, Mask]
"""Some probes and some entries, all of which are to be compared."""


class Keeper(Protocol):
    """Says which pairs of a probe and an entry matter, and takes those that match; both ascend by age."""

    def parts(self, probes: Numbers, entries: Numbers) -> Iterator[Part]:
        """What of these is to be compared: a pair that is in no part does not matter."""

    def wanted(self, probes: Numbers, entries: Numbers) -> Mask:
        """Which pairs matter if they match."""

    def add(self, probes: Numbers, entries: Numbers) -> None:
        """These match; a pair may come again from another table, but not twice in one call."""


class Every:
    """Keeps all pairs: to compare them with brute force."""

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()

    def parts(self, probes: Numbers, entries: Numbers) -> Iterator[Part]:
        """See `Keeper`."""
        yield np.ones(len(probes), bool), np.ones(len(entries), bool)

    def wanted(self, probes: Numbers, entries: Numbers) -> Mask:
        """See `Keeper`."""
        return np.ones(len(probes), bool)

    def add(self, probes: Numbers, entries: Numbers) -> None:
        """See `Keeper`."""
        self.pairs.update(zip(probes.tolist(), entries.tolist(), strict=True))


class OldestProbe:
    """Keeps, for each entry, the first probe that matches it; who has one in a block wants none of the blocks after it.

    Args:
        entries: how many there are.
    """

    _BEFORE = 0
    """Older than any probe of this block."""

    def __init__(self, entries: int) -> None:
        self._best = np.full(entries, NO, np.uint32)
        self._touched: list[Numbers] = []

    def parts(self, probes: Numbers, entries: Numbers) -> Iterator[Part]:
        """See `Keeper`."""
        yield np.ones(len(probes), bool), self._best[entries] > probes[0]

    def wanted(self, probes: Numbers, entries: Numbers) -> Mask:
        """See `Keeper`."""
        return probes < self._best[entries]

    def add(self, probes: Numbers, entries: Numbers) -> None:
        """See `Keeper`."""
        np.minimum.at(self._best, entries, probes.astype(np.uint32))
        self._touched.append(np.unique(entries))

    def taken(self) -> tuple[Numbers, Numbers]:
        """The entries that were matched in this block, ascending, with their first probes; the next one follows."""
        entries = np.unique(np.concatenate([np.zeros(0, np.int64), *self._touched]))
        probes = self._best[entries].astype(np.int64)
        self._best[entries] = self._BEFORE
        self._touched = []
        return probes, entries

    def forget(self) -> None:
        """The next block may hold older probes than those before."""
        self._best.fill(NO)


class OldestEntries:
    """Keeps, for each probe, the first `most` entries before it that match it.

    Args:
        before: for each probe, the number of entries before it; shape (probes,).
    """

    def __init__(self, before: Numbers, most: int) -> None:
        self._before = before
        self._kept = np.full((len(before), most), NO, np.uint32)

    def _limit(self, probes: Numbers) -> Numbers:
        """For each probe, the first entry that it does not want."""
        limit: Numbers = np.minimum(self._kept[probes, -1], self._before[probes])
        return limit

    def parts(self, probes: Numbers, entries: Numbers) -> Iterator[Part]:
        """See `Keeper`."""
        yield self._limit(probes) > entries[0], np.ones(len(entries), bool)

    def wanted(self, probes: Numbers, entries: Numbers) -> Mask:
        """See `Keeper`."""
        return entries < self._limit(probes)

    def add(self, probes: Numbers, entries: Numbers) -> None:
        """See `Keeper`."""
        order = np.lexsort((entries, probes))
        probes, entries = probes[order], entries[order]
        touched, starts, counts = np.unique(probes, return_index=True, return_counts=True)
        most = self._kept.shape[1]
        rank = np.arange(len(probes)) - np.repeat(starts, counts)
        few = rank < most
        more = np.full((len(touched), min(most, int(counts.max()))), NO, np.uint32)
        more[np.repeat(np.arange(len(touched)), counts)[few], rank[few]] = entries[few]
        both = np.sort(np.concatenate([self._kept[touched], more], axis=1), axis=1)
        both[:, 1:][both[:, 1:] == both[:, :-1]] = NO  # from another table too
        self._kept[touched] = np.sort(both, axis=1)[:, :most]

    def taken(self) -> tuple[Numbers, Numbers, Mask]:
        """Probes, ascending, with their entries, ascending, and whether there may be others behind this one."""
        probes, ranks = np.nonzero(self._kept != NO)
        return probes, self._kept[probes, ranks].astype(np.int64), ranks == self._kept.shape[1] - 1


class Forest:
    """Keeps no more pairs than it takes to connect what is connected.

    Args:
        probes, entries: their own numbers among all `count`.
    """

    def __init__(self, probes: Numbers, entries: Numbers, count: int) -> None:
        self._probes = probes
        self._entries = entries
        self._labels = np.arange(count)
        self._ends: list[tuple[Numbers, Numbers]] = []

    def parts(self, probes: Numbers, entries: Numbers) -> Iterator[Part]:
        """See `Keeper`; most of a crowd are in one component, and need not be compared with each other."""
        self._join()
        own, theirs = self._labels[self._probes[probes]], self._labels[self._entries[entries]]
        labels, counts = np.unique(theirs, return_counts=True)
        inside, others = own == labels[counts.argmax()], theirs != labels[counts.argmax()]
        yield inside, others
        yield ~inside, np.ones(len(entries), bool)

    def wanted(self, probes: Numbers, entries: Numbers) -> Mask:
        """See `Keeper`."""
        apart: Mask = self._labels[self._probes[probes]] != self._labels[self._entries[entries]]
        return apart

    def add(self, probes: Numbers, entries: Numbers) -> None:
        """See `Keeper`."""
        self._ends.append((self._probes[probes], self._entries[entries]))
        if sum(len(ones) for ones, _ in self._ends) >= JOIN_PAIRS:
            self._join()

    def taken(self) -> tuple[Numbers, Numbers]:
        """The ends of the edges of a forest with the same components: numbers, and lower ones."""
        self._join()
        later = np.flatnonzero(self._labels != np.arange(len(self._labels)))
        return later, self._labels[later]

    def _join(self) -> None:
        if not self._ends:
            return
        ends = np.concatenate([np.array(each) for each in self._ends], axis=1)
        self._ends = []
        labels = self._labels
        while True:
            low, high = np.sort(labels[ends], axis=0)
            apart = low != high
            if not apart.any():
                return
            ends = ends[:, apart]
            np.minimum.at(labels, high[apart], low[apart])
            while (labels[labels] != labels).any():
                labels[:] = labels[labels]
