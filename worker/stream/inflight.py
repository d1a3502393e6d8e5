"""Batches in flight: records that were polled and are not yet committed, on their way through the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from simhash.index import Partition
from worker.judging.fingerprinters import Outcome, Pending
from worker.records.passing import Received, Source
from worker.stream.partitions import Partitions


class Item(NamedTuple):
    """A record, and what preparing it came to."""

    received: Received
    outcome: Outcome


@dataclass(frozen=True)
class Batch:
    """Records of one poll, being prepared in order.

    Attributes:
        tenures: in which tenure of its partition each record was polled (see `worker.stream.partitions`).
    """

    received: Sequence[Received]
    pending: Pending
    tenures: Mapping[Partition, int]

    @cached_property
    def size(self) -> int:
        """Bytes of its records' values."""
        return sum(each.record.size for each in self.received)

    def items(self) -> list[Item]:
        """The records with their outcomes; only once `pending` is ready."""
        return list(map(Item, self.received, self.pending.results()))

    def owned(self, items: Iterable[Item], partitions: Partitions) -> list[Item]:
        """What belongs to partitions that have stayed ours since these records were polled."""
        held = self.held(partitions)
        return [each for each in items if partition_of(each.outcome.source) in held]

    def held(self, partitions: Partitions) -> set[Partition]:
        """The partitions that have stayed ours since."""
        return {partition for partition, tenure in self.tenures.items() if partitions.holds(partition, tenure)}


def first_offsets(batches: Iterable[Batch], partitions: Partitions) -> dict[Partition, int]:
    """The first offset in flight of each partition, among the records that are still ours."""
    first: dict[Partition, int] = {}
    for batch in batches:
        held = batch.held(partitions)
        for each in batch.received:
            if (partition := partition_of(each.record.source)) in held:
                first.setdefault(partition, each.record.source.offset)
    return first


def counts(batches: Iterable[Batch], partitions: Partitions) -> Counter[Partition]:
    """The records in flight of each partition, among those that are still ours."""
    found: Counter[Partition] = Counter()
    for batch in batches:
        held = batch.held(partitions)
        found.update(p for each in batch.received if (p := partition_of(each.record.source)) in held)
    return found


def partition_of(source: Source) -> Partition:
    """The partition that a record came from."""
    return Partition(source.topic, source.partition)
