"""The hosts topic: a record a host, under its name, kept up to date with the verdict topic.

Beside the hosts lies, under a key that no host has, up to which offset of each partition verdicts are counted in them.
Both change in one transaction, so a verdict is counted once, whenever this ends and begins again; and who begins fences
who was there before, and only then reads what there is. So there is no consumer group, and nothing to expire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from simhash.decoding import Decoder
from worker.errors import BrokerError
from worker.hosts import Hosts, decoded
from worker.records.passing import Outgoing, Received, runs
from worker.records.verdict import Verdict, decode
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated
from worker.stream.kafka.replay import replayed
from worker.stream.kafka.topics import existing, topic_id
from worker.stream.kafka.transactions import Transactions

log = logging.getLogger(__name__)

PLACE_KEY = b"#read"
"""No host's name begins so."""
VERDICTS_AT_ONCE = 5_000
BYTES_AT_ONCE = 16 << 20
PRODUCER_BYTES = 1 << 20


class CountedUpTo(msgspec.Struct):
    """How far the verdict topic is counted.

    Attributes:
        topic, id: its name, and Kafka's own id of this incarnation of it.
        offsets: of each partition the next one.
    """

    topic: str
    id: str
    offsets: dict[int, int]


_read_up_to = Decoder(CountedUpTo)


class HostsTopic:
    """See the module; made by `keeping`."""

    def __init__(
        self, settings: Settings, topic: str, transactions: Transactions, read: CountedUpTo, hosts: Hosts
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._transactions = transactions
        self._read = read
        self.hosts = hosts

    def catch_up(self, is_over: Callable[[], bool]) -> int:
        """Count the verdicts up to the end that their topic has now, or until it is over; how many they were.

        Raises:
            BrokerError: a topic cannot be read or written.
            BrokerUnreachable, SessionLost, Fenced: see `worker.errors`.
        """
        counted = 0
        coming = replayed(self._settings, self._read.topic, begins=self._read.offsets)
        for received in runs(coming, _size, BYTES_AT_ONCE, VERDICTS_AT_ONCE):
            counted += self._count(received)
            if is_over():
                break
        return counted

    def _count(self, received: Sequence[Received]) -> int:
        for each in received:
            source = each.record.source
            self._read.offsets[source.partition] = source.offset + 1
        verdicts = _verdicts(received)
        changed = self.hosts.add(verdicts)
        self._write({name.encode(): line for name, line in changed.items()})
        return len(verdicts)

    def forget(self) -> None:
        """Begin anew: no hosts, and nothing read."""
        gone = dict.fromkeys(name.encode() for name in self.hosts.names())
        self.hosts, self._read.offsets = Hosts(), {}
        self._write(gone)

    def _write(self, records: Mapping[bytes, bytes | None]) -> None:
        place = {PLACE_KEY: msgspec.json.encode(self._read)}
        outgoing = [Outgoing(self._topic, key, value, [], 0) for key, value in {**records, **place}.items()]
        with translated(self._settings):
            self._transactions.commit(outgoing, {}, None, lambda _: None)


def _size(received: Received) -> int:
    return received.record.size


def _verdicts(received: Sequence[Received]) -> list[Verdict]:
    """Those that are any; the others are passed over, for they would stand in the way for ever."""
    found, strays = [], []
    for each in received:
        try:
            found.append(decode(each.record.value or b""))
        except msgspec.DecodeError as error:
            strays.append(f"{each.record.source}: {error}")
    if strays:
        log.warning(
            "%d of %d records are no verdicts and not counted, the first %s", len(strays), len(received), strays[0]
        )
    return found


@contextmanager
def keeping(settings: Settings, topic: str, afresh: bool = False) -> Iterator[HostsTopic]:
    """The hosts topic, for as long as nobody else begins with it.

    Args:
        afresh: forget what is in it.

    Raises:
        BrokerError: a topic is missing or refused; or the verdict topic is another than the one that was read.
        BrokerUnreachable: a broker does not answer.
    """
    names = [settings.verdict_topic, topic]
    with admin_client(settings) as admin, translated(settings):
        there = existing(admin, names)
        if missing := [name for name in names if name not in there]:
            raise BrokerError(f"topic {', '.join(missing)} does not exist: `simhash-dedup topics` creates it")
        now = CountedUpTo(settings.verdict_topic, topic_id(admin, settings.verdict_topic) or "", {})
    with translated(settings):
        transactions = Transactions(settings, transactional_id(settings), {topic: PRODUCER_BYTES})
    try:
        read, hosts = _restored(settings, topic)
        kept = HostsTopic(settings, topic, transactions, now if read is None or afresh else read, hosts)
        if afresh:
            kept.forget()
        elif read is not None and (read.topic, read.id) != (now.topic, now.id):
            raise BrokerError(
                f"topic {topic} counts the verdicts of another topic than {now.topic} as it is now ({read.topic}, id "
                f"{read.id}): --afresh begins anew"
            )
        yield kept
    finally:
        transactions.close()


def _restored(settings: Settings, topic: str) -> tuple[CountedUpTo | None, Hosts]:
    """What the topic holds."""
    records: dict[bytes, bytes] = {}
    for (_, key, value, *_), _ in replayed(settings, topic):
        if value:
            records[key or b""] = value
        else:
            records.pop(key or b"", None)
    place = records.pop(PLACE_KEY, None)
    try:
        read = None if place is None else _read_up_to.decode(place)
        return read, Hosts({decoded(line).host: line for line in records.values()})
    except msgspec.DecodeError as error:
        raise BrokerError(f"topic {topic} holds what is no host: {error}. Delete it and make it again") from error


def transactional_id(settings: Settings) -> str:
    """Of all that keep the hosts of a group, and of no worker: those end in a number."""
    return f"{settings.transactional_id or settings.group_id}-hosts"
