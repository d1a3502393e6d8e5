"""Forgetting single pages: a record leaves an index and all its places in one step, whatever its number.

Retention passes over the number when it is the oldest; a seq is never given twice. What is in the
journal stays until its verdict is committed: a page that is replayed keeps its verdict, whatever has been forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

from simhash.index.interface import Record
from simhash.index.redis.layout import tagged
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.spots import noted, records, standing

AT_ONCE = 20
"""Records removed by one call: each costs as much as to store one."""


class Found(NamedTuple):
    """A record to remove; `fingerprint` None: it has a digest only."""

    fingerprint: int | None
    record: Record


def of_urls(found: Iterator[tuple[int | None, Record]], urls: Collection[str]) -> Iterator[Found]:
    """Those of all the records of an index (`Index.scan`) that have one of these URLs."""
    return (Found(fingerprint, record) for fingerprint, record in found if record.url in urls)


def under(inside: Inside, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
    """The records of a page's fingerprint and digest, or of its digest where it has no fingerprint, that have one of
    these URLs."""
    if fingerprint is None:
        numbers = noted(inside, inside.layout.digests(tagged(digest)), tagged(digest))
    else:
        numbers = standing(inside, fingerprint) + noted(inside, *inside.layout.crowd_field(fingerprint, digest))
    found = starmap(Found, records(inside, dict.fromkeys(numbers)))
    return [each for each in found if each.fingerprint == fingerprint and each.record.url in urls]


def take_down(inside: Inside, found: Sequence[Found]) -> list[bool]:
    """Remove these records, each in one step; for each whether it was still there."""
    done: list[bool] = []
    for at in range(0, len(found), AT_ONCE):
        done += map(bool, inside.run("take_down", *(each.record.seq for each in found[at : at + AT_ONCE])))
    return done
