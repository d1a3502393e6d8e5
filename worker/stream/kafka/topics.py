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
FOR_EVER_MS = 36_500 * DAY_MS
MIB = 1 << 20
LARGEST_VERDICT = MIB
"""Settings bound URL, id, key and headers so that a verdict, every character escaped, stays below this."""
LEAST_DEAD_LETTER = 8 << 10
"""A letter whose key, value and headers are left out still has its reasons."""
BROKER_DEFAULT_MESSAGE_BYTES = 1_048_588
_REFUSED = errors.TopicAuthorizationFailedError.errno
_RIGHTS = "deploy/kafka/acls.sh has what workers and operators need"
_LACKING = "what is older would be missing from a rebuild"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What a topic should be like.

    Attributes:
        retention_ms: how long it keeps what is in it.
        right: what a worker does with it: READ, WRITE, or only DESCRIBE.
        needed_ms: how long at least: a worker may stand still for a day, and what a rebuild needs is needed as long as
            the index remembers.
        compacted: it keeps the last record of each key, for ever.
    """

    name: str
    purpose: str
    partitions: int
    retention_ms: int
    max_message_bytes: int
    right: str
    needed_ms: int = DAY_MS
    compacted: bool = False

    def configs(self) -> dict[str, str]:
        """The topic's settings, as Kafka names them."""
        kept = {"cleanup.policy": "compact"}
        if not self.compacted:
            kept = {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms)}
        return kept | {"max.message.bytes": str(self.max_message_bytes)}


def plans(settings: Settings, partitions: int = 12, retention_days: int | None = None) -> list[TopicPlan]:
    """The topics that these settings need.

    Args:
        retention_days: how long verdicts and dead letters are kept; None: dead letters for 30 days, verdicts as long as
            the index remembers, for a rebuild stores nothing else.

    A JSON page is larger than the page in it (escapes, base64), so the limit is taken half as large again.
    """
    page = settings.max_page_bytes * 3 // 2 + MIB
    week, remembered = 7 * DAY_MS, _remembered_ms(settings)
    given = retention_days and retention_days * DAY_MS
    verdicts, letters = given or remembered, given or 30 * DAY_MS
    found = [
        TopicPlan(settings.input_topic, "crawled pages", partitions, week, page, "READ"),
        TopicPlan(settings.verdict_topic, "verdicts", partitions, verdicts, LARGEST_VERDICT, "WRITE", remembered),
        TopicPlan(settings.dead_letter_topic, "dead letters", 1, letters, page + MIB, "WRITE"),
    ]
    if settings.unique_topic:
        found.append(TopicPlan(settings.unique_topic, "unique pages", partitions, week, page, "WRITE"))
    if settings.takedown_topic:
        found.append(
            TopicPlan(settings.takedown_topic, "takedowns", 1, FOR_EVER_MS, LARGEST_VERDICT, "DESCRIBE", FOR_EVER_MS)
        )
    return found


def hosts_plan(settings: Settings) -> list[TopicPlan]:
    """The topic of hosts, where there is to be one; no worker touches it."""
    if settings.hosts_topic is None:
        return []
    return [TopicPlan(settings.hosts_topic, "hosts", 1, FOR_EVER_MS, LARGEST_VERDICT, "WRITE", compacted=True)]


def _remembered_ms(settings: Settings) -> int:
    """How long an index remembers a page: of a number of documents it cannot be known."""
    return FOR_EVER_MS if settings.max_age is None else max(DAY_MS, int(settings.max_age * 1000))


