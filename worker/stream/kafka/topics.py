"""The topics: what they should be like, making them, and saying what is wrong with those that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import kafka.errors as errors
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from worker.errors import BrokerError
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated

DAY_MS = 86_400_000
FOR_EVER_DAYS = 36_500
"""What was deleted must stay deleted in every rebuild to come."""
MIB = 1 << 20
LARGEST_VERDICT = MIB
"""Settings bound URL, id, key and headers so that a verdict, every character escaped, stays below this."""
LEAST_DEAD_LETTER = 8 << 10
"""A letter whose key, value and headers are left out still has its reasons."""
BROKER_DEFAULT_MESSAGE_BYTES = 1_048_588


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What a topic should be like."""

    name: str
    purpose: str
    partitions: int
    retention_days: int
    max_message_bytes: int

    def configs(self) -> dict[str, str]:
        """The topic's settings, as Kafka names them."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_days * DAY_MS),
            "max.message.bytes": str(self.max_message_bytes),
        }


def plans(settings: Settings, partitions: int = 12, retention_days: int = 30) -> list[TopicPlan]:
    """The topics that these settings need.

    A JSON page is larger than the page in it (escapes, base64), so the limit is taken half as large again.
    """
    page = settings.max_page_bytes * 3 // 2 + MIB
    found = [
        TopicPlan(settings.input_topic, "crawled pages", partitions, 7, page),
        TopicPlan(settings.verdict_topic, "verdicts", partitions, retention_days, LARGEST_VERDICT),
        TopicPlan(settings.dead_letter_topic, "dead letters", 1, retention_days, page + MIB),
    ]
    if settings.unique_topic:
        found.append(TopicPlan(settings.unique_topic, "unique pages", partitions, 7, page))
    if settings.takedown_topic:
        found.append(TopicPlan(settings.takedown_topic, "takedowns", 1, FOR_EVER_DAYS, LARGEST_VERDICT))
    return found


def ensure_topics(settings: Settings, wanted: list[TopicPlan], replication: int, dry_run: bool) -> Iterator[str]:
    """Create the topics that are missing; yield a line for each, and for each thing wrong with one that exists.

    Lines that begin with "wrong:" or "missing:" are what remains to be done.
    """
    with admin_client(settings) as admin, translated(settings):
        found = existing(admin, [plan.name for plan in wanted])
        for plan in wanted:
            if plan.name in found:
                yield from _judged(admin, plan, found[plan.name])
            elif dry_run:
                yield f"missing: {plan.name} ({plan.purpose})"
            else:
                _create(admin, plan, replication)
                yield f"created: {plan.name} ({plan.purpose}), {plan.partitions} partitions"


def largest_messages(settings: Settings) -> dict[str, int]:
    """Each output topic's `max.message.bytes`.

    Raises:
        BrokerError: a topic is missing; the verdict topic is compacted (it would forget verdicts); one takes less than
            what must go there.
        BrokerUnreachable: nobody answers.
    """
    names = [plan.name for plan in plans(settings)]
    with admin_client(settings) as admin, translated(settings):
        missing = [name for name in names if name not in existing(admin, names)]
        if missing:
            raise BrokerError(f"topic {', '.join(missing)} does not exist: `simhash-dedup topics` creates it")
        configs = {name: _configs(admin, name) for name in names}
    if "compact" in configs[settings.verdict_topic].get("cleanup.policy", ""):
        raise BrokerError(
            f"topic {settings.verdict_topic} has cleanup.policy compact: it would forget verdicts; set it to delete"
        )
    largest = {name: _max_bytes(config) for name, config in configs.items()}
    for name, least in ((settings.verdict_topic, LARGEST_VERDICT), (settings.dead_letter_topic, LEAST_DEAD_LETTER)):
        if largest[name] < least:
            raise BrokerError(f"topic {name} has max.message.bytes {largest[name]:,}: set it to {least:,} or more")
    del largest[settings.input_topic]
    return largest


def topic_id(admin: KafkaAdminClient, name: str) -> str | None:
    """The id that Kafka gave to this incarnation of a topic; None when it is not there."""
    described = [topic for topic in admin.describe_topics([name]) if not topic["error_code"]]
    return str(described[0]["topic_id"]) if described else None


def existing(admin: KafkaAdminClient, names: list[str]) -> dict[str, int]:
    """The number of partitions of each topic that exists."""
    return {t["name"]: len(t["partitions"]) for t in admin.describe_topics(names) if not t["error_code"]}


def _judged(admin: KafkaAdminClient, plan: TopicPlan, partitions: int) -> Iterator[str]:
    config = _configs(admin, plan.name)
    wrong = list(_faults(plan, config))
    yield from (f"wrong: {plan.name}: {fault}" for fault in wrong)
    if not wrong:
        yield f"fine: {plan.name} ({plan.purpose}), {partitions} partitions"


def _faults(plan: TopicPlan, config: Mapping[str, str]) -> Iterator[str]:
    if "compact" in config.get("cleanup.policy", ""):
        yield "cleanup.policy is compact, which drops records; set it to delete"
    if (limit := _max_bytes(config)) < plan.max_message_bytes:
        yield f"max.message.bytes is {limit:,}; set it to {plan.max_message_bytes:,} or more"
    retention = int(config.get("retention.ms", "-1"))
    if 0 <= retention < DAY_MS:
        yield f"retention.ms is {retention:,}: a worker that stands still for a day loses records"


def _configs(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    described = admin.describe_configs([ConfigResource("topic", name)], config_filter="all")
    return _values(described)


def _values(described: Any) -> dict[str, str]:
    """The `name: value` pairs in an answer of describe_configs."""
    ((_, resources),) = described.items()
    ((_, configs),) = resources.items()
    return {name: str(entry["value"] if isinstance(entry, dict) else entry) for name, entry in configs.items()}


def _max_bytes(config: Mapping[str, str]) -> int:
    return int(config.get("max.message.bytes", BROKER_DEFAULT_MESSAGE_BYTES))


def _create(admin: KafkaAdminClient, plan: TopicPlan, replication: int) -> None:
    options = {"num_partitions": plan.partitions, "replication_factor": replication, "configs": plan.configs()}
    try:
        admin.create_topics({plan.name: options}, wait_for_metadata=True)
    except errors.BrokerResponseError as error:
        # Its text quotes the whole request and response.
        reason = f"{error.description} ({type(error).__name__})"
        raise BrokerError(f"topic {plan.name} cannot be created: {reason}") from error
