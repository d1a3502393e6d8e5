"""The decision: from matches and pairs to one answer a page, the same as judging the pages one after another.

A page is a duplicate of the oldest existing page that it matches; else of the first *survivor* among the new pages
before it, in the order of preference, that it matches; else it is unique and a survivor itself. Connected components
would be wrong: of A, B and C where A matches B and B matches C but A does not match C, the stream calls A and C unique.
Pairs come sorted by their later group, so one pass decides, with a few bytes a page in memory, however many pairs there
are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from worker.batch.signature_groups import Groups

Numbers = NDArray[np.int64]
NONE = -1
UNDECIDED, SURVIVES, DEAD = 0, 1, 2


@dataclass(frozen=True)
class Existing:
    """What of the existing pages matched.

    Attributes:
        rows: existing pages, as `tasks.MATCHES` has them, each with its number as `seq`.
        of_group: each group's oldest match, a row, or NONE; shape (groups,).
        distance: of that match, shape (groups,).
        own: the row that is this new page, read before, or NONE; shape (pages,).
        last_seq: the highest number among all existing pages.
        pages: how many there are.
    """

    rows: pa.Table
    of_group: Numbers
    distance: NDArray[np.uint8]
    own: Numbers
    last_seq: int
    pages: int


@dataclass(frozen=True)
class Decisions:
    """One answer a page, shapes (pages,).

    Attributes:
        seq: the number of a unique page; 0: it is a duplicate.
        page: the new page that a duplicate matches, or NONE.
        row: the existing page, a row, that a duplicate matches, or NONE.
        distance: to the match, in bits.
    """

    seq: Numbers
    page: Numbers
    row: Numbers
    distance: NDArray[np.uint8]

    def copies(self) -> Numbers:
        """How many of the new pages match each, shape (pages,)."""
        return np.bincount(self.page[self.page != NONE], minlength=len(self.page))


class Greedy:
    """The greedy choice among groups with a signature, from pairs that may be too few at first.

    Of a group that matches many before it only the oldest are listed. If all of these turn out to be duplicates, and
    there may be others behind them, the group stays undecided, and so do those that depend on it. Asked again, with
    pairs from which duplicates are left out, at least the first of these is decided.

    Attributes:
        match: each group's oldest surviving match, or NONE, shape (groups,).
        distance: of that match, shape (groups,).
    """

    def __init__(self, is_open: NDArray[np.bool_]) -> None:
        self.match = np.full(len(is_open), NONE, np.int64)
        self.distance = np.zeros(len(is_open), np.uint8)
        self._state = np.where(is_open, UNDECIDED, DEAD).astype(np.uint8)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """The groups that are not decided, shape (groups,)."""
        found: NDArray[np.bool_] = self._state == UNDECIDED
        return found

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """The groups that are, or may become, survivors, shape (groups,)."""
        found: NDArray[np.bool_] = self._state != DEAD
        return found

    def settle(self, pairs: Iterable[pa.Table]) -> None:
        """Decide what can be.

        Args:
            pairs: tables as `pairing.PAIRS` has them, of undecided groups with candidates, sorted over all of them.
        """
        # Who has no pair survives; an undecided group is met as later one before it is met as earlier one.
        state = bytearray(np.where(self.undecided, SURVIVES, self._state).astype(np.uint8).tobytes())
        settled = -1
        for table in pairs:
            columns = (table[name].to_pylist() for name in ("later", "earlier", "distance", "more"))
            for later, earlier, apart, more in zip(*columns, strict=True):
                if later == settled:
                    continue
                if state[earlier] == SURVIVES:
                    state[later] = DEAD
                    self.match[later], self.distance[later] = earlier, apart
                elif more or state[earlier] == UNDECIDED:
                    state[later] = UNDECIDED
                else:
                    continue
                settled = later
        self._state = np.frombuffer(state, np.uint8)


def open_groups(groups: Groups, existing: Existing) -> NDArray[np.bool_]:
    """The groups with a signature that no existing page decides."""
    is_open: NDArray[np.bool_] = existing.of_group[: groups.signed] == NONE
    return is_open


def decide(groups: Groups, existing: Existing, kept: Greedy) -> Decisions:
    """All answers."""
    group = groups.group
    match = np.full(len(groups.first), NONE, np.int64)
    match[: groups.signed] = kept.match
    apart = np.zeros(len(groups.first), np.uint8)
    apart[: groups.signed] = kept.distance

    known = existing.of_group[group] != NONE
    merged = ~known & (match[group] != NONE)
    own = existing.own != NONE
    unique = own | (~known & ~merged & (groups.first[group] == np.arange(len(group))))

    row = np.where(known & ~unique, existing.of_group[group], NONE)
    target = groups.first[np.where(merged, match[group], group)]
    page = np.where(~known & ~unique, target, NONE)
    distance = np.where(known, existing.distance[group], np.where(merged, apart[group], 0))

    seq = np.zeros(len(group), np.int64)
    fresh = unique & ~own
    seq[fresh] = existing.last_seq + 1 + np.arange(fresh.sum())
    if own.any():
        seq[own] = np.asarray(existing.rows["seq"].to_numpy(), np.int64)[existing.own[own]]
    return Decisions(seq, page, row, distance.astype(np.uint8))