def kept_too_shortly(settings: Settings) -> list[str]:
    """What in the topics of verdicts and takedowns will be deleted while a rebuild needs it, a line each.

    Raises:
        BrokerUnreachable: a broker does not answer.
    """
    needed = [plan for plan in plans(settings) if plan.needed_ms > DAY_MS]
    with admin_client(settings) as admin, translated(settings):
        there = existing(admin, [plan.name for plan in needed])
        found = {plan.name: _deleted(plan, _configs(admin, plan.name)) for plan in needed if plan.name in there}
        return [f"topic {name}: {line}" for name, lines in found.items() for line in lines]


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
        BrokerError: a topic is missing; the user may not do with one what a worker does; that of verdicts or of dead
            letters is compacted, or takes less than what must go there.
        BrokerUnreachable: a broker does not answer.
    """
    wanted = plans(settings)
    names = [plan.name for plan in wanted]
    with admin_client(settings) as admin, translated(settings):
        described = _described(admin, names)
        missing = [name for name in names if name not in described]
        if missing:
            raise BrokerError(f"topic {', '.join(missing)} does not exist: `simhash-dedup topics` creates it")
        _refuse_without_rights(wanted, described)
        configs = {name: _configs(admin, name) for name in names}
    largest = {name: _max_bytes(config) for name, config in configs.items()}
    for name, least in ((settings.verdict_topic, LARGEST_VERDICT), (settings.dead_letter_topic, LEAST_DEAD_LETTER)):
        if "compact" in configs[name].get("cleanup.policy", ""):
            raise BrokerError(f"topic {name} has cleanup.policy compact: it would forget answers; set it to delete")
        if largest[name] < least:
            raise BrokerError(f"topic {name} has max.message.bytes {largest[name]:,}: set it to {least:,} or more")
    del largest[settings.input_topic]
    return largest


def topic_id(admin: KafkaAdminClient, name: str) -> str | None:
    """The id that Kafka gave to this incarnation of a topic; None when it is not there."""
    described = [topic for topic in admin.describe_topics([name]) if not topic["error_code"]]
    return str(described[0]["topic_id"]) if described else None


def existing(admin: KafkaAdminClient, names: list[str]) -> dict[str, int]:
    """The number of partitions of each topic that exists.

    Raises:
        BrokerError: the user may not know.
    """
    return {name: len(topic["partitions"]) for name, topic in _described(admin, names).items()}


def _described(admin: KafkaAdminClient, names: list[str]) -> dict[str, Any]:
    described = admin.describe_topics(names)
    refused = [topic["name"] for topic in described if topic["error_code"] == _REFUSED]
    if refused:
        raise BrokerError(f"Kafka refuses this user the topic {', '.join(refused)}: it may not DESCRIBE it. {_RIGHTS}")
    return {topic["name"]: topic for topic in described if not topic["error_code"]}


def _refuse_without_rights(wanted: list[TopicPlan], described: Mapping[str, Any]) -> None:
    """Before a page is judged: what is refused at its commit is judged in vain."""
    for plan in wanted:
        rights = described[plan.name]["authorized_operations"]
        if rights and plan.right not in rights:
            what = "READ from" if plan.right == "READ" else f"{plan.right} to"
            raise BrokerError(f"Kafka refuses this user: it may not {what} topic {plan.name}. {_RIGHTS}")


def _judged(admin: KafkaAdminClient, plan: TopicPlan, partitions: int) -> Iterator[str]:
    config = _configs(admin, plan.name)
    wrong = list(_faults(plan, config))
    yield from (f"wrong: {plan.name}: {fault}" for fault in wrong)
    if not wrong:
        yield f"fine: {plan.name} ({plan.purpose}), {partitions} partitions"


def _faults(plan: TopicPlan, config: Mapping[str, str]) -> Iterator[str]:
    policy = config.get("cleanup.policy", "")
    if not plan.compacted and "compact" in policy:
        yield "cleanup.policy is compact, which drops records; set it to delete"
    if plan.compacted and policy != "compact":
        yield f"cleanup.policy is {policy}, which drops hosts; set it to compact"
    if (limit := _max_bytes(config)) < plan.max_message_bytes:
        yield f"max.message.bytes is {limit:,}; set it to {plan.max_message_bytes:,} or more"
    if not plan.compacted:
        yield from _deleted(plan, config)


def _deleted(plan: TopicPlan, config: Mapping[str, str]) -> Iterator[str]:
    retention, most = int(config.get("retention.ms", "-1")), int(config.get("retention.bytes", "-1"))
    if 0 <= retention < DAY_MS:
        yield f"retention.ms is {retention:,}: a worker that stands still for a day loses records"
    elif 0 <= retention < plan.needed_ms:
        long = "for ever" if plan.needed_ms == FOR_EVER_MS else f"for {plan.needed_ms:,} ms"
        yield f"retention.ms is {retention:,}, and the index remembers {long}: {_LACKING}; set it to {plan.needed_ms}"
    if plan.needed_ms > DAY_MS and most >= 0:
        yield f"retention.bytes is {most:,}: {_LACKING}; set it to -1"


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
