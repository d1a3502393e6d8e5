"""A member of the consumer group: which partitions it has, and in whose name its offsets are committed.

The client joins its group anew in the background. Its membership then is another one before the assignment in use is:
what was revoked is told by the next poll only. So the membership is *pinned* to the assignment: noted after each poll,
when the group is stable, and good for commits only as long as the client still has the same. In between nothing is
committed.

A member that was thrown out (it stood still for longer than its session) comes back owning nothing. The client forgets
that in two ways, both mended here: its assignor goes on to report what it owned, and one that is thrown out while it
rejoins is not told that it lost anything.

The client also forgets an attempt to join: where the topic's partitions had changed, or were not known yet at the first
join, it joins once more, and when the answer comes between two polls it takes that for done and never looks at it. It
would wait for ever, without a heartbeat. So a member that still joins after a poll asks for it again.

And it forgets records: it sets aside what it has of a partition that is paused, and takes that up again only when it
holds nothing of any other; until then it does not fetch of that partition. So all partitions are paused, or none: one
that is gained during a pause is paused with the others, before anything of it is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import kafka.errors as errors
from kafka import ConsumerGroupMetadata, KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState

from worker.stream.kafka.connect import positions

_REASONS = {
    MemberState.UNJOINED: "it is in no group yet: the group's coordinator does not answer, or has put it out",
    MemberState.REBALANCING: "the group waits for all of its members to join; one that hangs is put out in time",
    MemberState.STABLE: "the group has given all partitions to other workers",
}


class Moved(NamedTuple):
    """What a poll changed.

    Attributes:
        gained: partitions that are this member's and were not, in order.
        lost: partitions that were this member's; what was read of them is another's to read, even where they came back.
        topic_id: see `Member.topic_id`.
    """

    gained: Sequence[TopicPartition]
    lost: frozenset[TopicPartition]
    topic_id: str


class _Assignor(CooperativeStickyAssignor):  # type: ignore[misc]
    """Tells the group, at each attempt to join, what this member has: nothing, if it is none.

    Attributes:
        outside: whether such an attempt was made from outside of the group.
    """

    def __init__(self, membership: Callable[[], ConsumerGroupMetadata]) -> None:
        super().__init__()
        self._membership = membership
        self.outside = False

    def metadata(self, topics: set[str]) -> Any:
        """Called by the client's thread, before each request to join."""
        if _is_none(self._membership()):
            self.member_assignment = None
            self.outside = True
        return super().metadata(topics)


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Remembers what was revoked, though it may have come back within the same poll; pauses what comes in a pause.

    Attributes:
        pausing: whether it is one. The client may call from a thread of its own while a pause ends; what it pauses then
            is resumed when it is taken.
    """

    def __init__(self, pause: Callable[[Sequence[TopicPartition]], None]) -> None:
        self.revoked: set[TopicPartition] = set()
        self.pausing = False
        self._pause = pause

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        if self.pausing:
            self._pause(assigned)

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.revoked.update(revoked)

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self.revoked.update(lost)


class Member:
    """See the module.

    Attributes:
        consumer: the client, subscribed to the topic.
        owned: the partitions whose records are this member's to read.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._assignor = _Assignor(lambda: self.consumer.group_metadata())
        self._rebalances = _Rebalances(lambda assigned: self.consumer.pause(*assigned))
        self._pinned: ConsumerGroupMetadata | None = None
        self.owned: set[TopicPartition] = set()
        self.consumer = KafkaConsumer(**options, partition_assignment_strategy=[self._assignor])
        # No public way leads there, so it is looked up now: another version of the client fails at the start.
        self._ask_to_join = self.consumer._coordinator.request_rejoin
        self._ids_of_topics, self._topic = self.consumer._cluster.topic_id, topic
        positions(self.consumer)
        self.consumer.subscribe([topic], listener=self._rebalances)

    def topic_id(self) -> str:
        """The topic's id, as the brokers last told it: another topic of its name has another one. Empty: not known, as
        of a broker before 2.8."""
        found = self._ids_of_topics(self._topic)
        return str(found) if found and found.int else ""

    def moved(self) -> Moved:
        """To be asked after each poll: what it changed. What was gained is owned once it is `taken`."""
        membership = self.consumer.group_metadata()
        self._pinned = membership if membership.state is MemberState.STABLE else None
        if membership.state is MemberState.REBALANCING:
            self._ask_to_join()
        assigned = self.consumer.assignment()
        lost = self.owned & self._rebalances.revoked | self.owned - assigned
        if self._assignor.outside:
            lost = set(self.owned)
        self._assignor.outside = False
        self._rebalances.revoked.clear()
        self.owned -= lost
        return Moved(sorted(assigned - self.owned) if self._pinned else [], frozenset(lost), self.topic_id())

    def taken(self, gained: Collection[TopicPartition]) -> None:
        """Their records are read from now on."""
        self.owned.update(gained)
        if gained:
            self._resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Polls bring no records meanwhile; they still keep this member in the group."""
        self._rebalances.pausing = True
        self.consumer.pause(*self.consumer.assignment())
        try:
            yield
        finally:
            self._rebalances.pausing = False
            self._resume()

    def _resume(self) -> None:
        self.consumer.resume(*self.consumer.paused())

    def joining(self) -> bool:
        """Whether its group is being put together, with it."""
        return self.consumer.group_metadata().state is MemberState.REBALANCING

    def settled(self) -> bool:
        """Whether the group is still as the last poll left it, so that commits have a chance."""
        return self._pinned is not None and self._pinned == self.consumer.group_metadata()

    def waits_for(self) -> str:
        """Why there is no partition for this member, for its log."""
        if self.consumer.assignment():
            return "the brokers do not tell the offsets of its partitions: they are slow, or a transaction is open"
        return _REASONS[self.consumer.group_metadata().state]

    def membership(self) -> ConsumerGroupMetadata:
        """In whose name offsets of what was polled are committed.

        Raises:
            CommitFailedError: in nobody's, before the next poll has told what has changed.
        """
        if not self.settled():
            raise errors.CommitFailedError("the group has changed since the last poll")
        return self._pinned


def _is_none(membership: ConsumerGroupMetadata) -> bool:
    return bool(membership.generation_id < 0 or not membership.member_id)
