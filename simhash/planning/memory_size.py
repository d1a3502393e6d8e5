"""The memory of an index in Redis, from its layout: what every structure of `simhash.index.redis.layout` takes.

Fingerprints are taken to be random, so the entries of a bucket are Poisson distributed. Journals (some hundred entries
a partition) and the server's own megabyte are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simhash.index.interface import STORED_BYTES
from simhash.index.redis.layout import RECORDS_PER_HASH, TIME_BYTES, Layout, Shape, number
from simhash.index.urls import HEAD
from simhash.planning import allocation as redis

VERSION_BYTES = 48
"""What the last version of a URL takes, where these are kept: measured (`python -m benchmarks.previous`)."""
HASH_LISTPACK_ENTRIES = 256
"""As deploy/redis/redis.conf sets it."""
DISPERSION = 9
"""Standard deviations of a bucket's entries that are looked at."""
LONGEST_EXACT = 2000
"""From here on buckets are practically all alike."""
SAMPLES = 64
FEATURES_BYTES, FETCHED_BYTES = 1, 4
SHIPPED_SHARE = 0.73
"""What URLs take by the dictionary that ships, of their bytes behind https://: 43.8 of 60.2, of 3,000 in real pages."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that Redis uses, by what for: all documents together."""

    tables: float
    bands: float
    records: float
    keys: float

    @property
    def used(self) -> float:
        """All of it."""
        return self.tables + self.bands + self.records + self.keys


def poisson(mean: float) -> Iterator[tuple[int, float]]:
    """How many entries a bucket has, 0 left out, each with its probability."""
    if mean > LONGEST_EXACT:
        yield round(mean), 1.0
        return
    spread = DISPERSION * math.sqrt(mean) + DISPERSION
    for count in range(max(1, int(mean - spread)), int(mean + spread) + 1):
        yield count, math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def expected(mean: float, size: Callable[[int], float]) -> float:
    """The mean over a kind's buckets of what one takes."""
    return sum(share * size(count) for count, share in poisson(mean))


def bucket(entries: int, shape: Shape, entry_bytes: float) -> float:
    """A bucket of so many entries; those that share a place share its field."""
    there_are = 1 << shape.field
    taken = -there_are * math.expm1(entries * math.log1p(-1 / there_are)) if there_are > 1 else 1
    place = entry_bytes * entries / taken
    if taken <= HASH_LISTPACK_ENTRIES:
        each = redis.listpack_integer(shape.field) + redis.listpack_string(place)
        return redis.size_class(redis.LISTPACK_HEAD_BYTES + taken * each)
    each = redis.size_class(redis.DICT_ENTRY_BYTES) + redis.sds(shape.field_digits) + redis.sds(place)
    return redis.size_class(redis.DICT_BYTES) + redis.table_slots(taken) + taken * each


def number_bytes(documents: int) -> float:
    """The bytes of a number in a place, on average."""
    sizes = [len(number(documents * n // SAMPLES)) for n in range(1, SAMPLES + 1)]
    return sum(sizes) / SAMPLES


def records_of(documents: int, record: float) -> float:
    """The hashes of so many records; all but the last one are full."""
    each = redis.listpack_integer(RECORDS_PER_HASH.bit_length() - 1) + redis.listpack_string(record)
    return documents / RECORDS_PER_HASH * redis.size_class(redis.LISTPACK_HEAD_BYTES + RECORDS_PER_HASH * each)


def record_bytes(layout: Layout, stored_url_bytes: float) -> float:
    """The bytes of a record of a page with a fingerprint, a URL that takes so many, a fetch time and no id."""
    own = TIME_BYTES + 1 + 2 * STORED_BYTES + layout.fingerprint_bytes + layout.verifier_bytes
    return own + FEATURES_BYTES + FETCHED_BYTES + stored_url_bytes


def by_shipped(url_bytes: float) -> float:
    """What a URL of that length takes by the dictionary that ships."""
    return SHIPPED_SHARE * max(0.0, url_bytes - len(HEAD))


def memory(layout: Layout, documents: int, stored_url_bytes: float) -> Memory:
    """What an index of that layout takes with so many documents, whose URLs take so many bytes each."""
    buckets = 1 << layout.spec.bucket_bits
    mean, seq = documents / buckets, number_bytes(documents)

    def all_of(shape: Shape, rest_bytes: int) -> float:
        return buckets * expected(mean, lambda entries: bucket(entries, shape, rest_bytes + seq))

    rule = layout.spec.relation
    kinds = len(rule.design.tables) + rule.bands
    there, hashes = kinds * buckets * -math.expm1(-mean), documents / RECORDS_PER_HASH
    name = len(layout.table(0).encode()) + layout.digits
    return Memory(
        sum(all_of(shape, shape.rest_bytes) for shape in map(layout.shape, rule.design.tables)),
        rule.bands * all_of(layout.band_shape, 0),
        records_of(documents, record_bytes(layout, stored_url_bytes)),
        (there + hashes) * redis.key(name) + redis.table_slots(there + hashes),
    )
