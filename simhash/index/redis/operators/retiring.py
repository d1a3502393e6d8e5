"""The oldest pages of an index, on their way into its archive on disk, while workers go on.

    choose    the oldest records that pass the age or the count
    build     a segment of them, beside the others; they stay in the index
    keep      the archive's next moment, as a file: what it held, and this segment
    move      one step: the index names that moment, and the number up to which all is archived
    forget    the script removes records up to that number, two for each page that is judged

Before the move every page is judged by the moment before and the index, after it by the new one; a call that was made
beside another moment is refused. All records are in one of the two, always: what is forgotten lies in the moment that
the index names. So a kill between any two steps leaves files that nobody names, and no more. A Redis that loses its
last seconds names an earlier moment, and has lost the forgetting with it: Redis loses the end of what it was told,
never the middle. Two programs that do this at the same time build both, and one of them moves the index.

A record that is taken down while it is on its way must not come back: the move is refused when anything was removed out
of turn since it was looked what was, and then it is looked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from simhash.archive import Portion
from simhash.archive.segments import contents as moments
from simhash.archive.segments.contents import Contents
from simhash.errors import IndexMismatch
from simhash.index.base import moved
from simhash.index.interface import Record, Retention
from simhash.index.redis.faults import translated
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.operators.walking import Numbered, readable, stretch, walk

BATCH_RECORDS = 2000
TRIES = 100
"""Each try loses against somebody who has moved the index on: so many in a row mean that something is wrong."""


class Due(NamedTuple):
    """What is to go: from number `first` on so many records as there are `over`, those up to number `aged`, and all
    that follow and were inserted before `oldest_ms`.

    Times ascend with numbers, or nearly: a server's clock may be set back, and a rebuild stores pages as their
    partitions have them. So where the record of `aged` is old enough, those before it go with it.
    """

    first: int
    over: int
    aged: int
    oldest_ms: int


class _State(NamedTuple):
    """Of one moment: the archive's generation, up to which number it has all, how many records were removed out of
    turn, ever, and how many there are."""

    base: str
    archived: int
    removed: int
    documents: int


@dataclass(frozen=True)
class Retiring:
    """An index and the archive that it is judged beside.

    Attributes:
        directory: where the archive lies.

    Raises (all methods): IndexFault; TableFault and OSError where files cannot be used.
    """

    index: RedisIndex
    directory: Path

    def contents(self) -> Contents:
        """The moment that the index names."""
        return moments.read(self.directory, self._state().base)

    def now_ms(self) -> int:
        """The server's clock, by which records are inserted."""
        with translated():
            seconds, micros = self.index.inside.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    # Choose ----------------------------------------------------------------------------------------------------------

    def due(self, retention: Retention, now_ms: int, least: int) -> Due | None:
        """The oldest records that pass the age or the count; None: they are fewer than `least`."""
        state = self._state()
        first = state.archived + 1
        over = self._beyond_count(state, retention.max_documents)
        oldest_ms = 0 if retention.max_age_ms is None else now_ms - retention.max_age_ms
        is_aged = self._is_over(first + least - 1, oldest_ms)
        if over < least and not is_aged:
            return None
        return Due(first, over, first + least - 1 if is_aged else 0, oldest_ms)

    def _beyond_count(self, state: _State, most: int | None) -> int:
        """How many records more than so many are not archived."""
        if most is None:
            return 0
        return max(0, state.documents - self._still_here(state) - most)

    def still_here(self) -> int:
        """How many records the archive has that Redis has not forgotten yet."""
        return self._still_here(self._state())

    def _still_here(self, state: _State) -> int:
        inside = self.index.inside
        with translated():
            first = stretch(inside, 0, 1).first
            gaps: int = inside.client.zcount(inside.layout.tombstones, "-inf", state.archived)
        return max(0, state.archived - first + 1 - gaps)

    def _is_over(self, number: int, oldest_ms: int) -> bool:
        """Whether the first record from this number on was inserted before a time."""
        found = next((entry.record for entry in self.entries(number) if entry.record), None)
        return found is not None and found.inserted_ms < oldest_ms

    def entries(self, first: int, last: int | None = None) -> Iterator[Numbered]:
        """What is there from one number to another (None: the last one given).

        Raises:
            IndexDamaged: a record cannot be read.
        """
        with translated():
            for part in walk(self.index.inside, first, last):
                yield from readable(part.entries)

    # Move ------------------------------------------------------------------------------------------------------------

    def gone(self, first: int, last: int) -> set[int]:
        """The numbers, of these, whose records were removed out of turn, and which are not forgotten yet.

        Raises:
            IndexMigrated: these are another generation's by now, and this one's may be removed already.
        """
        inside = self.index.inside
        with translated():
            found = set(map(int, inside.client.zrangebyscore(inside.layout.tombstones, first, last)))
            stretch(inside, 0, 1)  # the script looks only at the generation that this index was opened with
        return found

    def move(self, edit: Callable[[Contents], Contents | None]) -> Contents | None:
        """Move the index to the archive's next moment.

        Args:
            edit: makes it of the present one; None: there is nothing to do any more. It is asked again when the index
                was moved by others, or a record was removed out of turn, since it was asked.

        Returns:
            The new moment; None: `edit` gave none.
        """
        for _ in range(TRIES):
            state = self._state()
            before = moments.read(self.directory, state.base)
            after = edit(before)
            if after is None:
                return None
            moments.write(self.directory, after)
            moments.touch(self.directory, before)
            if self._moved(state, after) == after.generation:
                return after
        raise IndexMismatch(f"the index was moved on by others {TRIES} times in a row, or loses records all the time")

    def _moved(self, state: _State, after: Contents) -> str:
        inside = self.index.inside
        with translated():
            return moved(inside.client, inside.layout.meta, state.base, after.generation, after.archived, state.removed)

    def _state(self) -> _State:
        inside = self.index.inside
        fields = ("base", "archived", "removed", "documents")
        with translated():
            base, archived, *counts = inside.client.hmget(inside.layout.meta, *fields)
        if archived is None:
            raise IndexMismatch(
                f"index {inside.layout.name!r} has no archive: run its workers with the setting `archive`"
            )
        return _State(base.decode(), int(archived), *(int(count or 0) for count in counts))


@dataclass
class Leaving:
    """What is due, as a source of tables (`simhash.archive.EntrySource`), read once.

    Attributes:
        most: records at once.
        pages, last: how many there were, and up to which number none is left behind; known at the end.
        gaps: the numbers on the way whose records were removed before they could come; known at the end.
    """

    retiring: Retiring
    due: Due
    most: int
    pages: int = 0
    last: int = 0
    gaps: set[int] = field(default_factory=set)

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`; an item is a record.

        Raises:
            ValueError: of an index that has changed since, no unfinished build can be gone on with.
        """
        if skip:
            raise ValueError("records on their way to the archive are read once")
        self.last = self.due.first - 1
        coming = self._records()
        while some := list(islice(coming, BATCH_RECORDS)):
            yield Portion(len(some), records=some)

    def _records(self) -> Iterator[tuple[int | None, Record]]:
        for entry in self.retiring.entries(self.due.first):
            if entry.record is not None:
                due = self.due
                is_due = self.pages < due.over or entry.seq <= due.aged or entry.record.inserted_ms < due.oldest_ms
                if self.pages == self.most or not is_due:
                    return
                self.pages += 1
                yield entry.fingerprint, entry.record
            else:
                self.gaps.add(entry.seq)
            self.last = entry.seq
