"""The workers' consumer group from outside: who is in it, its offsets, and what stands beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import kafka.errors as errors
from kafka import IsolationLevel, KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec

from worker.errors import BrokerError, BrokerUnreachable
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated
from worker.stream.kafka.topics import existing

TOPIC = " topic "
"""Beside a commit, between the index's watermark and the topic's id with the offset."""
OVER_SECONDS = 1.0
"""So long a question waits for open transactions; a worker's is over in some hundredths."""
OVER_PAUSE_SECONDS = 0.01
_OPEN = errors.UnstableOffsetCommitError.errno
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

    A commit of which a broker knows when it is asked counts: it is waited for, till its transaction is over.

    Raises:
        BrokerError: the user may not know.
        BrokerUnreachable: a broker does not answer, or a transaction stays open (that of a worker that died, until
            `transaction_timeout` and some seconds have passed).
    """
    topic, found, end = settings.input_topic, set[str](), time.monotonic() + OVER_SECONDS
    with _asking(settings, _Settled) as admin:
        waiting = {TopicPartition(topic, number) for number in range(existing(admin, [topic]).get(topic, 0))}
        while True:
            known = admin.list_group_offsets({settings.group_id: waiting})[settings.group_id]
            found |= {(kept.metadata or "").partition(TOPIC)[0] for kept in known.values()}
            waiting -= known.keys()
            if not waiting:
                return list(found)
            if time.monotonic() > end:
                raise BrokerUnreachable(
                    f"a transaction is open over {len(waiting)} partitions of topic {topic} (a dead worker's ends by "
                    f"itself, some seconds after transaction_timeout = {settings.transaction_timeout:.0f} s)"
                )
            time.sleep(OVER_PAUSE_SECONDS)


class _Settled(KafkaAdminClient):  # type: ignore[misc]
    """Names only offsets over which no transaction is open; the client can ask so (KIP-447), but not by a setting."""

    def _list_group_offsets_requests(self, group_specs: Any) -> Iterator[Any]:
        for group, request in super()._list_group_offsets_requests(group_specs):
            request.require_stable = True
            yield group, request

    @staticmethod
    def _parse_group_offsets(group: Any) -> Any:
        for topic in group.topics:
            topic.partitions = [each for each in topic.partitions if each.error_code != _OPEN]
        return KafkaAdminClient._parse_group_offsets(group)


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
def _asking(settings: Settings, kind: type[KafkaAdminClient] = KafkaAdminClient) -> Iterator[KafkaAdminClient]:
    with admin_client(settings, kind) as admin, translated(settings):
        try:
            yield admin
        except _LATER as error:
            raise BrokerUnreachable(f"no broker answers for group {settings.group_id} yet: {error}") from error
