"""Where the members of a fingerprint stand in an index in Redis, and whose a member is that stands somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simhash.index.interface import Record
from simhash.index.layout import FIRST_BAND, Layout

_KEY = re.compile(r"(meta|log|t)|([rx]):([0-9a-f]+)|t:([0-9a-f]+)|j:(.+):(\d+)")


class Spot(NamedTuple):
    """Where a member should stand: the bucket's field, and the member."""

    field: bytes
    member: bytes


class KeyName(NamedTuple):
    """A key of an index, taken apart.

    Attributes:
        kind: 'meta', 'log', 't' (all buckets), '+' (a bucket that outgrew its string), 'r', 'x' or 'j'.
        field: of a bucket.
    """

    kind: str
    field: bytes = b""


def key_name(layout: Layout, key: str) -> KeyName | None:
    """The parts of a key; None: no index has such a key."""
    start = layout.name if key.startswith(f"{layout.name}:") else layout.keys
    found = _KEY.fullmatch(key.removeprefix(f"{start}:"))
    if found is None:
        return None
    single, records, bucket, field, topic, _ = found.groups()
    if single or topic:
        return KeyName(single or "j")
    if records:
        return KeyName(records) if len(bucket) == layout.digits else None
    name = KeyName("+", bytes.fromhex(field)) if len(field) % 2 == 0 else None
    return name if name and layout.shape_of(name.field) else None


def table_spots(layout: Layout, fingerprint: int) -> list[Spot]:
    """Where a fingerprint stands in each table."""
    tables = range(len(layout.spec.relation.design.tables))
    return [Spot(*layout.place(number, fingerprint)) for number in tables]


def band_spots(layout: Layout, fingerprint: int, records: Iterable[Record]) -> list[Spot]:
    """Where a fingerprint stands by the band keys of its records; each spot once."""
    return list(dict.fromkeys(spot for record in records for spot in _bands(layout, fingerprint, record)))


def _bands(layout: Layout, fingerprint: int, record: Record) -> Iterator[Spot]:
    for number, key in enumerate(layout.spec.relation.band_keys(record.verifier)):
        if place := layout.band_place(number, key, fingerprint):
            yield Spot(*place)


def owner(layout: Layout, spot: Spot) -> int | None:
    """The fingerprint whose member this is; None when it can be nobody's."""
    shape = layout.shape_of(spot.field)
    if shape is None or len(spot.member) != shape.size:
        return None
    fingerprint = layout.fingerprint_at(*spot)
    is_own = spot.field[0] >= FIRST_BAND or layout.place(spot.field[0], fingerprint) == spot
    return fingerprint if is_own else None
