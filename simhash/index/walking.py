"""A walk along the log of an index in Redis: its records in the order of insertion, a stretch at a time.

Each stretch is read in one short step, as it is at that moment; between two of them workers go on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simhash.index.inside import Inside
from simhash.index.interface import Record
from simhash.index.layout import untagged

STRETCH = 250
"""Log entries read at once: about a millisecond of Redis."""
DIGEST_BYTES = 17
UNREADABLE = (ValueError, IndexError, struct.error)
"""What reading a damaged record raises."""


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry of the log.

    Attributes:
        name: the fingerprint's bytes, or the tagged digest; empty: nothing was ever there.
        record: what is stored under that name with that `seq`; None when it was removed out of turn.
        damaged: what is stored under that name cannot be read.
    """

    seq: int
    name: bytes
    record: Record | None
    damaged: bool = False

    @property
    def fingerprint(self) -> int | None:
        """The fingerprint; None for a page that has a digest only."""
        return None if len(self.name) == DIGEST_BYTES else int.from_bytes(self.name)


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


def records_of(inside: Inside, name: bytes, field: bytes) -> list[Record]:
    """The records in a field of that name."""
    if len(name) == DIGEST_BYTES:
        return [inside.layout.record(field, untagged(name))] if field else []
    return inside.layout.records_in(field)


def stretch(inside: Inside, begin: int, count: int = STRETCH) -> Stretch:
    """The log's entries from number `begin` on, at most `count`."""
    return parsed_stretch(inside, inside.run(("walking",), begin, count))


def parsed_stretch(inside: Inside, answer: Sequence[bytes]) -> Stretch:
    """The stretch in an answer of the script."""
    documents, seq, removed, first, begin = map(int, answer[:5])
    entries = []
    for at, (name, field) in enumerate(zip(answer[5::2], answer[6::2], strict=True), begin):
        entries.append(_logged(inside, at, name, field))
    return Stretch(documents, seq, removed, first, begin, tuple(entries))


def _logged(inside: Inside, seq: int, name: bytes, field: bytes) -> Logged:
    try:
        found = [record for record in records_of(inside, name, field) if record.seq == seq]
    except UNREADABLE:
        return Logged(seq, name, None, True)
    return Logged(seq, name, found[0] if found else None)


def walk(inside: Inside, begin: int = 0, last: int | None = None) -> Iterator[Stretch]:
    """All stretches from number `begin` to number `last` (None: the log's end); the last one may be empty."""
    while True:
        found = stretch(inside, begin)
        yield found
        begin = found.begin + len(found.entries)
        if begin > (found.seq if last is None else min(last, found.seq)):
            return
