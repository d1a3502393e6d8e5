"""The dead-letter topic as operators use it: read whole or at one place, and letters sent back to the input.

A letter's record and the mark that says so are one transaction, under a transactional id that all replays of a group
share. Who begins fences who was there before, and reads the marks only then: so no letter is sent back twice, by
whomever and however often a replay is begun, ended or killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from worker.errors import BrokerError
from worker.records.dead_letter import Letter, Place, read_letter, read_mark
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated
from worker.stream.kafka.replay import record_at, replayed
from worker.stream.kafka.topics import LEAST_DEAD_LETTER, existing
from worker.stream.kafka.transactions import Transactions

Send = Callable[[Sequence[Letter]], None]


def all_letters(settings: Settings) -> Iterator[Letter]:
    """All dead letters, up to the end that the topic has now; raises as `replayed`."""
    for received in replayed(settings, settings.dead_letter_topic):
        if letter := read_letter(received):
            yield letter


def sent_back(settings: Settings) -> set[Place]:
    """The letters whose records were sent back to the input; raises as `replayed`."""
    marks = map(read_mark, replayed(settings, settings.dead_letter_topic))
    return {place for place in marks if place is not None}


def letter_at(settings: Settings, place: Place) -> Letter | None:
    """The letter at a place; None: there is none. Raises as `replayed`."""
    received = record_at(settings, settings.dead_letter_topic, place.partition, place.offset)
    return read_letter(received) if received else None


@contextmanager
def sending(settings: Settings) -> Iterator[Send]:
    """What sends letters back, all that it is given or none. Other replays of this group end here.

    Raises (it too): BrokerError: Kafka refuses, or a topic is missing; BrokerUnreachable: a broker does not answer.
    """
    topics = [settings.input_topic, settings.dead_letter_topic]
    with admin_client(settings) as admin, translated(settings):
        there = existing(admin, topics)
    if missing := [topic for topic in topics if topic not in there]:
        raise BrokerError(f"topic {', '.join(missing)} does not exist: `simhash-dedup topics` creates it")
    partitions = there[settings.input_topic]

    def send(letters: Sequence[Letter]) -> None:
        back = [each.sent_back(each.partition if each.partition < partitions else None) for each in letters]
        marks = [each.mark(settings.dead_letter_topic) for each in letters]
        with translated(settings):
            transactions.commit([*back, *marks], {}, None, lambda _: None)

    with translated(settings):
        # No topic takes less than the least dead letter, so no batch of several records can be too large.
        largest = {settings.input_topic: LEAST_DEAD_LETTER}
        transactions = Transactions(settings, transactional_id(settings), largest)
    try:
        yield send
    finally:
        transactions.close()


def transactional_id(settings: Settings) -> str:
    """Of all replays of a group, and of no worker: those end in a number."""
    return f"{settings.transactional_id or settings.group_id}-dlq-replay"
