"""The versions of URLs in Redis, but for the script that exchanges them: where they lie, moving and forgetting them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from simhash.index.interface import IndexSpec
from simhash.index.redis.layout import literal
from simhash.index.redis.operators.inside import Inside
from simhash.index.versions import url_hash

BITS_FIELD = "version_bits"
AT_ONCE = 500


class Kept(NamedTuple):
    """A version as it lies in Redis: bucket (hex) and field of its URL; the day and what the caller keeps."""

    bucket: str
    field: bytes
    value: bytes


def version_bits(inside: Inside) -> int:
    """How many bits the buckets of versions have: set when the first one comes."""
    inside.client.hsetnx(inside.layout.meta, BITS_FIELD, first_bits(inside.layout.spec))
    return int(inside.client.hget(inside.layout.meta, BITS_FIELD))


def first_bits(spec: IndexSpec) -> int:
    """How many bits the buckets of versions get in an index of this spec: one more than the tables'."""
    return min(32, spec.bucket_bits + 1)


def bits_there(inside: Inside) -> int | None:
    """The same; None: no version was ever kept."""
    found = inside.client.hget(inside.layout.meta, BITS_FIELD)
    return None if found is None else int(found)


def all_versions(inside: Inside) -> Iterator[Kept]:
    """Every version, in no order, each as it is when it is read."""
    start = inside.layout.versions_start
    for key in inside.client.scan_iter(f"{literal(start)}*", count=1000):
        bucket = key.decode().removeprefix(start)
        for field, value in inside.client.hgetall(key).items():
            yield Kept(bucket, field, value)


def forget_versions(inside: Inside, urls: Collection[str]) -> None:
    """Of these URLs nothing is kept any more."""
    bits = bits_there(inside)
    if bits is None:
        return
    over = iter(urls)
    while some := list(islice(over, AT_ONCE)):
        with inside.client.pipeline(transaction=False) as pipe:
            for url in some:
                pipe.hdel(*inside.layout.version(url_hash(url), bits))
            pipe.execute()
