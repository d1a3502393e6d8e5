"""Forgetting single pages: a record and all its members leave an index in one step, at any place of the log.

The log keeps the entry, and retention passes over it when it is the oldest; a seq is never given twice. What is in the
journal stays until its verdict is committed: a page that is replayed keeps its verdict, whatever has been forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from simhash.index.interface import Record
from simhash.index.redis.layout import tagged
from simhash.index.redis.operators.inside import Inside

AT_ONCE = 20
"""Records removed by one call: each costs as much as to store one."""
SEQ_BYTES = 6


class Found(NamedTuple):
    """A record to remove; `fingerprint` None: it has a digest only."""

    fingerprint: int | None
    record: Record


def of_urls(found: Iterator[tuple[int | None, Record]], urls: Collection[str]) -> Iterator[Found]:
    """Those of all the records of an index (`Index.scan`) that have one of these URLs."""
    return (Found(fingerprint, record) for fingerprint, record in found if record.url in urls)


def under(inside: Inside, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
    """The records under a fingerprint, or under a digest where there is none, that have one of these URLs."""
    layout, client = inside.layout, inside.client
    if fingerprint is None:
        name = tagged(digest)
        value = client.hget(layout.digests(name), name)
        found = [Found(None, layout.record(value, digest))] if value else []
    else:
        own = layout.key_of(fingerprint)
        fields = client.hscan_iter(layout.records(fingerprint), match=own_pattern(own), count=1000)
        found = [Found(fingerprint, layout.record(value)) for value in dict(fields).values()]
    return [each for each in found if each.record.url in urls]


def own_pattern(name: bytes) -> bytes:
    """A MATCH pattern for what begins with these bytes."""
    return b"".join(b"\\" + bytes([byte]) if byte in b"*?[]^\\" else bytes([byte]) for byte in name) + b"*"


def take_down(inside: Inside, found: Sequence[Found]) -> list[bool]:
    """Remove these records, each in one step; for each whether it was still there."""
    done: list[bool] = []
    for at in range(0, len(found), AT_ONCE):
        names = [_place(inside, each) + each.record.seq.to_bytes(SEQ_BYTES) for each in found[at : at + AT_ONCE]]
        done += map(bool, inside.run("take_down", *names))
    return done


def _place(inside: Inside, found: Found) -> bytes:
    if found.fingerprint is None:
        return tagged(found.record.digest)
    return inside.layout.key_of(found.fingerprint)
