"""What operators do with an index, while workers go on: look at it, check it, accept it as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple

from simhash.index.interface import Partition
from simhash.index.redis.epochs import watermark_in
from simhash.index.redis.faults import translated
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.layout import Layout
from simhash.index.redis.operators.check import check
from simhash.index.redis.operators.check_findings import CheckFindings
from simhash.index.redis.operators.filling import passed_over
from simhash.index.redis.operators.kept_versions import Kept, all_versions, bits_there
from simhash.index.redis.operators.statistics import Statistics, statistics
from simhash.index.redis.operators.takedowns import Found
from simhash.index.redis.operators.walking import readable, walk


class Moment(NamedTuple):
    """An index's counters and journals, read in one step; each journal with its mark, as it is stored."""

    seq: int
    documents: int
    journals: Mapping[Partition, Mapping[bytes, bytes]]


class Operations:
    """See the module. All raise IndexFault.

    Attributes:
        layout: the bytes of records, journals and names.
        generation: what the index says of itself.
    """

    def __init__(self, index: RedisIndex) -> None:
        self._index = index
        self._inside = index.inside
        self._client = index.inside.client
        self.layout: Layout = index.inside.layout
        self.generation = index.inside.generation

    def moment(self) -> Moment:
        """The state of one moment."""
        partitions = list(self._index.partitions())
        asked: list[tuple[str, ...]] = [("HMGET", self.layout.meta, "seq", "documents")]
        asked += [("HGETALL", self.layout.journal(partition)) for partition in partitions]
        with translated():
            (seq, documents), *journals = self._inside.at_once(asked)
        found = (dict(zip(fields[::2], fields[1::2], strict=True)) for fields in journals)
        return Moment(int(seq), int(documents), dict(zip(partitions, found, strict=True)))

    def records(self, last: int) -> Iterator[Found]:
        """Every record in rising order of its number, up to `last`."""
        with translated():
            for part in walk(self._inside, last=last):
                for entry in readable(part.entries):
                    if entry.record and entry.seq <= last:
                        yield Found(entry.fingerprint, entry.record)

    def version_bits(self) -> int | None:
        """Of the buckets of versions; None: none were ever kept."""
        with translated():
            return bits_there(self._inside)

    def versions(self) -> Iterator[Kept]:
        """What is kept of each URL's last page, in no order."""
        with translated():
            yield from all_versions(self._inside)

    def check(self, on_progress: Callable[[CheckFindings], None]) -> CheckFindings:
        """All that is wrong with the index, and how much was looked at.

        Args:
            on_progress: is told now and then what was found so far.
        """
        with translated():
            return check(self._inside, on_progress)

    def accept(self, watermarks: Iterable[str]) -> int:
        """The index is right as it is, though it may lack pages that were committed with these watermarks. It gives no
        number of theirs to another page; how many it has lost.

        The numbers first: an index that is right by its word is worked on at once.
        """
        told = max((each.seq for each in map(watermark_in, watermarks) if each), default=0)
        with translated():
            lost = passed_over(self._inside, told)
        self._index.accept()
        return lost

    def statistics(self, sample: int | None, random: Random) -> Statistics:
        """What the index is like, from `sample` buckets of each table, band and so on (None: all, if they are few)."""
        with translated():
            return statistics(self._inside, list(self._index.partitions()), sample, random)
