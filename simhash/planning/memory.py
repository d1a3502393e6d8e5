"""The memory of an index in Redis, from its layout: what every structure of `simhash.index.redis.layout` takes.

Fingerprints are taken to be random, so the entries of a bucket are Poisson distributed. Journals (some hundred entries
a partition) and the server's own megabyte are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

from simhash.index.redis.layout import Layout, Shape
from simhash.index.redis.tail import packed
from simhash.planning import allocation as redis

ZSET_LISTPACK_ENTRIES = HASH_LISTPACK_ENTRIES = 256
"""As deploy/redis/redis.conf sets them."""
DISPERSION = 9
"""Standard deviations of a bucket's entries that are looked at."""
LONGEST_EXACT = 2000
"""From here on buckets are practically all alike."""
TYPICAL_PATH = "news.example.org/2026/11/words-of-a-title-"
"""What a URL is made of, as letters differ in the bits that they take."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that Redis uses, by what for: all documents together."""

    tables: float
    bands: float
    records: float
    log: float
    keys: float

    @property
    def used(self) -> float:
        """All of it."""
        return self.tables + self.bands + self.records + self.log + self.keys


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


def sorted_set(entries: int, member_bytes: float, score: float) -> float:
    """A sorted set of so many members; `score`: its bytes in a listpack."""
    if entries <= ZSET_LISTPACK_ENTRIES:
        return redis.size_class(redis.LISTPACK_HEAD_BYTES + entries * (redis.listpack_string(member_bytes) + score))
    return redis.SKIPLIST_BYTES + entries * redis.skiplist_entry(member_bytes) + redis.table_slots(entries)


def record_hash(entries: int, name_bytes: float, record_bytes: float) -> float:
    """A hash of so many records."""
    if entries <= HASH_LISTPACK_ENTRIES:
        each = redis.listpack_string(name_bytes) + redis.listpack_string(record_bytes)
        return redis.size_class(redis.LISTPACK_HEAD_BYTES + entries * each)
    each = redis.size_class(redis.DICT_ENTRY_BYTES) + redis.sds(name_bytes) + redis.sds(record_bytes)
    return redis.size_class(redis.DICT_BYTES) + redis.table_slots(entries) + entries * each


def record_bytes(layout: Layout, url_bytes: int) -> int:
    """The bytes of a record of a page with a fingerprint, a URL of that length (https), a fetch time and no id."""
    url = "https://" + "".join(islice(cycle(TYPICAL_PATH), max(0, url_bytes - len("https://"))))
    own = 2 * 6 + 2 * 8 + layout.verifier_bytes
    return own + len(packed(url, None, "2026-01-01T00:00:00Z", False))


def memory(layout: Layout, documents: int, url_bytes: int) -> Memory:
    """What an index of that layout takes with so many documents."""
    buckets = 1 << layout.spec.bucket_bits
    mean = documents / buckets
    there = buckets * -math.expm1(-mean)

    def sets(shape: Shape) -> float:
        score = redis.listpack_score(shape.score)
        return buckets * expected(mean, lambda count: sorted_set(count, shape.member_bytes, score))

    rule = layout.spec.relation
    record = record_bytes(layout, url_bytes)
    tables = sum(sets(layout.shape(table)) for table in rule.design.tables)
    bands = rule.bands * sets(layout.band_shape) if rule.bands else 0.0
    records = buckets * expected(mean, lambda count: record_hash(count, layout.fingerprint_bytes, record))
    kinds = len(rule.design.tables) + rule.bands + 1
    name = len(layout.table(0).encode()) + layout.digits
    return Memory(
        tables,
        bands,
        records,
        redis.list_bytes(documents, redis.listpack_string(layout.fingerprint_bytes)),
        kinds * there * redis.key(name) + redis.table_slots(kinds * there),
    )
