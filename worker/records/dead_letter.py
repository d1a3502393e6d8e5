"""The dead letter: a record that could not be judged, as it came, with why and from where in its headers.

Header names follow Kafka Connect's convention, so that the tools that read its dead-letter queues read these.

A letter whose record was sent back to the input has a *mark* behind it in the same partition: an empty record with the
header `simhash-dedup.replayed`, which names the letter. A record that came in with that header becomes no mark, but a
letter: it has reasons. The record that was sent back says how often that happened, in the header
`simhash-dedup.replays`; if it fails once more, its new letter says so too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from worker.judging.judge import Rejected
from worker.records.passing import RECORD_OVERHEAD_BYTES, Headers, Outgoing, Received, Unread, record_size

PREFIX = "__connect.errors."
REPLAYS = "simhash-dedup.replays"
REPLAYED = "simhash-dedup.replayed"
REASONS = ("topic", "partition", "offset", "stage", "exception.class.name", "exception.message")
MAX_MESSAGE_BYTES = 2000
_PLACE = re.compile(r"([0-9]{1,10})/([0-9]{1,19})")
_NUMBER = re.compile("[0-9]{1,19}")


class Place(NamedTuple):
    """Where a letter stands in the dead-letter topic; written `0/12`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def read(cls, text: str) -> Place:
        """The place so written; ValueError: it is none."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no place of a letter: write partition/offset, as in 0/12")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it is read.

    Attributes:
        written_ms: when, in milliseconds since the epoch; None: nobody stamped it.
        topic, partition, offset: of the record that could not be judged.
        key, value, headers: the record's own.
        lacks: which of these are not as they were, because they were too large, or cannot be sent.
        replays: how often the record was sent back to the input before it came to this letter.
    """

    place: Place
    written_ms: int | None
    topic: str
    partition: int
    offset: int
    stage: str
    error: str
    message: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    lacks: tuple[str, ...]
    replays: int

    def sent_back(self, partition: int | None) -> Outgoing:
        """The record as it came, for that partition of its topic, with one replay more to its name."""
        headers = [*self.headers, (REPLAYS, str(self.replays + 1).encode())]
        return Outgoing(self.topic, self.key, self.value, headers, partition)

    def mark(self, topic: str) -> Outgoing:
        """What says, in the dead-letter topic, that it was sent back."""
        return Outgoing(topic, None, b"", [(REPLAYED, str(self.place).encode())], self.place.partition)


def dead_letter(
    rejection: Rejected, key: bytes | None, value: bytes | None, headers: Headers, topic: str, limit: int
) -> Outgoing:
    """The record for the dead-letter topic, whose largest message is `limit` bytes.

    What is too large for it is left out, the value first, then the headers, then the key; a digest stands for a value
    or key that is not there, and a header `__connect.errors.value` (`.key`, `.headers`) says so.
    """
    reasons = _reasons(rejection)
    kept = [header for header in headers if not header[0].startswith(PREFIX)]
    dropped = [(PREFIX + "headers", b"dropped")] if kept else []
    if any(isinstance(content, Unread) for _, content in kept):
        kept = dropped
    if key is None and value is None:
        value = b""  # the client cannot send a record with neither; the letter says what it was
        reasons.append((PREFIX + "value", b"null"))

    def letter(key: bytes | None, value: bytes | None, headers: Headers) -> Outgoing:
        said = _said("value", value) + _said("key", key)
        return Outgoing(topic, _plain(key), _plain(value), headers + reasons + said, rejection.source.partition)

    for found in (letter(key, value, kept), letter(key, _digest(value), kept), letter(key, _digest(value), dropped)):
        if record_size(found.key, found.value, found.headers) <= limit:
            return found
    return letter(_digest(key), _digest(value), dropped)


def read_letter(received: Received) -> Letter | None:
    """The dead letter in a record of its topic; None: it is a mark, or another program's."""
    source, key, value = received.record[:3]
    said = {name: content.decode("utf-8", "replace") for name, content in received.headers}
    topic, partition, offset, stage, error, message = (said.get(PREFIX + name, "") for name in REASONS)
    if not (topic and _NUMBER.fullmatch(partition) and _NUMBER.fullmatch(offset)):
        return None
    return Letter(
        Place(source.partition, source.offset),
        source.timestamp,
        topic,
        int(partition),
        int(offset),
        stage,
        error,
        message,
        key,
        value,
        [header for header in received.headers if not header[0].startswith(PREFIX) and header[0] != REPLAYS],
        tuple(what for what in ("key", "value", "headers") if PREFIX + what in said),
        _replays(said.get(REPLAYS, "")),
    )


def read_mark(received: Received) -> Place | None:
    """The letter that a mark names; None: it is no mark."""
    headers = dict(received.headers)
    if PREFIX + REASONS[0] in headers:
        return None
    try:
        return Place.read(headers[REPLAYED].decode())
    except (KeyError, ValueError):
        return None


def _replays(said: str) -> int:
    """How often: a header that a stranger may have written."""
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else 0


def _plain(data: bytes | None) -> bytes | None:
    """As the client takes it, which looks at the type."""
    return None if data is None else bytes(data)


def _said(what: str, data: bytes | None) -> Headers:
    return [(f"{PREFIX}{what}", b"digest")] if isinstance(data, Unread) else []


def _reasons(rejection: Rejected) -> Headers:
    source = rejection.source
    place = (source.topic, str(source.partition), str(source.offset))
    values = (*place, rejection.stage, rejection.error, rejection.message)
    return [(PREFIX + name, _cut(text)) for name, text in zip(REASONS, values, strict=True)]


def _cut(text: str) -> bytes:
    """UTF-8 of at most `MAX_MESSAGE_BYTES`, of whole characters."""
    return text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore").encode()


def _digest(data: bytes | None) -> bytes | None:
    """What stands for bytes that are too many: their number and digest."""
    if data is None or len(data) <= RECORD_OVERHEAD_BYTES:
        return data
    return Unread.of(len(data), xxhash.xxh3_128(data))
