"""What operators do with an index: the calls that one on a primary and one on a cluster have alike.

`Operations` looks at an index and forgets pages of it, while workers go on. A `Store` is an index that is being filled
with rows; no worker is let in before it is released. Only the two Protocols live here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from simhash.index.findings import Findings
from simhash.index.interface import Partition
from simhash.index.layout import Layout
from simhash.index.rows import RecordRow
from simhash.index.statistics import Statistics
from simhash.index.takedowns import Found


class Moment(NamedTuple):
    """An index's counters and journals, read in one step; each journal with its mark, as it is stored."""

    seq: int
    documents: int
    journals: Mapping[Partition, Mapping[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Gap:
    """So many numbers whose records are gone."""

    count: int


Step = RecordRow | Gap
"""The next numbers: a record, or none."""


class Holding(Protocol):
    """What holds records."""

    @property
    def layout(self) -> Layout:
        """The bytes of records, journals and names."""

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
        """The records under a fingerprint, or under a digest where there is none, that have one of these URLs."""

    def take_down(self, found: Sequence[Found]) -> int:
        """Remove these records with all that leads to them; how many were there."""


class Operations(Holding, Protocol):
    """See the module. All raise IndexFault."""

    @property
    def generation(self) -> str:
        """What the index says of itself."""

    def moment(self) -> Moment:
        """The state of one moment."""

    def records(self, last: int) -> Iterator[Found]:
        """Every record in rising order of its number, up to `last`."""

    def check(self, on_progress: Callable[[Findings], None]) -> Findings:
        """All that is wrong with the index, and how much was looked at.

        Args:
            on_progress: is told now and then what was found so far.
        """

    def statistics(self, sample: int, random: Random) -> Statistics:
        """What the index is like, from `sample` buckets of each table, band and so on."""


class Store(Holding, Protocol):
    """See the module. All raise IndexFault."""

    @property
    def stored(self) -> int:
        """The last number that an earlier run stored; 0: none."""

    def begin(self, seq: int) -> None:
        """Nothing is stored yet: number from here on."""

    def store(self, steps: Sequence[Step]) -> None:
        """Store the next numbers; all of them, or none."""

    def set_mark(self, partition: Partition, offset: int) -> None:
        """What stands before this offset is answered."""

    def set_journal(self, partition: Partition, offset: int, value: bytes) -> None:
        """An observation and its answer."""

    def give_out(self, seq: int) -> None:
        """Nothing is stored at all: this was the last number given all the same."""

    def believe_earlier(self, before_ms: int, seq: int) -> None:
        """Receipts of histories that began by then, and that the index does not know, hold up to this number."""

    def release(self, generation: str) -> int:
        """Give the index to the workers; how many records it has."""
