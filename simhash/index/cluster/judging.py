"""The five rules of judging (see `interface`) on what was read for a batch: no connection, no clock.

On one primary the script probes and judges page by page. On a cluster all that a batch needs is read first, under its
claims; what its own pages add to the index meanwhile is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simhash.index.interface import Entry, Record, Relation
from simhash.index.layout import SEQ_BYTES


class Stored(NamedTuple):
    """A record and its bytes."""

    record: Record
    data: bytes


@dataclass(slots=True)
class Fresh:
    """A page of this batch that is unique; `data` is its record, once it has its number."""

    entry: Entry
    seq: int
    data: bytes = b""


class Horizon(NamedTuple):
    """What is too old: records inserted before `oldest_ms`, or numbered below `first_seq`."""

    oldest_ms: int
    first_seq: int


@dataclass(slots=True)
class View:
    """What was read for a page.

    Attributes:
        key: what its own record is found under: its fingerprint or its tagged digest.
        met: stored fingerprints that share a prefix with its own; banded: that have a band key of its.
        compared: how many entries that were.
    """

    entry: Entry
    key: int | bytes
    met: set[int] = field(default_factory=set)
    banded: set[int] = field(default_factory=set)
    compared: int = 0

    def add(self, fingerprints: Sequence[int], banded: bool) -> None:
        """Note what a probe has found."""
        (self.banded if banded else self.met).update(fingerprints)
        self.compared += len(fingerprints)

    def near(self, reach: int) -> list[int]:
        """The fingerprints within reach, its own too."""
        own = self.entry.fingerprint
        if own is None:
            return []
        return [f for f in self.met | self.banded | {own} if (f ^ own).bit_count() <= reach]


class Own(NamedTuple):
    """The page is a stored representative."""

    seq: int


class Match(NamedTuple):
    """The oldest page that it matches, stored or of this batch."""

    distance: int
    page: Stored | Fresh


def judged(
    view: View,
    records: Mapping[int | bytes, Sequence[Stored]],
    fresh: Sequence[Fresh],
    relation: Relation,
    horizon: Horizon,
) -> Own | Match | None:
    """Its own record, its oldest match, or None: it is unique.

    Args:
        records: by fingerprint or tagged digest.
        fresh: the unique pages of this batch before it.
    """
    oldest: Match | None = None
    oldest_seq = 0
    for distance, stored in _candidates(view, records, relation):
        record = stored.record
        if record.inserted_ms < horizon.oldest_ms or record.seq < horizon.first_seq:
            continue
        if record.is_of(view.entry):
            return Own(record.seq)
        if oldest is None or record.seq < oldest_seq:
            oldest, oldest_seq = Match(distance, stored), record.seq
    for other in fresh:
        if other.seq >= horizon.first_seq and (oldest is None or other.seq < oldest_seq):
            distance = _distance(view.entry, other.entry)
            if distance <= relation.reach and relation.matches(view.entry, other.entry):
                oldest, oldest_seq = Match(distance, other), other.seq
    return oldest


def _candidates(
    view: View, records: Mapping[int | bytes, Sequence[Stored]], relation: Relation
) -> list[tuple[int, Stored]]:
    """Stored records that the page matches, with their distance."""
    own = view.entry
    if own.fingerprint is None:
        return [(0, stored) for stored in records.get(view.key, ())]
    return [
        ((near ^ own.fingerprint).bit_count(), stored)
        for near in view.near(relation.reach)
        for stored in records.get(near, ())
        if (near in view.met or near == own.fingerprint or relation.shares_band(own.verifier, stored.record.verifier))
        and relation.verified(own.verifier, stored.record.verifier)
    ]


def _distance(a: Entry, b: Entry) -> int:
    if a.fingerprint is None or b.fingerprint is None:
        return 0
    return (a.fingerprint ^ b.fingerprint).bit_count()


def encoded(compared: int, found: Own | Match | Fresh) -> bytes:
    """A decision as the journal keeps it (see `Layout.answer`)."""
    head = compared.to_bytes(4)
    if isinstance(found, Match):
        return head + b"d" + bytes([found.distance]) + found.page.data
    return head + b"u" + found.seq.to_bytes(SEQ_BYTES)


def number_of(record: bytes) -> int:
    """The seq that a record begins with."""
    return int.from_bytes(record[:SEQ_BYTES])
