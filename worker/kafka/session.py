"""One consumer and one transactional producer: records in; a batch of outgoing records and its offsets, atomically.

The session keeps no page and decides nothing. It begins at the committed offsets (never resets by itself: a group
without offsets starts where the settings say, an offset out of range is an error), and its transactions carry the
group's metadata, so that a worker whose partitions have moved cannot commit (KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import kafka.errors as errors
from kafka import ConsumerGroupMetadata, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from simhash.index import Partition
from worker.errors import PositionRewound
from worker.kafka.connect import client_options, translated
from worker.kafka.rejoining import keep_answers
from worker.kafka.tolerance import be_tolerant
from worker.kafka.topics import largest_messages
from worker.records import Outgoing, RawRecord, Received, Source
from worker.settings import Settings

PRODUCER_BATCH_BYTES = 256 << 10
LINGER_MS = 1_000
"""Longer than a batch takes to be handed over: `flush` ends it, and one request brings all of a partition."""
FETCH_BYTES = 8 << 20
PARTITION_FETCH_BYTES = 4 << 20
"""Several batches of one partition at once: the fingerprinters must not wait for the next fetch. The client holds what
was fetched a few times over."""
CLOSE_SECONDS = 5


class Assigned(NamedTuple):
    """A partition that has just become this worker's, the offset at which it begins, and what was kept beside it."""

    partition: Partition
    position: int
    receipt: str


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll brought.

    Attributes:
        received: records of partitions this worker owns, in order of their offsets.
        gained: partitions to check before their records are used.
        lost: partitions that are another worker's now: drop what is left of them.
    """

    received: Sequence[Received]
    gained: Sequence[Assigned]
    lost: frozenset[Partition]


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Remembers what a poll changed; called within poll, where no call to the broker may be made."""

    def __init__(self) -> None:
        self.gained: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.gained.update(assigned)

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.lost.update(revoked)
        self.gained.difference_update(revoked)

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self.on_partitions_revoked(lost)


