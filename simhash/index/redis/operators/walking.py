"""A walk along an index in Redis: its records in the order of insertion, a stretch at a time.

Each stretch is read in one short step, as it is at that moment; between two of them workers go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simhash.errors import IndexDamaged
from simhash.index.interface import Record
from simhash.index.redis.operators.inside import Inside

STRETCH = 250
"""Numbers read at once: about a millisecond of Redis."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A number of an index.

    Attributes:
        fingerprint: None for a page that has a digest only.
        record: None when it was removed out of turn.
        damaged: what is stored under that number cannot be read, which is this error.
    """

    seq: int
    fingerprint: int | None
    record: Record | None
    damaged: IndexDamaged | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring numbers, and what the index said of itself at the same moment.

    Attributes:
        documents: records stored.
        seq: the last number given.
        removed: records ever removed out of turn.
        first: no record has a number below it; one more than `seq` when there is none at all.
        begin: the first of `entries`, were there one.
    """

    documents: int
    seq: int
    removed: int
    first: int
    begin: int
    entries: tuple[Numbered, ...]


def stretch(inside: Inside, begin: int, count: int) -> Stretch:
    """The numbers from `begin` on, at most `count`."""
    return parsed_stretch(inside, inside.run("walk", begin, count))


def parsed_stretch(inside: Inside, answer: Sequence[bytes]) -> Stretch:
    """The stretch in an answer of the script."""
    documents, seq, removed, first, begin = map(int, answer[:5])
    entries = tuple(_numbered(inside, at, value) for at, value in enumerate(answer[5:], begin))
    return Stretch(documents, seq, removed, first, begin, entries)


def _numbered(inside: Inside, seq: int, value: bytes) -> Numbered:
    if not value:
        return Numbered(seq, None, None)
    try:
        return Numbered(seq, *inside.layout.record(seq, value))
    except IndexDamaged as error:
        return Numbered(seq, None, None, error)


def walk(inside: Inside, begin: int = 0, last: int | None = None) -> Iterator[Stretch]:
    """All stretches from number `begin` to number `last` (None: the last one given); the last one may be empty."""
    while True:
        found = stretch(inside, begin, STRETCH)
        yield found
        begin = found.begin + len(found.entries)
        if begin > (found.seq if last is None else min(last, found.seq)):
            return


def readable(entries: Sequence[Numbered]) -> Sequence[Numbered]:
    """The same.

    Raises:
        IndexDamaged: a record cannot be read.
    """
    for entry in entries:
        if entry.damaged:
            raise entry.damaged
    return entries
