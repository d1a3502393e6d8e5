"""What retention and takedowns excuse: a page that the index had forgotten cannot be matched.

When a page was judged is not in its verdict; how far the numbers were by then is known at most: less than the next
unique page's of the same partition. Wherever that leaves a doubt, the index is given the benefit of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worker.verifying.told import ToldTakedown
from worker.verifying.verdict_columns import OFFSET_BITS, Flags, Numbers, Verdicts

SLACK_MS = 60_000
"""A page is stored before its verdict is written: by so much, at most, its age may be more than the topic says."""
OPEN = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Forgetting:
    """What the index was told to forget; None: nothing.

    Attributes:
        removed: beginnings of observations that were taken down, 64 bits each.
    """

    max_age_ms: int | None = None
    max_documents: int | None = None
    removed: frozenset[int] = frozenset()

    @classmethod
    def of(cls, max_age: float | None, max_documents: int | None, takedowns: Sequence[ToldTakedown]) -> Forgetting:
        """From the settings (seconds) and what operators took down."""
        age = None if max_age is None else int(max_age * 1000)
        return cls(age, max_documents, frozenset(int(each.observation[:16], 16) for each in takedowns))

    def taken_down(self, observation: np.ndarray) -> Flags:
        """Which of these pages an operator removed."""
        return np.isin(observation, np.fromiter(self.removed, dtype=np.uint64, count=len(self.removed)))

    def may_have_gone(self, verdicts: Verdicts, former: Numbers, page: Numbers, before: Numbers) -> Flags:
        """Whether rows `former` may have been forgotten when rows `page` were judged.

        Args:
            before: for each verdict a number that was not given yet when it was judged (see `numbers_before`).
        """
        gone = np.zeros(len(former), dtype=np.bool_)
        if self.max_documents is not None:
            gone |= before[page] - verdicts.seq[former] >= self.max_documents
        if self.max_age_ms is not None:
            written = verdicts.written_ms
            age = written[page] - written[former]
            gone |= (age >= self.max_age_ms - SLACK_MS) | (written[former] == 0) | (written[page] == 0)
        return gone

    def may_be_gone(self, verdicts: Verdicts, rows: Numbers) -> Flags:
        """Whether these pages may be forgotten by now."""
        gone = self.taken_down(verdicts.observation[rows])
        if self.max_age_ms is not None:  # by now: nobody knows how long ago the last verdict was
            gone |= True
        if self.max_documents is not None and len(rows):
            gone |= verdicts.seq[rows] <= verdicts.seq[verdicts.unique].max() - self.max_documents
        return gone


def numbers_before(verdicts: Verdicts) -> Numbers:
    """For each verdict the least number that was surely not given yet when its page was judged.

    The pages of a partition are judged in their order, so that is the number of the next unique page there (a unique
    page's own); `OPEN` where none follows. Not of one that has a smaller number than a page before it: a rebuild gives
    that to a page that was named by a duplicate and had no verdict yet.
    """
    order = np.argsort(verdicts.record, kind="stable")
    unique, seq = verdicts.unique[order], verdicts.seq[order]
    named = np.isin(seq, seq[~unique])
    number = np.where(unique, seq, OPEN)
    partition = (verdicts.record >> OFFSET_BITS)[order]
    ends = np.flatnonzero(np.diff(partition, append=-1))
    found = np.full(len(order), OPEN)
    begin = 0
    for end in (ends + 1).tolist():
        largest = np.maximum.accumulate(np.where(unique[begin:end], seq[begin:end], 0))
        number[begin:end][named[begin:end] & (seq[begin:end] < largest)] = OPEN
        found[begin:end] = np.minimum.accumulate(number[begin:end][::-1])[::-1]
        begin = end
    before = np.empty_like(found)
    before[order] = found
    return before
