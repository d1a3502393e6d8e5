"""Publishing takedowns: each one confirmed by the broker before it counts."""

from __future__ import annotations

from collections.abc import Sequence

from kafka import KafkaProducer

from simhash.index.rows import Takedown, encoded
from worker.errors import BrokerError
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, client_options, translated
from worker.stream.kafka.topics import existing

SEND_SECONDS = 60.0


def check_topic(settings: Settings, topic: str) -> None:
    """Raise BrokerError if there is no such topic: who sends to one waits for it a minute, and learns no more."""
    with admin_client(settings) as admin, translated(settings):
        if topic not in existing(admin, [topic]):
            raise BrokerError(f"topic {topic} does not exist: `simhash-dedup topics` creates it")


def publish(settings: Settings, topic: str, takedowns: Sequence[Takedown]) -> None:
    """Append takedowns to a topic, under their URLs.

    Raises:
        BrokerError: Kafka refuses.
        BrokerUnreachable: a broker does not answer; what was sent may be there all the same.
    """
    with translated(settings):
        producer = KafkaProducer(**client_options(settings), acks="all", enable_idempotence=True)
        try:
            sent = [producer.send(topic, encoded(row).strip(), key=row.url.encode()) for row in takedowns]
            producer.flush(timeout=SEND_SECONDS)
            for future in sent:
                future.get(timeout=SEND_SECONDS)
        finally:
            producer.close(timeout=5)
