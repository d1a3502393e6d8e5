"""The dead letter: a record that could not be judged, as it came, with why and from where in its headers.

Header names follow Kafka Connect's convention, so that the tools that read its dead-letter queues read these.
"""

from __future__ import annotations

import xxhash

from worker.judge import Rejected
from worker.records import Headers, Outgoing

PREFIX = "__connect.errors."
MAX_MESSAGE_BYTES = 2000
RECORD_OVERHEAD_BYTES = 512
"""What a record batch of one record adds to its key, value and headers, generously."""


def dead_letter(
    rejection: Rejected, key: bytes | None, value: bytes | None, headers: Headers, topic: str, limit: int
) -> Outgoing:
    """The record for the dead-letter topic, whose largest message is `limit` bytes."""
    reasons = _reasons(rejection)
    kept = [header for header in headers if not header[0].startswith(PREFIX)]
    whole = Outgoing(topic, key, value, kept + reasons)
    if value is None:
        # The client cannot send a record with neither key nor value; a tombstone's letter says what it was.
        return whole._replace(value=b"", headers=[*whole.headers, (PREFIX + "value", b"null")])
    if _size(whole) <= limit:
        return whole
    return Outgoing(topic, _digest(key), _digest(value), reasons)


def _reasons(rejection: Rejected) -> Headers:
    source = rejection.source
    values = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(source.offset),
        "stage": rejection.stage,
        "exception.class.name": rejection.error,
        "exception.message": rejection.message,
    }
    return [(PREFIX + name, text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES]) for name, text in values.items()]


def _digest(data: bytes | None) -> bytes | None:
    """What stands for bytes that are too many: their number and digest."""
    if data is None or len(data) <= RECORD_OVERHEAD_BYTES:
        return data
    return f"{len(data)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(data)}".encode()


def _size(record: Outgoing) -> int:
    headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About the bytes that a record takes in a topic, never less."""
    return _size(Outgoing("", key, value, headers))
