"""What an index in Redis is like: how much of what, how full its buckets are, how old its records.

All keys are looked at where they are few. Else buckets are, one in so many, at random: then memory and entries of all
are an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from simhash.index.interface import Partition, Record
from simhash.index.redis.layout import RECORDS_PER_HASH, literal, tag_of
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.kept_versions import bits_there
from simhash.index.redis.operators.migration import Begun, begun
from simhash.index.redis.operators.walking import Stretch, stretch, walk
from simhash.index.redis.spec import whole_number

LARGEST = 5
AT_ONCE = 500
EXACT_KEYS = 200_000
"""Up to so many keys that there may be all are looked at: some seconds."""
SAMPLE = 2000
WEIGHED = 100
"""Fields of a hash of which Redis takes the mean for the others: all that meta has, for one of them is large."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A key, and how many entries it has."""

    key: str
    entries: int


@dataclass(frozen=True, slots=True)
class Kind:
    """Keys of one kind.

    Attributes:
        kind: "tables", "bands", "records", "digests" (of pages without a fingerprint), "versions" (of URLs, where
            they are kept), "tombstones", "journals" or "meta".
        keys, entries, bytes: of all of them, estimated where not all were looked at. Entries are records, or places of
            a table or band in which something stands.
        looked_at: buckets that were looked at, those that are not there included; of how many: `of`.
        largest: of those looked at, the ones with the most entries.
    """

    kind: str
    keys: int
    entries: int
    bytes: int
    looked_at: int
    of: int
    largest: tuple[Bucket, ...] = ()

    @property
    def skew(self) -> float:
        """How many times the mean the largest bucket has."""
        return self.largest[0].entries * self.keys / self.entries if self.largest and self.entries else 0.0


@dataclass(frozen=True, slots=True)
class Journal:
    """A partition's mark (None: none yet), and how many decisions are journalled above it."""

    partition: Partition
    mark: int | None
    decisions: int


@dataclass(frozen=True, slots=True)
class Server:
    """What a server uses, and what it takes from its machine, in bytes: everything on it, not the index alone."""

    address: str
    used_bytes: int
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """See the module.

    Attributes:
        documents, numbers, removed: records stored; numbers given; records removed out of turn, ever.
        oldest, newest: the first and the last record; None: there is none.
        most_candidates: the most stored pages that one page was compared with.
        crowded: records that do not stand in all their places, because one was full.
        migration: one that was begun and is not ended.
        servers: all primaries.
    """

    documents: int
    numbers: int
    removed: int
    oldest: Record | None
    newest: Record | None
    most_candidates: int
    crowded: int
    migration: Begun | None
    servers: tuple[Server, ...]
    kinds: tuple[Kind, ...]
    journals: tuple[Journal, ...]

    @property
    def server_bytes(self) -> int:
        """What all primaries use."""
        return sum(server.used_bytes for server in self.servers)

    @property
    def server_resident_bytes(self) -> int:
        """What all primaries take from their machines."""
        return sum(server.resident_bytes for server in self.servers)

    @property
    def server_skew(self) -> float:
        """How many times the mean the fullest primary uses."""
        return max(server.used_bytes for server in self.servers) * len(self.servers) / self.server_bytes


Looker = Callable[[Sequence[str], str], Iterable[tuple[str, int, int]]]
"""Gives the entries (by a command, such as "hlen") and the bytes of each key."""