class Session:
    """See the module. One thread uses it.

    Attributes:
        largest: each output topic's largest message, in bytes, as of the session's begin.

    Raises (all methods): BrokerUnreachable, BatchAborted, SessionLost (make a new session), BrokerError.
    """

    def __init__(self, settings: Settings, transactional_id: str) -> None:
        self._settings = settings
        self._rebalances = _Rebalances()
        self.largest = largest_messages(settings)
        be_tolerant()
        keep_answers()
        with translated(settings):
            # The client can split a batch that is too large, but loses sight of its records then.
            batch_bytes = min(PRODUCER_BATCH_BYTES, *self.largest.values())
            self._producer = KafkaProducer(**_producer_options(settings, transactional_id, batch_bytes))
            try:
                self._producer.init_transactions()
                self._consumer = KafkaConsumer(**_consumer_options(settings))
            except BaseException:
                self._producer.close(timeout=0)
                raise
            self._consumer.subscribe([settings.input_topic], listener=self._rebalances)

    def poll(self, timeout: float, max_records: int) -> Polled:
        """Wait up to `timeout` seconds for at most `max_records` records."""
        with translated(self._settings):
            found = self._poll(int(timeout * 1000), max_records)
            gained = [self._begin(tp) for tp in sorted(self._rebalances.gained)]
            lost = frozenset(Partition(*tp) for tp in self._rebalances.lost)
            self._rebalances.gained.clear()
            self._rebalances.lost.clear()
        owned = self._consumer.assignment()
        received = [_received(row) for tp, rows in found.items() if tp in owned for row in rows]
        return Polled(received, gained, lost)

    def send(
        self,
        outgoing: Sequence[Outgoing],
        offsets: Mapping[Partition, int],
        on_step: Callable[[str], None],
        receipt: str = "",
    ) -> None:
        """Commit `outgoing` and the `offsets` (next to be read), the index's receipt beside them, in one transaction.

        Raises:
            BatchAborted: nothing was committed.
            SessionLost: unknown whether it was committed; a new session finds out.
        """
        with translated(self._settings):
            self._producer.begin_transaction()
            on_step("begun")
            try:
                self._send_all(outgoing)
                on_step("sent")
                group = self._membership()
                positions = {
                    TopicPartition(*p): OffsetAndMetadata(offset, receipt, -1) for p, offset in offsets.items()
                }
                self._producer.send_offsets_to_transaction(positions, group)
                on_step("offsets")
            except errors.KafkaTimeoutError:
                raise  # who does not answer would not answer an abort either; the next session ends the transaction
            except errors.KafkaError:
                self._producer.abort_transaction()
                raise
            self._producer.commit_transaction()

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Read again from `positions`, where the partition is still ours."""
        owned = self._consumer.assignment()
        for partition, offset in positions.items():
            if TopicPartition(*partition) in owned:
                self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self) -> None:
        """Let polls bring no records (they still keep this worker in the group)."""
        self._consumer.pause(*self._consumer.assignment())

    def resume(self) -> None:
        """Undo `pause`."""
        self._consumer.resume(*self._consumer.paused())

    def behind(self) -> dict[Partition, int]:
        """How many offsets lie between the last poll and the end of each owned partition, as far as known.

        Not the end less the last record: what other producers' transactions leave behind is no record.
        """
        found: dict[Partition, int] = {}
        for tp in self._consumer.assignment():
            # A position in doubt (its leader has changed) is asked for by the next poll: here nobody waits for brokers.
            with suppress(errors.KafkaError):
                end, position = self._consumer.highwater(tp), self._consumer.position(tp, timeout_ms=0)
                if end is not None and position is not None:
                    found[Partition(*tp)] = max(0, end - position)
        return found

    def close(self) -> None:
        """Leave the group and abort what is open; what the brokers do not answer to is left to them."""
        try:
            self._producer.close(timeout=CLOSE_SECONDS)
        except errors.KafkaError:
            # What cannot be sent keeps the client from closing, and its thread would go on trying.
            self._producer._sender.force_close()
            with suppress(errors.KafkaError):
                self._producer.close(timeout=CLOSE_SECONDS)
        with suppress(errors.KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=1000 * CLOSE_SECONDS)

    def _membership(self) -> ConsumerGroupMetadata:
        """What the broker knows this member by, if it still is one.

        A member that was given up (it stood still too long) loses number and name as soon as a heartbeat is refused,
        and offsets that come with neither are taken from anybody, as from clients that know no groups.
        """
        group = self._consumer.group_metadata()
        if group.generation_id < 0 or not group.member_id:
            raise errors.CommitFailedError("this worker is no member of its group any more")
        return group

    def _poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        try:
            found: dict[TopicPartition, list[Any]] = self._consumer.poll(timeout_ms, max_records=max_records)
        except errors.NoOffsetForPartitionError:
            return {}  # partitions without a committed offset: _begin gives them one
        except errors.OffsetOutOfRangeError as error:
            raise PositionRewound(_out_of_range(error, self._settings)) from error
        return found

    def _begin(self, tp: TopicPartition) -> Assigned:
        """Where a gained partition begins: its committed offset, or what the settings say of a new group."""
        committed = self._consumer.committed(tp, metadata=True)
        if committed is not None:
            return Assigned(Partition(*tp), committed.offset, committed.metadata or "")
        earliest = self._settings.start == "earliest"
        ends = self._consumer.beginning_offsets([tp]) if earliest else self._consumer.end_offsets([tp])
        self._consumer.seek(tp, ends[tp])
        return Assigned(Partition(*tp), ends[tp], "")

    def _send_all(self, outgoing: Sequence[Outgoing]) -> None:
        """Send, and have every send confirmed."""
        alike = {topic: self._as_many_partitions(topic) for topic in {o.topic for o in outgoing}}
        futures = [
            self._producer.send(
                o.topic, key=o.key, value=o.value, headers=o.headers, partition=o.partition if alike[o.topic] else None
            )
            for o in outgoing
        ]
        seconds = self._settings.transaction_timeout  # after which the broker aborts it anyway
        self._producer.flush(timeout=seconds)
        for future in futures:
            future.get(timeout=seconds)

    def _as_many_partitions(self, topic: str) -> bool:
        """Whether a topic has as many partitions as the input: then a verdict goes where its page came from.

        So consumers that join pages with verdicts find both in partitions of one number, whatever partitioner the
        fetcher's client uses. Otherwise the key decides, by the hash that Kafka's own clients use.
        """
        pages = self._consumer.partitions_for_topic(self._settings.input_topic)
        return pages is not None and len(self._producer.partitions_for(topic)) == len(pages)


def _received(row: Any) -> Received:
    source = Source(row.topic, row.partition, row.offset, row.timestamp)
    headers = [(name, value or b"") for name, value in row.headers] if row.headers else []
    return Received(RawRecord(source, row.key, row.value), headers)


def _producer_options(settings: Settings, transactional_id: str, batch_bytes: int) -> dict[str, Any]:
    return client_options(settings) | {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": int(settings.transaction_timeout * 1000),
        "acks": "all",
        "linger_ms": LINGER_MS,
        "batch_size": batch_bytes,
        "max_request_size": 1 << 30,  # the topics' own limits decide, checked before the index is touched
        "allow_auto_create_topics": False,
        "max_block_ms": 30_000,
    }


def _consumer_options(settings: Settings) -> dict[str, Any]:
    return client_options(settings) | {
        "group_id": settings.group_id,
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "partition_assignment_strategy": [CooperativeStickyAssignor],
        "session_timeout_ms": int(settings.session_timeout * 1000),
        "heartbeat_interval_ms": int(settings.session_timeout * 1000 / 4),
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
        "metadata_max_age_ms": 10_000,
    }


def _out_of_range(error: Exception, settings: Settings) -> str:
    return (
        f"the group's position is outside of topic {settings.input_topic} ({error}): the topic was made again, or its "
        "retention removed pages that were not read yet. To read it from its beginning: stop all workers of the "
        "group, announce it (simhash-dedup index rewind), set the group's offsets, and start again"
    )
