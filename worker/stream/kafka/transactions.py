"""Transactions of one producer at a time, none of which reaches into another.

kafka-python's producer is not to be trusted with a transaction that failed: what a broker refused (offsets above all)
stays in it through an abort, and the next transaction commits it; requests that were under way may arrive later, under
the same epoch. So no producer outlives a transaction that was not committed. It is thrown away, without being flushed
or asked for an abort, and a new one under the same transactional id fences it (`init_transactions`): the broker aborts
what was open, and refuses whatever the former one may still send.

Until the commit is asked for, a failure means that nothing was committed. From then on it is unknown, until the new
producer has begun: then the transaction is over, one way or the other, and the committed offsets tell which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kafka.errors as errors
from kafka import ConsumerGroupMetadata, KafkaProducer, OffsetAndMetadata, TopicPartition

from worker.errors import BatchAborted
from worker.records.passing import Outgoing
from worker.settings import Settings
from worker.stream.kafka.connect import client_options

PRODUCER_BATCH_BYTES = 256 << 10
LINGER_MS = 1_000
"""Longer than a batch takes to be handed over: `flush` ends it, and one request brings all of a partition."""
LEAST_SECONDS = 2.0
"""So long each step is waited for, whatever is left of the transaction's time: a worker that stood still meanwhile is
to learn what has become of it."""


class _Producer(KafkaProducer):  # type: ignore[misc]
    """The client's producer, which can be thrown away: its own `close` first sends what is left in it."""

    _thrown_away = False

    def throw_away(self) -> None:
        """Send nothing more, end nothing."""
        self._thrown_away = True
        self.close(timeout=0)

    def flush(self, timeout: float | None = None) -> None:
        if not self._thrown_away:
            super().flush(timeout)


class Transactions:
    """See the module. Raises the client's errors.

    After any error but `CommitFailedError` and `BatchAborted` there is no producer left.
    """

    def __init__(self, settings: Settings, transactional_id: str, largest: Mapping[str, int]) -> None:
        # The client can split a batch that is too large, but loses sight of its records then.
        batch_bytes = min(PRODUCER_BATCH_BYTES, *largest.values())
        self._options = _producer_options(settings, transactional_id, batch_bytes)
        self._seconds = settings.transaction_timeout  # after which the broker aborts it anyway
        self._end = 0.0
        self._producer: _Producer | None = None
        self._begin()

    def commit(
        self,
        outgoing: Sequence[Outgoing],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        membership: Callable[[], ConsumerGroupMetadata] | None,
        on_step: Callable[[str], None],
        last_look: Callable[[], None] = lambda: None,
    ) -> None:
        """Commit all of it at once.

        The offsets go first: what the group refuses, or the last look, was not sent to anybody. While they are in the
        transaction nobody else begins their partitions.

        Args:
            outgoing: what to send; a partition that is None is chosen by the key.
            membership: in whose name the offsets are committed; None: there are none.
            last_look: called when the offsets are in the transaction; it may say that this is not to be committed.

        Raises:
            CommitFailedError: nothing was committed; the group has moved on, the next transaction may begin.
            BatchAborted: nothing was committed; `last_look` said so, the next transaction may begin.
        """
        try:
            producer = self._open
            self._end = time.monotonic() + self._seconds
            producer.begin_transaction()
            on_step("begun")
            if membership is not None:
                group = membership()
                self._within_time(lambda: producer.send_offsets_to_transaction(offsets, group))
                on_step("offsets")
            last_look()
            self._send(producer, outgoing)
            on_step("sent")
            self._within_time(producer.commit_transaction)
        except (errors.CommitFailedError, BatchAborted):
            self.close()
            self._begin()
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Throw the producer away; what is open is aborted by the next one of its id, or by the broker in time."""
        if self._producer is not None:
            self._producer.throw_away()
            self._producer = None

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each of these output topics has."""
        producer = self._open
        return {topic: len(producer.partitions_for(topic)) for topic in topics}

    @property
    def _open(self) -> _Producer:
        if self._producer is None:
            raise errors.IllegalStateError("the transaction before this one failed, and its producer with it")
        return self._producer

    def _begin(self) -> None:
        producer = _Producer(**self._options)
        try:
            producer.init_transactions()
        except BaseException:
            producer.throw_away()
            raise
        self._producer = producer

    def _within_time(self, call: Callable[[], None]) -> None:
        """Make a call that the client would wait for without end, as it does when an answer is torn off on its way.

        A thread that goes on waiting is left behind then, with its producer; it can do nothing but wait.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, name="transaction", daemon=True)
        thread.start()
        thread.join(max(LEAST_SECONDS, self._end - time.monotonic()))
        if thread.is_alive():
            raise errors.KafkaTimeoutError(
                f"the end of a transaction, within {self._seconds:.0f} s (transaction_timeout)"
            )
        if raised:
            raise raised[0]

    def _send(self, producer: _Producer, outgoing: Sequence[Outgoing]) -> None:
        """Send, and have every send confirmed."""
        futures = [producer.send(o.topic, o.value, o.key, o.headers, o.partition) for o in outgoing]
        try:
            producer.flush(timeout=max(LEAST_SECONDS, self._end - time.monotonic()))
        except errors.UnknownError as error:  # "Future not done": the client has split a batch
            raise errors.MessageSizeTooLargeError("a topic takes less than when this session began") from error
        for future in futures:
            future.get(timeout=self._seconds)


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
