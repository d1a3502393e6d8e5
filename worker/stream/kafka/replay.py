"""Topics, read whole to the end that they have now, or at one place: no group, nothing committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from worker.errors import BrokerError
from worker.records.passing import Received
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, client_options, positions, translated
from worker.stream.kafka.topics import existing
from worker.stream.kafka.unpacking import BoundedPolls, be_tolerant, received

POLL_MS = 500
AT_ONCE = 5000
AT_ONCE_BYTES = 8 << 20
FOR_EVER_MS = 1 << 62
FROM_THE_FIRST: Mapping[int, int] = {}


def replayed(
    settings: Settings, topic: str, whole: bool = False, begins: Mapping[int, int] = FROM_THE_FIRST
) -> Iterator[Received]:
    """All committed records of a topic, those of a partition in their order.

    Args:
        begins: for partitions that are not read from their first record, the offset to begin at.
        whole: refuse a topic whose first records are deleted.

    Raises:
        BrokerError: there is no such topic, or it may not be read, or see `whole`.
        BrokerUnreachable: a broker does not answer.
    """
    with _reading(settings, topic) as (consumer, partitions):
        yield from _to_the_end(consumer, topic, partitions, whole, begins)


def record_at(settings: Settings, topic: str, partition: int, offset: int) -> Received | None:
    """The committed record at a place; None: there is none. Raises as `replayed`."""
    with _reading(settings, topic) as (consumer, partitions):
        if partition >= partitions:
            return None
        tp = TopicPartition(topic, partition)
        consumer.assign([tp])
        begin, end = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
        if not begin <= offset < end:
            return None
        consumer.seek(tp, offset)
        while consumer.position(tp) <= offset:
            for row in consumer.poll(POLL_MS, max_records=1).get(tp, ()):
                # The next one, where the place holds a transaction's marker or was aborted.
                return received(row) if row.offset == offset else None
        return None


def kept_from_ms(settings: Settings, topic: str) -> int:
    """When the first records were written that stand behind those that Kafka has deleted: the latest of all partitions.

    0: nothing was ever deleted. `FOR_EVER_MS`: of a partition nothing is left. Raises as `replayed`.
    """
    with _reading(settings, topic) as (consumer, partitions):
        begins = consumer.beginning_offsets([TopicPartition(topic, number) for number in range(partitions)])
        return max((_first_ms(consumer, tp) for tp, offset in begins.items() if offset), default=0)


def _first_ms(consumer: Any, tp: TopicPartition) -> int:
    consumer.assign([tp])
    consumer.seek_to_beginning(tp)
    end = consumer.end_offsets([tp])[tp]
    while consumer.position(tp) < end:
        for row in consumer.poll(POLL_MS, max_records=1).get(tp, ()):
            written: int = row.timestamp
            return written
    return FOR_EVER_MS


@contextmanager
def _reading(settings: Settings, topic: str) -> Iterator[tuple[Any, int]]:
    """A consumer without a group, and how many partitions the topic has."""
    with admin_client(settings) as admin:
        partitions = existing(admin, [topic]).get(topic)
    if not partitions:
        raise BrokerError(f"topic {topic} does not exist")
    be_tolerant()
    with translated(settings):
        consumer = KafkaConsumer(
            **client_options(settings),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
        )
        try:
            yield consumer, partitions
        finally:
            consumer.close()


def _to_the_end(
    consumer: Any, topic: str, partitions: int, whole: bool, begins: Mapping[int, int]
) -> Iterator[Received]:
    read = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(read)
    firsts = consumer.beginning_offsets(read)
    if whole:
        _refuse_cut(topic, firsts)
    for tp, first in firsts.items():
        consumer.seek(tp, max(first, begins.get(tp.partition, 0)))
    ends = consumer.end_offsets(read)
    polls = BoundedPolls(consumer, AT_ONCE_BYTES)
    while _is_below(consumer, ends):
        for tp, rows in polls.poll(POLL_MS, AT_ONCE).items():
            yield from (received(row) for row in rows if row.offset < ends[tp])


def _is_below(consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether something is left to be read of one of them."""
    now = positions(consumer)
    return any(tp not in now or now[tp].offset < end for tp, end in ends.items())


def _refuse_cut(topic: str, begins: dict[TopicPartition, int]) -> None:
    for tp, offset in begins.items():
        if offset:
            raise BrokerError(
                f"topic {topic} begins at offset {offset:,} of partition {tp.partition}: what stood before is deleted; "
                "--partial goes on without it"
            )
