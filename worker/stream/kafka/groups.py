"""The workers' consumer group from outside, while it has no member: who is in it, and its offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import kafka.errors as errors
from kafka import IsolationLevel, KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec

from worker.errors import BrokerError, BrokerUnreachable
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated
from worker.stream.kafka.topics import existing

TOPIC = " topic "
"""Beside a commit, between the index's watermark and the topic's id with the offset."""
_LATER = (errors.CoordinatorNotAvailableError, errors.CoordinatorLoadInProgressError, errors.NotCoordinatorError)
"""Of brokers that have just begun, above all at their first group."""


def refuse_live_group(settings: Settings) -> None:
    """Make sure that the workers' group has no members.

    Raises:
        BrokerError: it has some.
        BrokerUnreachable: a broker does not answer.
    """
    members = _members(settings)
    if members:
        raise BrokerError(
            f"group {settings.group_id} has {members} members: stop all workers first (one that was killed counts "
            f"until its session ends, {settings.session_timeout:.0f} s)"
        )


def _members(settings: Settings) -> int:
    with _asking(settings) as admin:
        try:
            (group,) = admin.describe_groups([settings.group_id]).values()
        except errors.GroupIdNotFoundError:
            return 0
    return len(group["members"])


class Reach(NamedTuple):
    """What a partition has: its first offset, the one behind its last, and the group's, None where it has none."""

    begin: int
    end: int
    committed: int | None


def reach_of(settings: Settings, topic: str) -> dict[int, Reach]:
    """Each partition of a topic, by its number.

    Raises:
        BrokerError: there is no such topic, or the user may not know.
        BrokerUnreachable: a broker does not answer.
    """
    with _asking(settings) as admin:
        count = existing(admin, [topic]).get(topic)
        if count is None:
            raise BrokerError(f"topic {topic} does not exist")
        partitions = [TopicPartition(topic, number) for number in range(count)]
        begins, ends = (
            admin.list_partition_offsets(dict.fromkeys(partitions, spec), IsolationLevel.READ_COMMITTED)
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        kept = admin.list_group_offsets({settings.group_id: partitions})[settings.group_id]
    found = {tp.partition: kept[tp].offset for tp in partitions if tp in kept and kept[tp].offset >= 0}
    return {tp.partition: Reach(begins[tp].offset, ends[tp].offset, found.get(tp.partition)) for tp in partitions}


def attested(settings: Settings) -> list[str]:
    """The watermarks beside the group's last commits of the input topic: of every partition, whoever has it, or nobody.

    Raises:
        BrokerError: the user may not know.
        BrokerUnreachable: a broker does not answer.
    """
    with _asking(settings) as admin:
        kept = admin.list_group_offsets([settings.group_id])[settings.group_id]
    beside = (committed.metadata or "" for tp, committed in kept.items() if tp.topic == settings.input_topic)
    return list({each.partition(TOPIC)[0] for each in beside})


def set_offsets(settings: Settings, topic: str, offsets: Mapping[int, int]) -> bool:
    """Set the group's offsets of these partitions; False: it has members, and nothing was set.

    Raises:
        BrokerError: it is refused.
        BrokerUnreachable: a broker does not answer.
    """
    wanted = {TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1) for number, offset in offsets.items()}
    with _asking(settings) as admin:
        refused = {error for error in admin.alter_group_offsets(settings.group_id, wanted).values() if error.errno}
    if errors.UnknownMemberIdError in refused:
        return False
    if refused:
        names = ", ".join(sorted(error.__name__ for error in refused))
        raise BrokerError(f"Kafka refuses to set the offsets of group {settings.group_id}: {names}")
    return True


@contextmanager
def _asking(settings: Settings) -> Iterator[KafkaAdminClient]:
    with admin_client(settings) as admin, translated(settings):
        try:
            yield admin
        except _LATER as error:
            raise BrokerUnreachable(f"no broker answers for group {settings.group_id} yet: {error}") from error
