"""Batches in flight: records that were polled and are not yet committed, on their way through the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from simhash.index import Partition
from worker.fingerprinters import Outcome, Pending
from worker.records import Received, Source


class Item(NamedTuple):
    """A record, and what preparing it came to."""

    received: Received
    outcome: Outcome


@dataclass
class Batch:
    """Records of one poll, being prepared in order.

    Attributes:
        lost: partitions that became another worker's since. One that was lost and came back stays lost here: its
            records will be polled again.
    """

    received: Sequence[Received]
    pending: Pending
    lost: set[Partition] = field(default_factory=set)

    @cached_property
    def size(self) -> int:
        """Bytes of its records' values."""
        return sum(len(each.record.value or b"") for each in self.received)

    def items(self) -> list[Item]:
        """The records with their outcomes; only once `pending` is ready."""
        return list(map(Item, self.received, self.pending.results()))

    def owned(self, items: Iterable[Item]) -> list[Item]:
        """What belongs to partitions that have stayed ours since these records were polled."""
        return [each for each in items if not self.lost or partition_of(each.outcome.source) not in self.lost]


def by_bytes(received: Sequence[Received], limit: int) -> Iterator[list[Received]]:
    """Runs of records of about `limit` bytes."""
    run: list[Received] = []
    size = 0
    for each in received:
        if run and size >= limit:
            yield run
            run, size = [], 0
        run.append(each)
        size += len(each.record.value or b"")
    if run:
        yield run


def first_offsets(batches: Iterable[Batch]) -> dict[Partition, int]:
    """The first offset in flight of each partition."""
    first: dict[Partition, int] = {}
    for batch in batches:
        for each in batch.received:
            first.setdefault(partition_of(each.record.source), each.record.source.offset)
    return first


def counts(batches: Iterable[Batch]) -> Counter[Partition]:
    """The records in flight of each partition that has stayed ours."""
    found: Counter[Partition] = Counter()
    for batch in batches:
        found.update(partition_of(each.record.source) for each in batch.received)
        for partition in batch.lost:
            del found[partition]
    return found


def partition_of(source: Source) -> Partition:
    """The partition that a record came from."""
    return Partition(source.topic, source.partition)
