"""The dead letter: a record that could not be judged, as it came, with why and from where in its headers.

Header names follow Kafka Connect's convention, so that the tools that read its dead-letter queues read these.
"""

from __future__ import annotations

import xxhash

from worker.judging.judge import Rejected
from worker.records.passing import Headers, Outgoing

PREFIX = "__connect.errors."
MAX_MESSAGE_BYTES = 2000
RECORD_OVERHEAD_BYTES = 512
"""What a record batch of one record adds to its key, value and headers, generously."""


def dead_letter(
    rejection: Rejected, key: bytes | None, value: bytes | None, headers: Headers, topic: str, limit: int
) -> Outgoing:
    """The record for the dead-letter topic, whose largest message is `limit` bytes.

    What is too large for it is left out, the value first, then the headers, then the key; a digest stands for a value
    or key that is not there, and a header `__connect.errors.value` (`.key`) says so.
    """
    reasons = _reasons(rejection)
    kept = [header for header in headers if not header[0].startswith(PREFIX)]
    whole = Outgoing(topic, key, value, kept + reasons, rejection.source.partition)
    if key is None and value is None:
        # The client cannot send a record with neither; the letter says what it was.
        return whole._replace(value=b"", headers=[*whole.headers, (PREFIX + "value", b"null")])
    without_value = whole._replace(value=_digest(value), headers=[*whole.headers, *_said("value", value)])
    without_headers = without_value._replace(headers=reasons + _said("value", value))
    for letter in (whole, without_value, without_headers):
        if record_size(letter.key, letter.value, letter.headers) <= limit:
            return letter
    return without_headers._replace(key=_digest(key), headers=[*without_headers.headers, *_said("key", key)])


def _said(what: str, data: bytes | None) -> Headers:
    return [] if _digest(data) == data else [(f"{PREFIX}{what}", b"digest")]


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
    return [(PREFIX + name, _cut(text)) for name, text in values.items()]


def _cut(text: str) -> bytes:
    """UTF-8 of at most `MAX_MESSAGE_BYTES`, of whole characters."""
    return text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore").encode()


def _digest(data: bytes | None) -> bytes | None:
    """What stands for bytes that are too many: their number and digest."""
    if data is None or len(data) <= RECORD_OVERHEAD_BYTES:
        return data
    return f"{len(data)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(data)}".encode()


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About the bytes that a record takes in a topic, never less."""
    sizes = sum(len(name.encode()) + len(content or b"") + 10 for name, content in headers)
    return len(key or b"") + len(value or b"") + sizes + RECORD_OVERHEAD_BYTES
