"""One consumer and one transactional producer: records in; a batch of outgoing records and its offsets, atomically.

The session keeps no page and decides nothing. It begins at the committed offsets, and where there is none at the
partition's beginning (it never resets by itself: an offset out of range is an error), and its transactions carry the
group's metadata, so that a worker whose partitions have moved cannot commit (KIP-447).

A topic that is deleted and made again has the same name, and its offsets mean other records: a worker that stood still
meanwhile would read on in the middle of it. So the topic's id (KIP-516) is kept beside each commit, and another one is
an error. It is kept with the offset: where that is another one by now, an operator has set it, and some tools leave
what stands beside it.

A broker may also lose the end of a log: its machine crashed before the disk had all, or a replica that was behind
became the leader. What is written then takes the offsets of what was lost. When a partition has another leader than
before, the client asks whether the records before its position are still there, by their leader epoch (KIP-320). So the
epoch is kept with each commit. Where records are gone that were answered, what has their place was not read: an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import kafka.errors as errors
from kafka import OffsetAndMetadata, TopicPartition

from simhash.index import Partition
from worker.errors import BrokerUnreachable, PositionRewound
from worker.records.page import largest_record
from worker.records.passing import Outgoing, Received
from worker.settings import Settings
from worker.stream.kafka.connect import UNREACHABLE, client_options, go_to, positions, translated
from worker.stream.kafka.groups import TOPIC, attested
from worker.stream.kafka.member import Member
from worker.stream.kafka.topics import largest_messages
from worker.stream.kafka.transactions import Transactions
from worker.stream.kafka.unpacking import BoundedPolls, be_tolerant, received

T = TypeVar("T")

FETCH_BYTES = 4 << 20
"""Of one partition or of all: several batches of usual pages, for the fingerprinters must not wait for the next fetch.
The client holds what it fetched many times over: of 8 MiB it made 300."""
CLOSE_SECONDS = 5
JOIN_SECONDS = 5.0
"""How long a poll waits for the group to be put together, whatever its caller would wait for records."""
JOINING_POLL_MS = 500
BEGIN_SECONDS = 5.0
"""So long a poll begins partitions that were gained; the others of them are begun by the next one."""
UNREACHABLE_PAUSE_SECONDS = 0.1
SHORTEST_POLL_MS = 1
"""So that an attempt to join that the client makes within a poll is seen when the poll ends."""
ANSWER_MS = 1_000
LONGEST_ANSWER_MS = 4_000
"""A question to the brokers is waited for between these, by how long the last answers took: meanwhile nothing else is
done, and where another's transaction is open there is none; but a broker far away, or with a quota, is always late."""
LONGER = 1.1
"""So much longer it is waited for at the next time where none came: a transaction is open for seconds, a slow broker is
slow for good."""
REDIS_TRIES = 3
NO_EPOCH = -1
"""Nobody knows the leader epoch of a record: nobody can ask whether it is still there."""
NOWHERE = OffsetAndMetadata(0, "", NO_EPOCH)
_FROM_THE_BEGINNING = (
    "To read it from its beginning: stop all workers of the group, announce it (simhash-dedup index rewind), set the "
    "group's offsets, and start again"
)


class Assigned(NamedTuple):
    """A partition that has just become this worker's.

    Attributes:
        position: the offset at which it begins.
        watermark: what was kept beside that.
        is_new: the group has no offset of it; it begins at its beginning.
    """

    partition: Partition
    position: int
    watermark: str
    is_new: bool


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


