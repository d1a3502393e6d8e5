"""Where the members of a record stand in an index in Redis, whose a member is that stands somewhere, and what is
near."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from simhash.index.interface import Record
from simhash.index.redis.layout import Layout

AT_ONCE = 500
"""Records, and places, that are read at once."""
_KEY = re.compile(r"(meta|log|tombstones)|([rx]):([0-9a-f]+)|([tb])(\d+):([0-9a-f]+)|j:(.+):(\d+)")


class Spot(NamedTuple):
    """Where a member should stand: sorted set, score, and the member."""

    key: str
    score: int
    member: bytes


class KeyName(NamedTuple):
    """A key, taken apart: its kind ('meta', 'log', 'tombstones', 't', 'b', 'r', 'x', 'j'), and which of that kind."""

    kind: str
    number: int = 0
    bucket: str = ""


def key_name(layout: Layout, key: str) -> KeyName | None:
    """The parts of a key; None: no index has such a key."""
    start = layout.keys if key.startswith(f"{layout.keys}:") else layout.tag
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


def spots(layout: Layout, name: bytes, record: Record) -> list[Spot | None]:
    """Where a record with a fingerprint has its members, were it to stand everywhere: in each table, then by each band
    key; None where it has no band key."""
    fingerprint, suffix = layout.split(name)
    found: list[Spot | None] = []
    for number, table in enumerate(layout.spec.relation.design.tables):
        bucket, score, member = layout.place(table, fingerprint)
        found.append(Spot(layout.table(number) + bucket, score, member + suffix))
    for number, key in enumerate(layout.spec.relation.band_keys(record.verifier)):
        place = layout.band_place(key)
        found.append(Spot(layout.band(number) + place[0], place[1], name) if place else None)
    return found


def owner(layout: Layout, name: KeyName, score: float, member: bytes) -> bytes | None:
    """The name of the record whose member this is; None when it can be nobody's."""
    whole = int(score)
    if score != whole or whole < 0:
        return None
    if name.kind == "b":
        return member if layout.is_name(member) else None
    table = layout.spec.relation.design.tables[name.number]
    own = layout.shape(table).member_bytes
    if len(member) < own:
        return None
    fingerprint = layout.fingerprint_at(table, name.bucket, whole, member)
    found = layout.key_of(fingerprint) + member[own:]
    stands = layout.place(table, fingerprint) == (name.bucket, whole, member[:own])
    return found if stands and layout.is_name(found) else None


def near(client: Any, layout: Layout, fingerprint: int) -> Iterator[tuple[int, Record]]:
    """Records within reach that share, within its radius, a table's prefix with this fingerprint."""
    reach = layout.spec.relation.reach
    names: dict[bytes, int] = {layout.key_of(fingerprint): fingerprint}
    places = list(_places(layout, fingerprint))
    for at in range(0, len(places), AT_ONCE):
        some = places[at : at + AT_ONCE]
        with client.pipeline(transaction=False) as pipe:
            for _, _, key, score in some:
                pipe.zrangebyscore(key, score, score)
            standing = pipe.execute()
        for (number, bucket, _, score), members in zip(some, standing, strict=True):
            table = layout.spec.relation.design.tables[number]
            own = layout.shape(table).member_bytes
            for member in members:
                other = layout.fingerprint_at(table, bucket, score, member)
                if (other ^ fingerprint).bit_count() <= reach:
                    names[layout.key_of(other) + member[own:]] = other
    wanted = list(names.items())
    for at in range(0, len(wanted), AT_ONCE):
        part = wanted[at : at + AT_ONCE]
        with client.pipeline(transaction=False) as pipe:
            for name, other in part:
                pipe.hget(layout.records(other), name)
            fields = pipe.execute()
        yield from ((other, layout.record(field)) for (_, other), field in zip(part, fields, strict=True) if field)


def _places(layout: Layout, fingerprint: int) -> Iterator[tuple[int, str, str, int]]:
    """Number of the table, bucket, key and score of each prefix that a page with this fingerprint probes."""
    design = layout.spec.relation.design
    for number, table in enumerate(design.tables):
        flips = [1 << bit for bit in range(table.bits - table.prefix, table.bits)] if table.radius else []
        for flip in (0, *flips):
            bucket, score, _ = layout.place(table, table.restore(table.permute(fingerprint) ^ flip))
            yield number, bucket, layout.table(number) + bucket, score
