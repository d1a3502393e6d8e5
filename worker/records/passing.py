"""What passes the pipeline's borders: a page, a record as it came, a record to send. Plain values, no client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import xxhash

T = TypeVar("T")
Headers = list[tuple[str, bytes]]
RECORD_OVERHEAD_BYTES = 512
"""What a record batch of one record adds to its key, value and headers, generously."""

HEADER_OVERHEAD_BYTES = 10
"""What a header adds to its name and value, generously: two numbers say how long these are."""


class Source(NamedTuple):
    """Where a record came from: a topic's partition and offset, or a file (its digest as topic) and record number."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}"


class Unread(bytes):
    """What stands for bytes that are too many to be kept or sent: their number and digest, as people read it."""

    @classmethod
    def of(cls, size: int, digest: xxhash.xxh3_128) -> Unread:
        """That of so many bytes."""
        return cls(f"{size} bytes, xxh3_128 {digest.hexdigest()}".encode())


def size_of(data: bytes | None) -> int:
    """How many bytes a key, a value or a header has, or had."""
    if isinstance(data, Unread):
        return int(data.split()[0])
    return len(data or b"")


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About the bytes that a record takes in a topic, never less."""
    sizes = sum(len(name.encode()) + len(content or b"") + HEADER_OVERHEAD_BYTES for name, content in headers)
    return len(key or b"") + len(value or b"") + sizes + RECORD_OVERHEAD_BYTES


@dataclass(frozen=True)
class Page:
    """One crawled page.

    Attributes:
        content: the page's bytes; UTF-8 where the record gave characters.
        is_html: whether text must be extracted from it.
        charset: what the record declares about `content`.
        is_utf8: the record gave characters, so there is no charset to find.
    """

    url: str
    content: bytes
    is_html: bool
    charset: str | None = None
    id: str | None = None
    fetched_at: str | None = None
    is_utf8: bool = False


class RawRecord(NamedTuple):
    """A record as it came.

    Attributes:
        page: when its container (a WARC, a directory) has already told what is what in it.
        whole: what its container has of it, for who writes it on: the row of a table (Parquet, CSV), all columns; the
            records of a WARC. None: nobody asked.
    """

    source: Source
    key: bytes | None
    value: bytes | None
    page: Page | None = None
    whole: Any = None

    @property
    def size(self) -> int:
        """Bytes of its value."""
        return len(self.value or b"")


class Received(NamedTuple):
    """A record of a topic, with its headers."""

    record: RawRecord
    headers: Headers


class Outgoing(NamedTuple):
    """A record to send.

    Attributes:
        partition: the one that its page came from; it goes to the same, where the topic has as many as the input.
            None: the key decides.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None


def runs(items: Iterable[T], size: Callable[[T], int], most_bytes: int, most: int | None = None) -> Iterator[list[T]]:
    """The items in their order, in runs of at most `most_bytes` and `most` items; what is larger stands alone.

    Args:
        size: an item's bytes.
        most: None: any number.
    """
    run: list[T] = []
    total = 0
    for item in items:
        own = size(item)
        if run and (len(run) == most or total + own > most_bytes):
            yield run
            run, total = [], 0
        run.append(item)
        total += own
    if run:
        yield run