class Session:
    """See the module. One thread uses it.

    Attributes:
        largest: each output topic's largest message, in bytes, as of the session's begin.

    Raises (all methods): BrokerUnreachable, BatchAborted, SessionLost (make a new session), BrokerError;
    PositionRewound where the topic was made again or lost its end, or what is to be read next is not there.
    """

    def __init__(self, settings: Settings, transactional_id: str) -> None:
        self._settings = settings
        self.largest = largest_messages(settings)
        # What the dead-letter topic takes is a letter as it came, however large it is.
        be_tolerant(max(largest_record(settings.max_page_bytes), self.largest[settings.dead_letter_topic]))
        with translated(settings):
            self._transactions = Transactions(settings, transactional_id, self.largest)
            try:
                self._member = Member(_consumer_options(settings), settings.input_topic)
                self._polls = BoundedPolls(self._member.consumer, settings.batch_bytes)
            except BaseException:
                self._transactions.close()
                raise
        self._consumer = self._member.consumer
        self._topic = ""
        self._answered: dict[TopicPartition, int] = {}  # of each partition that was begun the committed offset, or 0
        self._answer_ms: float = ANSWER_MS

    def poll(self, timeout: float, max_records: int) -> Polled:
        """Wait up to `timeout` seconds for at most `max_records` records; for longer while the group changes."""
        with translated(self._settings):
            found = self._poll_through(max(int(timeout * 1000), SHORTEST_POLL_MS), max_records)
            moved = self._member.moved()
            self._check_topic(moved.topic_id)
            for tp in moved.gained:
                found.pop(tp, None)  # read from where the client takes it to begin
            gained = self._begin(moved.gained) if moved.gained else []
        ours = [received(row) for tp, rows in found.items() if tp in self._member.owned for row in rows]
        return Polled(ours, gained, frozenset(Partition(*tp) for tp in moved.lost))

    def stay(self, timeout: float) -> Polled:
        """A poll that brings no records, nor any of partitions that it gains: it keeps this worker in the group."""
        with self._member.paused():
            return self.poll(timeout, 1)

    def settled(self) -> bool:
        """Whether what was polled can be committed; if not, a poll tells what has changed."""
        return self._member.settled()

    def send(
        self,
        outgoing: Sequence[Outgoing],
        offsets: Mapping[Partition, int],
        on_step: Callable[[str], None],
        watermark: str = "",
        last_look: Callable[[], None] = lambda: None,
    ) -> None:
        """Commit `outgoing` and the `offsets` (next to be read), the index's watermark beside them, in one transaction.

        Args:
            last_look: called when the offsets are in the transaction, for which `attested` waits from then on, and
                nothing is sent. It may abort it (BatchAborted).

        Raises:
            BatchAborted: nothing was committed.
            SessionLost: unknown whether it was committed; a new session finds out.
        """
        with translated(self._settings):
            now = positions(self._consumer)
            self._check_topic(self._member.topic_id())
            following: dict[TopicPartition, OffsetAndMetadata] = {}
            for partition, offset in offsets.items():
                tp, beside = TopicPartition(*partition), f"{watermark}{TOPIC}{self._topic} {offset}"
                following[tp] = OffsetAndMetadata(offset, beside, now.get(tp, NOWHERE).leader_epoch)
            self._transactions.commit(self._placed(outgoing), following, self._member.membership, on_step, last_look)
            self._answered |= {tp: committed.offset for tp, committed in following.items()}

    def seek(self, wanted: Mapping[Partition, int]) -> None:
        """Read again from these offsets, where the partition is still ours."""
        now = positions(self._consumer)
        for partition, offset in wanted.items():
            if (tp := TopicPartition(*partition)) in self._member.owned:
                go_to(self._consumer, tp, offset, now.get(tp, NOWHERE).leader_epoch)

    def passed(self) -> dict[Partition, int]:
        """Of each owned partition the offset that is read next: behind what was polled, and what is no record there."""
        return {Partition(*tp): at.offset for tp, at in positions(self._consumer).items() if tp in self._member.owned}

    def begin_again(self, partition: Partition, mark: int) -> Assigned:
        """Where an owned partition stands by now, perhaps because of others; it is read from there.

        Raises:
            PositionRewound: that is below the mark; or it is not at it, and the group has no offset.
        """
        with translated(self._settings):
            begun = self._begun(TopicPartition(*partition))
        if begun.is_new and begun.position != mark:
            raise PositionRewound(_forgotten(self._settings, begun, mark))
        if begun.position < mark:
            raise PositionRewound(_rewound(self._settings, begun, mark))
        return begun

    def attested(self) -> list[str]:
        """See `worker.stream.kafka.groups.attested`."""
        return attested(self._settings)

    def behind(self, asking: bool) -> dict[Partition, int]:
        """How many offsets lie between the last poll and the end of each owned partition, as far as known.

        Not the end less the last record: what other producers' transactions leave behind is no record.

        Args:
            asking: ask the brokers for the ends, and wait for them a little; else they are those of the last fetch.

        Raises:
            BrokerUnreachable: asked, they did not answer, or know no such topic.
        """
        ends: dict[TopicPartition, int] = {}
        topic = self._settings.input_topic
        if asking:
            with translated(self._settings):
                if not self._member.owned and not self._topic_exists():
                    raise BrokerUnreachable(f"topic {topic} does not exist")
                some = sorted(self._member.owned) or [TopicPartition(topic, 0)]
                ends = self._ask(partial(self._consumer.end_offsets, some))
        found: dict[Partition, int] = {}
        now = positions(self._consumer)
        for tp in self._member.owned & now.keys():
            with suppress(errors.KafkaError):  # it is lost since
                end = ends.get(tp, self._consumer.highwater(tp))
                if end is not None:
                    found[Partition(*tp)] = max(0, end - now[tp].offset)
        return found

    def _topic_exists(self) -> bool:
        try:
            return bool(self._consumer.partitions_for_topic(self._settings.input_topic))
        except errors.UnknownTopicOrPartitionError:  # the answer to what the client was asking already
            return False

    def waits_for(self) -> str:
        """Why no partition is this worker's; empty: it has some."""
        return "" if self._member.owned else self._member.waits_for()

    def close(self) -> None:
        """Leave the group; a transaction that is open is aborted by the next session, or by the broker in time."""
        self._transactions.close()
        with suppress(errors.KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=1000 * CLOSE_SECONDS)

    def _poll_through(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        """Poll until the group stands, if it is being put together, but not for ever.

        The client asks to join while it is polled, and asks anew when it finds at the next poll that the answer came
        in between: it is lost, and all other members must join once more. Workers that always have work, and do not
        wait in their polls, would do so to each other for minutes.
        """
        found = self._poll(timeout_ms, max_records)
        end = time.monotonic() + JOIN_SECONDS
        while not found and self._member.joining() and time.monotonic() < end:
            found = self._poll(JOINING_POLL_MS, max_records)
        return found

    def _poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        try:
            found: dict[TopicPartition, list[Any]] = self._polls.poll(timeout_ms, max_records)
        except errors.NoOffsetForPartitionError:
            return {}  # partitions without a committed offset: _begin gives them one
        except UNREACHABLE:
            # The client goes on to try; a new one would be one more member, beside the one that the group still knows.
            time.sleep(UNREACHABLE_PAUSE_SECONDS)
            return {}
        except errors.OffsetOutOfRangeError as error:
            raise PositionRewound(_out_of_range(error, self._settings)) from error
        except errors.LogTruncationError as error:
            self._check_topic(self._member.topic_id())  # one that was made again has lost all
            for tp, at in error.divergent_offsets.items():
                begin, answered = at.offset if at else 0, self._answered.get(tp, 0)
                if begin < answered:
                    raise PositionRewound(_lost_its_end(tp, begin, answered)) from error
            raise  # nothing that was answered: a new session reads what is there now
        return found

    def _begin(self, gained: Sequence[TopicPartition]) -> list[Assigned]:
        """Take over these partitions, each from its committed offset; what cannot be had now, after the next poll.

        As long as another's transaction over a partition is open, the broker does not say where it stands. And where
        the brokers are slow, many partitions take longer than a member may take from one poll to the next.
        """
        begun: list[Assigned] = []
        end = time.monotonic() + BEGIN_SECONDS
        for tp in gained:
            if begun and time.monotonic() > end:
                break
            try:
                begun.append(self._begun(tp))
            except errors.KafkaTimeoutError:
                break
        self._member.taken([TopicPartition(*each.partition) for each in begun])
        return begun

    def _begun(self, tp: TopicPartition) -> Assigned:
        """Go to a partition's committed offset, or to its beginning where there is none."""
        committed = self._committed(tp)
        if committed is not None:
            position = answered = committed.offset
            epoch = NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch
            watermark, _, beside = (committed.metadata or "").partition(TOPIC)
            topic, _, at = beside.partition(" ")
            if at == str(position):
                self._check_topic(topic)
        else:
            position, watermark = self._ask(partial(self._consumer.beginning_offsets, [tp]))[tp], ""
            answered, epoch = 0, NO_EPOCH
        self._answered[tp] = answered
        go_to(self._consumer, tp, position, epoch)
        return Assigned(Partition(*tp), position, watermark, committed is None)

    def _committed(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """A partition's committed offset, as of now.

        The client keeps a question that was not waited for to its end, and gives its answer, however old it is by then,
        to whoever asks next. So it is asked twice.
        """

        def asked_twice(timeout_ms: float) -> OffsetAndMetadata | None:
            self._consumer.committed(tp, timeout_ms=timeout_ms)
            return self._consumer.committed(tp, metadata=True, timeout_ms=timeout_ms)

        return self._ask(asked_twice)

    def _ask(self, question: Callable[..., T]) -> T:
        """Ask the brokers, and learn how long to wait for the next answer; `question` takes that as `timeout_ms`.

        Raises:
            KafkaTimeoutError: no answer came in time.
        """
        begun = time.monotonic()
        try:
            answer = question(timeout_ms=self._answer_ms)
        except errors.KafkaTimeoutError:
            self._answer_ms = min(LONGER * self._answer_ms, LONGEST_ANSWER_MS)
            raise
        self._answer_ms = max(ANSWER_MS, min(2000 * (time.monotonic() - begun), LONGEST_ANSWER_MS))
        return answer

    def _check_topic(self, told: str) -> None:
        """Hold an id of the topic, now or beside a commit, against the one that is read; empty: nobody knows it.

        Raises:
            PositionRewound: it is another one.
        """
        self._topic = self._topic or self._member.topic_id() or told
        if told not in ("", self._topic):
            raise PositionRewound(_made_again(self._settings))

    def _placed(self, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
        """With a partition where the topic has as many as the input: then a verdict goes where its page came from.

        So consumers that join pages with verdicts find both in partitions of one number, whatever partitioner the
        fetcher's client uses. Otherwise the key decides, by the hash that Kafka's own clients use.
        """
        pages = self._consumer.partitions_for_topic(self._settings.input_topic)
        counts = self._transactions.partition_counts({o.topic for o in outgoing})
        return [o if counts[o.topic] == len(pages) else o._replace(partition=None) for o in outgoing]


def _consumer_options(settings: Settings) -> dict[str, Any]:
    return client_options(settings) | {
        "group_id": settings.group_id,
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "session_timeout_ms": int(settings.session_timeout * 1000),
        "heartbeat_interval_ms": int(settings.session_timeout * 1000 / 4),
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": FETCH_BYTES,
        "max_poll_interval_ms": int(_longest_step(settings) * 1000),
        "metadata_max_age_ms": 10_000,
    }


def _longest_step(settings: Settings) -> float:
    """How long a worker may take from one poll to the next, in seconds; and the group waits for one that hangs.

    It polls every few seconds, but for a call to Redis that is tried again, and a transaction.
    """
    return settings.session_timeout + REDIS_TRIES * settings.redis_timeout + settings.transaction_timeout


def _rewound(settings: Settings, begun: Assigned, mark: int) -> str:
    topic, number = begun.partition
    return (
        f"group {settings.group_id} stands at offset {begun.position} of {topic}[{number}], below the mark {mark} up "
        f"to which index {settings.index_name} has committed verdicts: the group was rewound or the topic made again. "
        f"If it is meant, stop all workers and announce it: simhash-dedup index rewind {topic} --execute"
    )


def _forgotten(settings: Settings, begun: Assigned, mark: int) -> str:
    topic, number = begun.partition
    return (
        f"group {settings.group_id} has no offset of {topic}[{number}], of which index {settings.index_name} has "
        f"committed verdicts up to {mark}: Kafka forgot the group's offsets (offsets.retention.minutes after its last "
        "worker had ended), the group is another one than before, or the topic was made again. Stop all workers; then, "
        f"to go on behind what was answered: simhash-dedup index resume {topic} --execute; to read the topic from its "
        f"beginning: simhash-dedup index rewind {topic} --execute"
    )


def _out_of_range(error: Exception, settings: Settings) -> str:
    return (
        f"the group's position is outside of topic {settings.input_topic} ({error}): the topic was made again, or its "
        f"retention removed pages that were not read yet. To go on with what there is, stop all workers: simhash-dedup "
        f"index resume {settings.input_topic} --execute (without the flag it says what is gone). {_FROM_THE_BEGINNING}"
    )


def _lost_its_end(tp: TopicPartition, begin: int, answered: int) -> str:
    topic, number = tp
    return (
        f"topic {topic} has lost records of partition {number}, from offset {begin} on, that were answered up to "
        f"{answered}: a broker crashed before its disk had them, or a replica that was behind became the leader. What "
        "has their place was not read. To read it, stop all workers of the group, announce it (simhash-dedup index "
        f"rewind {topic} --partition {number} --to {begin} --execute), set its offset there to {begin}, and start again"
    )


def _made_again(settings: Settings) -> str:
    return (
        f"topic {settings.input_topic} was deleted and made again while group {settings.group_id} read it: what it has "
        f"before the group's offsets was not read. {_FROM_THE_BEGINNING}"
    )
