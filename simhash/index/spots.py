"""Where the members of a fingerprint stand in an index in Redis, and whose a member is that stands somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simhash.index.interface import Record
from simhash.index.layout import Layout

_KEY = re.compile(r"(meta|log|gone)|([rx]):([0-9a-f]+)|([tb])(\d+):([0-9a-f]+)|j:(.+):(\d+)")


class Spot(NamedTuple):
    """Where a member should stand: sorted set, score, and the member itself (or it with its score behind it)."""

    key: str
    score: int
    member: bytes

    @property
    def forms(self) -> tuple[bytes, bytes]:
        """The two ways in which the member may be written."""
        return self.member, self.member + str(self.score).encode()


class KeyName(NamedTuple):
    """A key, taken apart: its kind ('meta', 'log', 'gone', 't', 'b', 'r', 'x', 'j'), and which of that kind."""

    kind: str
    number: int = 0
    bucket: str = ""


def key_name(layout: Layout, key: str) -> KeyName | None:
    """The parts of a key; None: no index has such a key."""
    start = layout.name if key.startswith(f"{layout.name}:") else layout.keys
    found = _KEY.fullmatch(key.removeprefix(f"{start}:"))
    if found is None:
        return None
    single, records, bucket, table, number, place, topic, _ = found.groups()
    if single:
        return KeyName(single)
    if topic:
        return KeyName("j")
    name = KeyName(records, 0, bucket) if records else KeyName(table, int(number), place)
    rule = layout.spec.relation
    there_are = {"t": len(rule.design.tables), "b": rule.bands}.get(name.kind, 1)
    return name if name.number < there_are and len(name.bucket) == layout.digits else None


def table_spots(layout: Layout, fingerprint: int) -> list[Spot]:
    """Where a fingerprint stands in each table."""
    spots = []
    for number, table in enumerate(layout.spec.relation.design.tables):
        bucket, score, member = layout.place(table, fingerprint)
        spots.append(Spot(layout.table(number) + bucket, score, member))
    return spots


def band_spots(layout: Layout, fingerprint: int, records: Iterable[Record]) -> list[Spot]:
    """Where a fingerprint stands by the band keys of its records; each spot once."""
    return list(dict.fromkeys(spot for record in records for spot in _bands(layout, fingerprint, record)))


def _bands(layout: Layout, fingerprint: int, record: Record) -> Iterator[Spot]:
    for number, key in enumerate(layout.spec.relation.band_keys(record.verifier)):
        if place := layout.band_place(key):
            yield Spot(layout.band(number) + place[0], place[1], layout.key_of(fingerprint))


def owner(layout: Layout, name: KeyName, score: float, member: bytes) -> int | None:
    """The fingerprint whose member this is; None when it can be nobody's."""
    own = layout.fingerprint_bytes if name.kind == "b" else _member_bytes(layout, name)
    whole = int(score)
    if score != whole or whole < 0 or len(member) < own or member[own:] not in (b"", str(whole).encode()):
        return None
    if name.kind == "b":
        return int.from_bytes(member[:own])
    table = layout.spec.relation.design.tables[name.number]
    fingerprint = layout.fingerprint_at(table, name.bucket, whole, member)
    return fingerprint if layout.place(table, fingerprint) == (name.bucket, whole, member[:own]) else None


def _member_bytes(layout: Layout, name: KeyName) -> int:
    return layout.shape(layout.spec.relation.design.tables[name.number]).member_bytes
