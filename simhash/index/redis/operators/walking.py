"""A walk along the log of an index in Redis: its records in the order of insertion, a stretch at a time.

Each stretch is read in one short step, as it is at that moment; between two of them workers go on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simhash.index.interface import Record
from simhash.index.redis.layout import untagged
from simhash.index.redis.operators.inside import Inside

STRETCH = 250
"""Log entries read at once: about a millisecond of Redis."""
UNREADABLE = (ValueError, IndexError, struct.error)
"""What reading a damaged record raises."""


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry of the log.

    Attributes:
        name: the record's (see `Layout`); empty: nothing was ever there.
        fingerprint: None for a page that has a digest only.
        record: what is stored under that name with that `seq`; None when it was removed out of turn.
        damaged: what is stored under that name cannot be read.
    """

    seq: int
    name: bytes
    fingerprint: int | None
    record: Record | None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring entries, and what the index said of itself at the same moment.

    Attributes:
        documents: records stored.
        seq: the last number given.
        removed: records ever removed out of turn.
        first: the seq of the log's first entry; one more than `seq` when it is empty.
        begin: the seq of the first of `entries`, were there one.
    """

    documents: int
    seq: int
    removed: int
    first: int
    begin: int
    entries: tuple[Logged, ...]


def record_of(inside: Inside, name: bytes, value: bytes) -> Record:
    """The record under a name.

    Raises:
        UNREADABLE: it is damaged.
    """
    return inside.layout.record(value, untagged(name) if inside.layout.is_digest(name) else None)


def stretch(inside: Inside, begin: int, count: int) -> Stretch:
    """The log's entries from number `begin` on, at most `count`."""
    return parsed_stretch(inside, inside.run("walk", begin, count))


def parsed_stretch(inside: Inside, answer: Sequence[bytes]) -> Stretch:
    """The stretch in an answer of the script."""
    documents, seq, removed, first, begin = map(int, answer[:5])
    entries = []
    for at, (name, field) in enumerate(zip(answer[5::2], answer[6::2], strict=True), begin):
        entries.append(_logged(inside, at, name, field))
    return Stretch(documents, seq, removed, first, begin, tuple(entries))


def _logged(inside: Inside, seq: int, name: bytes, value: bytes) -> Logged:
    fingerprint = None if inside.layout.is_digest(name) else inside.layout.fingerprint_of(name)
    try:
        record = record_of(inside, name, value) if value else None
    except UNREADABLE:
        return Logged(seq, name, fingerprint, None, True)
    return Logged(seq, name, fingerprint, record if record and record.seq == seq else None)


def walk(inside: Inside, begin: int = 0, last: int | None = None) -> Iterator[Stretch]:
    """All stretches from number `begin` to number `last` (None: the log's end); the last one may be empty."""
    while True:
        found = stretch(inside, begin, STRETCH)
        yield found
        begin = found.begin + len(found.entries)
        if begin > (found.seq if last is None else min(last, found.seq)):
            return
