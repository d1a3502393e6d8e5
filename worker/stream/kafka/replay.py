"""Whole topics, read from their beginning to the end that they have now: no group, nothing committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from worker.errors import BrokerError
from worker.records.passing import RawRecord, Received, Source
from worker.settings import Settings
from worker.stream.kafka.connect import client_options, translated

POLL_MS = 500
AT_ONCE = 5000


def replayed(settings: Settings, topic: str) -> Iterator[Received]:
    """All committed records of a topic, those of a partition in their order.

    Raises:
        BrokerError: there is no such topic.
        BrokerUnreachable: nobody answers.
    """
    with translated(settings):
        consumer = KafkaConsumer(
            **client_options(settings),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
        )
        try:
            yield from _to_the_end(consumer, topic)
        finally:
            consumer.close()


def _to_the_end(consumer: Any, topic: str) -> Iterator[Received]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise BrokerError(f"topic {topic} does not exist")
    left = [TopicPartition(topic, number) for number in sorted(numbers)]
    consumer.assign(left)
    consumer.seek_to_beginning(*left)
    ends = consumer.end_offsets(left)
    while left := [tp for tp in left if consumer.position(tp) < ends[tp]]:
        for tp, rows in consumer.poll(POLL_MS, max_records=AT_ONCE).items():
            yield from (_received(row) for row in rows if row.offset < ends[tp])


def _received(row: Any) -> Received:
    source = Source(row.topic, row.partition, row.offset, row.timestamp)
    headers = [(name, value or b"") for name, value in row.headers] if row.headers else []
    return Received(RawRecord(source, row.key, row.value), headers)
