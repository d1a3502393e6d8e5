"""Verdicts and dead letters as a rebuild reads them: from their topics, or from files with one verdict a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from simhash.index.rows import TIMES, Takedown, decoded_takedown
from worker.errors import InputError
from worker.lines import lines_in
from worker.records.dead_letter import read_letter
from worker.records.verdict import Verdict, decode_told
from worker.settings import Settings
from worker.stream.kafka.replay import kept_from_ms, replayed

T = TypeVar("T")

LATEST_MS = 3_600_000
"""So long after its number was given a verdict is written at the latest, unless its worker was killed."""


class CommittedVerdict(NamedTuple):
    """A committed verdict, and when it was written (milliseconds since the epoch)."""

    verdict: Verdict
    written_ms: int


class Settled(NamedTuple):
    """A record that ended as a dead letter: nothing of it is stored, but it must not be judged again."""

    topic: str
    partition: int
    offset: int


Answered = CommittedVerdict | Settled


@dataclass
class Strays:
    """What stands among verdicts or takedowns and is none: an error, or passed over.

    Attributes:
        passed_over: whether it is.
        count, first: how many were, and the first one in words.
    """

    passed_over: bool
    count: int = 0
    first: str = ""

    def read(self, decode: Callable[[bytes], T], line: bytes, kind: str, place: object) -> T | None:
        """What a line says; None: it is no `kind`, and is passed over.

        Raises:
            InputError: it is none, and that is an error.
        """
        try:
            return decode(line)
        except msgspec.DecodeError as error:
            what = f"{place} is no {kind}: {error}"
        if not self.passed_over:
            raise InputError(f"{what} (--partial goes on without it)")
        self.count += 1
        self.first = self.first or what
        return None


def in_file(path: Path, strays: Strays) -> Iterator[CommittedVerdict]:
    """The verdicts of a file as `simhash-dedup file` writes them (also .gz, .zst).

    A verdict has no time of its own: it is taken to be written when its page came to the topic (`source.timestamp`),
    and where it came from a file, or its producer stamped no time that can be, when this file was last changed.

    Raises:
        InputError: it cannot be read, or a line is no verdict.
    """
    changed_ms = 0
    for number, line in lines_in(path):
        changed_ms = changed_ms or int(path.stat().st_mtime * 1000)
        if verdict := strays.read(decode_told, line, "verdict", f"{path}: line {number}"):
            stamped = verdict.source.timestamp
            yield CommittedVerdict(verdict, changed_ms if stamped is None or not 0 <= stamped < TIMES else stamped)


def whole_from_ms(settings: Settings) -> int:
    """From which time on the topic has all verdicts of the numbers that were given; 0: none was ever deleted from it.

    To be asked when all was read: Kafka may delete meanwhile.

    Raises:
        BrokerError, BrokerUnreachable: the topic cannot be read.
    """
    first_ms = kept_from_ms(settings, settings.verdict_topic)
    return first_ms and first_ms + LATEST_MS


def taken_down(settings: Settings, files: Iterable[Path], strays: Strays) -> list[Takedown]:
    """What operators took down; files as in `in_file`. Where strays are passed over, a topic's lost begin is.

    Raises:
        InputError: a file cannot be read, or a line is no takedown.
        BrokerError, BrokerUnreachable: the takedown topic is set and cannot be read, or begins too late.
    """
    lines = [(f"{path}: line {number}", line) for path in files for number, line in lines_in(path)]
    if topic := settings.takedown_topic:
        told = replayed(settings, topic, whole=not strays.passed_over)
        lines += [(str(each.record.source), each.record.value or b"") for each in told]
    read = (strays.read(decoded_takedown, line, "takedown", place) for place, line in lines if line.strip())
    return [each for each in read if each is not None]


def in_topics(settings: Settings, strays: Strays) -> Iterator[Answered]:
    """All committed verdicts and dead letters, up to the ends that their topics have now.

    Raises:
        BrokerError, BrokerUnreachable: a topic cannot be read.
        InputError: what is in the verdict topic is no verdict.
    """
    for received in replayed(settings, settings.verdict_topic):
        source, value = received.record.source, received.record.value
        if verdict := strays.read(decode_told, value or b"", "verdict", source):
            yield CommittedVerdict(verdict, max(0, source.timestamp or 0))
    for received in replayed(settings, settings.dead_letter_topic):
        if letter := read_letter(received):
            yield Settled(letter.topic, letter.partition, letter.offset)