def statistics(inside: Inside, partitions: Sequence[Partition], sample: int | None, random: Random) -> Statistics:
    """Look at an index.

    Args:
        partitions: those that it has journals of.
        sample: buckets to look at, for each table, band and so on; None: all where there are, or may be, at most
            `EXACT_KEYS` keys, else `SAMPLE`.
    """
    begin = stretch(inside, 0, 1)
    layout = inside.layout
    most_candidates, crowded = inside.client.hmget(layout.meta, "most_candidates", "crowded")
    starts = {
        "tables": [layout.table(i) for i in range(len(layout.spec.relation.design.tables))],
        "bands": [layout.band(i) for i in range(layout.spec.relation.bands)],
        "digests": [layout.digests_start],
    }
    hashes = range(begin.first // RECORDS_PER_HASH, begin.seq // RECORDS_PER_HASH + 1)

    def look(keys: Sequence[str], count: str) -> Iterator[tuple[str, int, int]]:
        return _looked_at(inside, keys, count)

    def key(start: str, number: int) -> str:
        return f"{start}{number:0{layout.digits}x}"

    of = range(1 << layout.spec.bucket_bits)
    there: list[str] | None = None
    if sample is None:
        keys = sum(map(len, starts.values())) * len(of) + len(hashes)
        sample = keys if keys <= EXACT_KEYS else SAMPLE
        there = _all_keys(inside) if keys > EXACT_KEYS >= _keys_there(inside) else None
    chosen = Chosen(sample, random, there)
    kinds = [buckets(kind, all_of, key, of, chosen, look) for kind, all_of in starts.items() if all_of]
    records = [layout.records_start]
    kinds.append(buckets("records", records, lambda start, n: f"{start}{n:x}", hashes, chosen, look))
    if (bits := bits_there(inside)) is not None:
        versions, urls = [layout.versions_start], range(1 << bits)
        digits = -(-bits // 4)
        kinds.append(buckets("versions", versions, lambda start, n: f"{start}{n:0{digits}x}", urls, chosen, look))
    journals = [layout.journal(partition) for partition in partitions]
    memory = inside.client.info("memory")
    place = inside.client.connection_pool.connection_kwargs
    address = place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"
    return Statistics(
        documents=begin.documents,
        numbers=begin.seq,
        removed=begin.removed,
        oldest=_oldest(inside),
        newest=_newest(inside, begin),
        most_candidates=int(most_candidates or 0),
        crowded=int(crowded or 0),
        migration=begun(inside.client, layout),
        servers=(server(address, memory),),
        kinds=(
            *kinds,
            single("tombstones", [layout.tombstones], "zcard", look),
            single("journals", journals, "hlen", look),
            single("meta", [layout.meta], "hlen", look),
        ),
        journals=tuple(_journals(inside, partitions)),
    )


def server(address: str, memory: Mapping[str, Any]) -> Server:
    """What INFO memory says of a server."""
    return Server(address, int(memory["used_memory"]), int(memory["used_memory_rss"]))


def _oldest(inside: Inside) -> Record | None:
    found = (entry.record for part in walk(inside) for entry in part.entries if entry.record)
    return next(found, None)


def _newest(inside: Inside, begin: Stretch) -> Record | None:
    """The last record; the last numbers may have none."""
    for back in (1, 10, 100, 1000):
        found = [entry.record for entry in stretch(inside, begin.seq - back + 1, back).entries if entry.record]
        if found:
            return found[-1]
    return None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which buckets are looked at.

    Attributes:
        sample: so many of each start, at random; all where there are no more.
        there: all keys of the index, where its server has few: then it is these.
    """

    sample: int
    random: Random
    there: Sequence[str] | None

    def keys(self, starts: Sequence[str], key: Callable[[str, int], str], of: range) -> tuple[list[str], int]:
        """Their keys, and for how many of the `of` of each start these stand; `key` names one."""
        if self.there is not None:
            return [each for each in self.there if each.startswith(tuple(starts))], len(of)
        numbers: Sequence[int] = of if self.sample >= len(of) else self.random.sample(of, self.sample)
        return [key(start, number) for start in starts for number in numbers], len(numbers)


def _keys_there(inside: Inside) -> int:
    database = inside.client.connection_pool.connection_kwargs.get("db") or 0
    return int(inside.client.info("keyspace").get(f"db{database}", {}).get("keys", 0))


def _all_keys(inside: Inside) -> list[str]:
    pattern = f"{literal(tag_of(inside.layout.name))}*"
    return sorted({key.decode() for key in inside.client.scan_iter(pattern, count=AT_ONCE)})  # a scan may repeat some


def buckets(
    kind: str, starts: Sequence[str], key: Callable[[str, int], str], of: range, chosen: Chosen, look: Looker
) -> Kind:
    """All buckets of one kind, from those that are looked at."""
    keys, looked_at = chosen.keys(starts, key, of)
    there = [found for found in look(keys, "hlen") if found[1]]
    times = len(of) / looked_at
    largest = sorted((Bucket(key, entries) for key, entries, _ in there), key=lambda b: (-b.entries, b.key))[:LARGEST]
    return Kind(
        kind,
        round(times * len(there)),
        round(times * sum(entries for _, entries, _ in there)),
        round(times * sum(size for _, _, size in there)),
        looked_at * len(starts),
        len(of) * len(starts),
        tuple(largest),
    )


def _looked_at(inside: Inside, keys: Sequence[str], count: str) -> Iterator[tuple[str, int, int]]:
    """Of each key the entries and the bytes."""
    for at in range(0, len(keys), AT_ONCE):
        some = keys[at : at + AT_ONCE]
        with inside.client.pipeline(transaction=False) as pipe:
            for key in some:
                getattr(pipe, count)(key)
                pipe.memory_usage(key, samples=WEIGHED)
            answers = pipe.execute()
        for key, entries, size in zip(some, answers[::2], answers[1::2], strict=True):
            yield key, entries, size or 0


def single(kind: str, keys: Sequence[str], count: str, look: Looker) -> Kind:
    """All keys of a kind that has few."""
    there = [found for found in look(keys, count) if found[1]]
    entries, size = sum(found[1] for found in there), sum(found[2] for found in there)
    return Kind(kind, len(there), entries, size, len(keys), len(keys))


def _journals(inside: Inside, partitions: Sequence[Partition]) -> Iterator[Journal]:
    for partition in sorted(partitions):
        key = inside.layout.journal(partition)
        mark, fields = inside.client.hget(key, "mark"), inside.client.hlen(key)
        yield Journal(partition, None if mark is None else whole_number(mark, key), fields - (mark is not None))
