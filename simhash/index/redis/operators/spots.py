"""Where a record stands in an index in Redis, what stands in a place, and what is near."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from simhash.index.interface import Record
from simhash.index.redis.layout import Layout, numbers_in
from simhash.index.redis.operators.inside import Inside

AT_ONCE = 500
"""Fields that are read at once: about a millisecond of Redis."""
Place = tuple[str, bytes]
"""Key and field."""
OF_GENERATION = ("tombstones", "t", "b", "r", "x")
"""The kinds of keys that each generation has for itself: a migration makes them anew, and removes the old ones."""
_KEY = re.compile(r"(meta|tombstones)|r:([0-9a-f]+)|x:([0-9a-f]+)|([tb])(\d+):([0-9a-f]+)|v:([0-9a-f]+)|j:(.+):(\d+)")


class Spot(NamedTuple):
    """Where a record should stand: hash and field of the place, and what is before its number there."""

    key: str
    field: bytes
    rest: bytes = b""


class KeyName(NamedTuple):
    """A key, taken apart: its kind ('meta', 'tombstones', 't', 'b', 'r', 'x', 'v', 'j'), and which of that kind."""

    kind: str
    number: int = 0
    bucket: str = ""


def key_name(layout: Layout, key: str) -> KeyName | None:
    """The parts of a key; None: this index has no such key."""
    name = parts_of_key(key, layout.keys)
    if name is None:
        name = parts_of_key(key, layout.tag)
        return name if name and name.kind not in OF_GENERATION else None
    if name.kind not in ("x", "t", "b"):
        return name
    rule = layout.spec.relation
    there_are = {"t": len(rule.design.tables), "b": rule.bands}.get(name.kind, 1)
    return name if name.number < there_are and len(name.bucket) == layout.digits else None


def parts_of_key(key: str, start: str) -> KeyName | None:
    """The parts of a key behind what it starts with; None: no key of an index is like that."""
    found = _KEY.fullmatch(key.removeprefix(f"{start}:")) if key.startswith(f"{start}:") else None
    if found is None:
        return None
    single, records, digests, table, number, place, versions, topic, _ = found.groups()
    if single:
        return KeyName(single)
    if topic:
        return KeyName("j")
    if versions:
        return KeyName("v", 0, versions)
    if records:
        return KeyName("r", 0, records)
    return KeyName("x", 0, digests) if digests else KeyName(table, int(number), place)


def spots(layout: Layout, fingerprint: int, record: Record) -> list[Spot]:
    """Where a record with a fingerprint stands, were it to stand everywhere: in each table, and by each band key."""
    rule = layout.spec.relation
    in_tables = [_in_table(layout, number, fingerprint) for number in range(len(rule.design.tables))]
    by_bands = [_by_band(layout, number, key) for number, key in enumerate(rule.band_keys(record.verifier))]
    return in_tables + [spot for spot in by_bands if spot]


def spot_of(layout: Layout, name: KeyName, fingerprint: int, verifier: int | None) -> Spot | None:
    """That of these which belongs to a table or band; None where the verifier has no such band key."""
    if name.kind == "t":
        return _in_table(layout, name.number, fingerprint)
    return _by_band(layout, name.number, layout.spec.relation.band_keys(verifier)[name.number])


def _in_table(layout: Layout, number: int, fingerprint: int) -> Spot:
    bucket, field, rest = layout.place(layout.spec.relation.design.tables[number], fingerprint)
    return Spot(layout.table(number) + bucket, b"%d" % field, rest)


def _by_band(layout: Layout, number: int, key: int) -> Spot | None:
    place = layout.band_place(key)
    return Spot(layout.band(number) + place[0], b"%d" % place[1]) if place else None


def read(inside: Inside, places: Sequence[Place]) -> list[bytes | None]:
    """What these fields hold.

    By the script, which refuses to look when the index has another generation by now: the keys are of the one that it
    had when it was opened, and would be taken for empty after a migration.
    """
    answers: list[bytes | None] = []
    for at in range(0, len(places), AT_ONCE):
        answers += inside.run("read", "HGET", *(part for place in places[at : at + AT_ONCE] for part in place))
    return answers


def standing(inside: Inside, fingerprint: int) -> list[int]:
    """The numbers of this very fingerprint in the first table."""
    layout = inside.layout
    table = layout.spec.relation.design.tables[0]
    bucket, field, rest = layout.place(table, fingerprint)
    (place,) = read(inside, [(layout.table(0) + bucket, b"%d" % field)])
    return [seq for other, seq in numbers_in(place or b"", len(rest)) if other == rest]


def noted(inside: Inside, key: str, field: bytes) -> list[int]:
    """The number to which a field of the hash of digests leads, if it is there."""
    (place,) = read(inside, [(key, field)])
    return [seq for _, seq in numbers_in(place or b"")]


def records(inside: Inside, numbers: Iterable[int]) -> Iterator[tuple[int | None, Record]]:
    """Fingerprint and record of each of these numbers that has one."""
    wanted = list(numbers)
    values = read(inside, [inside.layout.records(seq) for seq in wanted])
    return (inside.layout.record(seq, value) for seq, value in zip(wanted, values, strict=True) if value)


def near(inside: Inside, fingerprint: int) -> Iterator[tuple[int | None, Record]]:
    """Records within reach that share, within its radius, a table's prefix with this fingerprint; each with its own."""
    layout = inside.layout
    numbers: dict[int, None] = {}
    places = list(_places(layout, fingerprint))
    found = read(inside, [(key, b"%d" % field) for _, _, key, field in places])
    for (number, bucket, _, field), place in zip(places, found, strict=True):
        table = layout.spec.relation.design.tables[number]
        for rest, seq in numbers_in(place or b"", layout.shape(table).rest_bytes):
            other = layout.fingerprint_at(table, bucket, field, rest)
            if (other ^ fingerprint).bit_count() <= layout.spec.relation.reach:
                numbers[seq] = None
    return records(inside, numbers)


def _places(layout: Layout, fingerprint: int) -> Iterator[tuple[int, str, str, int]]:
    """Number of the table, bucket, key and field of each prefix that a page with this fingerprint probes."""
    design = layout.spec.relation.design
    for number, table in enumerate(design.tables):
        flips = [1 << bit for bit in range(table.bits - table.prefix, table.bits)] if table.radius else []
        for flip in (0, *flips):
            bucket, field, _ = layout.place(table, table.restore(table.permute(fingerprint) ^ flip))
            yield number, bucket, layout.table(number) + bucket, field
