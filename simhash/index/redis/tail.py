"""What a record tells of its page but is not compared by: URL, id, fetch time and length, in as few bytes as they need.

    features: 1 | fetched_at: 4, or 2 + its text | id: 2 + its text | the rest of the URL

What is there, the record's flags say:

    bit 0     the URL begins with https://, and that is not repeated
    bit 1     the rest of the URL is compressed by the index's dictionary (`simhash.index.urls`)
    bit 2     there is the number of features, as `simhash.relation.overlap` has it in a byte
    bit 3     there is an id
    bits 4-5  fetched_at: 0 none, 1 seconds since 1970, 2 its text
    bit 6     the digest is one of raw bytes (of a page with a fingerprint)
    bit 7     the page has no fingerprint

A fetch time is written in seconds when exactly that text comes back; any other is kept as it is. Integers are
big-endian, a 2 is the length in bytes of the text (UTF-8) behind it. A URL that would not get shorter is kept as it is.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from simhash.index.urls import HEAD, UrlCodec
from simhash.relation.overlap import code_of, features_of

_HAS_HEAD, _COMPRESSED, _HAS_FEATURES, _HAS_ID = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SECONDS, _TEXT, RAW, SHORT = 1 << 4, 2 << 4, 1 << 6, 1 << 7
_MAX_SECONDS = (1 << 32) - 1
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Tail(NamedTuple):
    """See the fields of `simhash.index.Record`."""

    url: str
    id: str | None
    fetched_at: str | None
    features: int | None = None


def packed(
    urls: UrlCodec, url: str, id_: str | None, fetched_at: str | None, features: int | None = None
) -> tuple[int, bytes]:
    """Flags, and the bytes of a tail."""
    head = _HAS_HEAD if url.startswith(HEAD) else 0
    flags, time = _packed_time(fetched_at)
    plain = url[len(HEAD) if head else 0 :].encode()
    shorter = urls.compressed(plain)
    rest = plain if shorter is None else shorter
    flags |= head | (0 if shorter is None else _COMPRESSED)
    if features is not None:
        flags, time = flags | _HAS_FEATURES, b"%c%b" % (code_of(features), time)
    if id_ is None:
        return flags, time + rest
    return flags | _HAS_ID, b"%b%b%b" % (time, _with_length(id_), rest)


def unpacked(urls: UrlCodec, flags: int, data: bytes) -> Tail:
    """The inverse of `packed`.

    Raises:
        ValueError, IndexError: these are no bytes of a tail.
    """
    at = 0
    fetched_at = id_ = features = None
    if flags & _HAS_FEATURES:
        features, at = features_of(data[0]), 1
    if flags & _SECONDS:
        fetched_at, at = _time(int.from_bytes(data[at : at + 4])), at + 4
    elif flags & _TEXT:
        fetched_at, at = _text(data, at)
    if flags & _HAS_ID:
        id_, at = _text(data, at)
    rest = urls.decompressed(data[at:]) if flags & _COMPRESSED else data[at:]
    return Tail((HEAD if flags & _HAS_HEAD else "") + rest.decode(), id_, fetched_at, features)


@lru_cache(maxsize=1024)
def _packed_time(text: str | None) -> tuple[int, bytes]:
    """Flags and bytes of a fetch time."""
    if text is None:
        return 0, b""
    seconds = _seconds(text)
    return (_TEXT, _with_length(text)) if seconds is None else (_SECONDS, struct.pack(">I", seconds))


def _seconds(text: str) -> int | None:
    """Seconds since 1970 when they give back exactly this text."""
    try:
        seconds = int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _MAX_SECONDS and _time(seconds) == text else None


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME)


def _with_length(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _text(data: bytes, at: int) -> tuple[str, int]:
    """The text behind its length at `at`, and where it ends."""
    end = at + 2 + int.from_bytes(data[at : at + 2])
    return data[at + 2 : end].decode(), end
