"""How an index lies in Redis: key names, and the bytes of records, places, pages and answers. No connection lives here.

    key                            type  holds
    {ns}:meta                      HASH  format, generation, the spec, seq (last given), first (below it there are no
                                         records), documents; how hot places are: most_candidates that a page met,
                                         crowded (records that do not stand everywhere)
    {ns}:r:<seq div 64, hex>       HASH  seq mod 64 -> record
    {ns}:t<i>:<top b bits, hex>    HASH  bits b..p of what table i makes of a fingerprint -> its place: for each entry
                                         the bits behind p, and the number
    {ns}:b<i>:<top b bits, hex>    HASH  the next 7 bits of band key i -> its place: numbers
    {ns}:x:<top b bits, hex>       HASH  tagged digest -> number, for pages without a fingerprint; 'c', fingerprint and
                                         digest of a record that does not stand everywhere -> its number
    {ns}:v:<bits of a URL, hex>    HASH  the next 32 bits of its hash -> day 2 and version: its last page, for those who
                                         ask (`simhash.index.versions`); the bucket has as many bits as the meta's
                                         version_bits says
    {ns}:tombstones                ZSET  seq, from first on, of records that were removed out of turn
    {ns}:j:<topic>:<partition>     HASH  journal: offset -> observation and answer; "mark" -> the committed offset;
                                         "trimmed" -> from where on decisions below the mark are still there

    record   inserted ms 6 | flags 1 | observation 8 | fingerprint | verifier | digest 8 | tail    of a fingerprint
             inserted ms 6 | flags 1 | observation 8 | tagged digest 17 | tail                     of a tagged digest
    number   a seq in 3 to 6 bytes: the first two bits say how many more than 3

The braces are a hash tag: all keys of an index lie in one slot of a Redis Cluster. Integers are big-endian, the fields
of places and records decimal text; flags and tail (length, URL, id, fetch time) are told at "Tails". A record's name is
its number, so records lie in the order of insertion, and what stands in a table or band leads to one record and no
other.
A verifier has no bytes where the relation has none; its band keys are its last bytes.

A *place* is what a page looks at in one step: the entries of a table that share a prefix, or of a band that share the
first b + 7 bits of a key. A place takes `Relation.place_limit` records, the oldest, and no more, so that whatever is
stored a page is compared with a bounded number. A record that found a place full does not stand there; its exact copies
find it by the field in {ns}:x.

Bucket bits b are chosen so that a bucket holds 26 to 51 entries and stays one listpack, which is what makes the tables
small: one key per full prefix would cost ten times as much. Most places have one entry or none, and an integer of up to
12 bits takes 2 or 3 bytes as a field of a listpack.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from simhash.errors import DesignError, IndexDamaged
from simhash.index.interface import STORED_BYTES, Answer, Duplicate, Entry, IndexSpec, Partition, Record, Unique
from simhash.index.urls import HEAD, UrlCodec
from simhash.relation.overlap import code_of, features_of
from simhash.relation.tables import Design, Table
from simhash.signature.minhash import BAND_BITS

NAME = "[a-zA-Z0-9._-]{1,100}"
"""What an index can be called: a pattern."""
OBSERVATION_BYTES = 16
SEQ_BYTES = TIME_BYTES = OFFSET_BYTES = 6
FINGERPRINT_AT = TIME_BYTES + 1 + STORED_BYTES
"""Of a record: where its fingerprint begins, behind the observation; the verifier follows."""
LEAST_NUMBER_BYTES = 3
MOST_DOCUMENTS = (1 << 8 * SEQ_BYTES - 2) - 1
"""As many numbers as there are."""
RECORDS_PER_HASH = 64
"""A hash of records is full before the next one begins: 64 take 1.4 bytes a record for the key."""
ENTRIES_PER_BUCKET = 36
"""Aim for b: 26 to 51 entries keep a bucket one listpack, which is cheap to read and write. At a million documents in
10 tables, buckets of 30 rather than 61 take 17 bytes more of a document (of 268) and a tenth less time."""
DIGEST_BYTES = 17
CROWDED_TAG = b"c"
MAX_FIELD_BITS = 53
"""A number in Lua is a double."""
BAND_FIELD_BITS = 7
"""Bits of a band key behind b: the most that a listpack holds in one byte. Of other keys that share b + 7 bits with a
page's own, a bucket of 36 entries holds one in three or four: they are compared and found wanting."""

VERSION_FIELD_BYTES = 4
DAY_BYTES = 2
_CROWDED = 1 << 31
"""In the count of an answer's candidates: one of the page's places was full."""
_VERSION = 1 << 30
"""There: behind the count stands the version before, its length in a byte before it."""
_TAGS = {"text": b"t", "raw": b"r"}
_NAMES = {tag: name for name, tag in _TAGS.items()}


def bucket_bits(capacity: int, design: Design) -> int:
    """b for `capacity` documents: log2(n / 36), at most the shortest prefix and 32 bits, at least 1.

    Raises:
        DesignError: the prefixes are so long that what is behind b does not fit into a field.
    """
    wanted = round(math.log2(max(capacity, 1) / ENTRIES_PER_BUCKET)) if capacity > ENTRIES_PER_BUCKET else 1
    possible = possible_bucket_bits(design)
    return max(possible[0], min(wanted, possible[-1]))


def possible_bucket_bits(design: Design) -> range:
    """Every b that an index of this design can have: no prefix is shorter, and what is behind b fits into a field.

    Raises:
        DesignError: there is none.
    """
    longest = max(table.prefix for table in design.tables)
    possible = range(max(1, longest - MAX_FIELD_BITS), min(design.shortest_prefix, 32) + 1)
    if not possible:
        raise DesignError(f"design {design.name!r} has prefixes of {longest} bits: too long for an index in Redis")
    return possible


@dataclass(frozen=True, slots=True)
class Shape:
    """How the bits of a table's permuted fingerprint are divided, in their order: bucket, field, and the rest.

    Attributes:
        field_digits: decimal digits of the largest field.
        rest_bytes: bytes of the rest; one even where no bits are left for it.
    """

    bucket: int
    field: int
    rest: int

    @property
    def field_digits(self) -> int:
        return len(str((1 << self.field) - 1))

    @property
    def rest_bytes(self) -> int:
        return max(1, math.ceil(self.rest / 8))


class Layout:
    """The bytes of one index: everything that follows from its name and spec.

    Args:
        keys: what the keys of its tables and records start with in place of {ns}, once it was migrated; those that
            outlive a generation (meta, journals) start with {ns}.
        meta: the key of its meta in place of {ns}:meta, while it is filled beside a live one.

    Attributes:
        compared_at: where the fingerprint begins in a record, where the verifier does, and where its band keys end.
    """

    def __init__(self, name: str, spec: IndexSpec, keys: str | None = None, meta: str | None = None) -> None:
        self.name = name
        self.tag = tag_of(name)
        self.keys = keys or self.tag
        self.spec = spec
        self.meta = meta or meta_key(name)
        self.tombstones = f"{self.keys}:tombstones"
        relation, b = spec.relation, spec.bucket_bits
        self._urls = UrlCodec(spec.urls)
        self.bits = relation.design.bits
        self.fingerprint_bytes = math.ceil(self.bits / 8)
        self.digits = math.ceil(b / 4)
        verifier_bits = 0 if relation.verifier_reach is None else relation.verifier_bits + BAND_BITS * relation.bands
        self.verifier_bytes = verifier_bits // 8
        verifier_at = FINGERPRINT_AT + self.fingerprint_bytes
        self.compared_at = (FINGERPRINT_AT, verifier_at, verifier_at + self.verifier_bytes)
        self.band_shape = Shape(b, min(BAND_FIELD_BITS, BAND_BITS - b), 0)
        self._tables = relation.design.tables
        self._shapes = {t.prefix: Shape(b, t.prefix - b, self.bits - t.prefix) for t in self._tables}
        self._bands = "".join(self._band_format(i) for i in range(relation.bands))
        self._to_band_bucket, self._band_mask = BAND_BITS - b, (1 << self.band_shape.field) - 1
        self._to_band_field = self._to_band_bucket - self.band_shape.field
        columns = []
        for i, shape in enumerate(map(self.shape, self._tables)):
            columns.append(Column(self.table(i), self.digits, shape.field_digits, shape.rest_bytes))
        self.places = FingerprintPlaces(columns, self.bits, self._numbers)

    # Keys ----------------------------------------------------------------------------------------------------------

    @property
    def records_start(self) -> str:
        """What the keys of records start with."""
        return f"{self.keys}:r:"

    @property
    def digests_start(self) -> str:
        """What the keys of digests start with."""
        return f"{self.keys}:x:"

    @property
    def journals_start(self) -> str:
        """What the keys of journals start with."""
        return f"{self.tag}:j:"

    @property
    def versions_start(self) -> str:
        """What the keys of versions start with: they outlive a generation."""
        return f"{self.tag}:v:"

    def version(self, url: int, bits: int) -> tuple[str, bytes]:
        """Hash and field of a URL's version, by the URL's hash, where buckets have so many bits."""
        field = url >> (32 - bits) & 0xFFFFFFFF
        return f"{self.versions_start}{url >> (64 - bits):0{-(-bits // 4)}x}", field.to_bytes(VERSION_FIELD_BYTES)

    def journal(self, partition: Partition) -> str:
        """The journal of a partition."""
        return f"{self.journals_start}{partition.topic}:{partition.number}"

    def table(self, index: int) -> str:
        """What the keys of a table's buckets start with."""
        return f"{self.keys}:t{index}:"

    def band(self, index: int) -> str:
        """What the keys of a band's buckets start with."""
        return f"{self.keys}:b{index}:"

    def bucket(self, value: int, bits: int) -> str:
        """The bucket, in hex, of a value of `bits` bits: its top b bits."""
        return f"{value >> (bits - self.spec.bucket_bits):0{self.digits}x}"

    def records(self, seq: int) -> tuple[str, bytes]:
        """Hash and field of the record of this number."""
        return f"{self.records_start}{seq // RECORDS_PER_HASH:x}", b"%d" % (seq % RECORDS_PER_HASH)

    def seq_at(self, key: str, field: bytes) -> int | None:
        """The number of the record in a hash of records, by its field; None: no record has that field."""
        if not field.isdigit():
            return None
        seq = int(key.removeprefix(self.records_start), 16) * RECORDS_PER_HASH + int(field)
        return seq if (key, field) == self.records(seq) else None

    def digests(self, digest: bytes) -> str:
        """The hash that holds a tagged digest."""
        return self.digests_start + self.bucket(int.from_bytes(digest[1:]), 128)

    # Fingerprints --------------------------------------------------------------------------------------------------

    def key_of(self, fingerprint: int) -> bytes:
        """A fingerprint in bytes."""
        return fingerprint.to_bytes(self.fingerprint_bytes)

    @staticmethod
    def is_digest(field: bytes) -> bool:
        """Whether this is a tagged digest."""
        return len(field) == DIGEST_BYTES and field[:1] in _NAMES

    def crowd_field(self, fingerprint: int, digest: str) -> tuple[str, bytes]:
        """Hash and field in which is noted a record, of this fingerprint and digest, that does not stand everywhere."""
        stored = bytes.fromhex(digest.partition(":")[2][: 2 * STORED_BYTES])
        key = self.digests_start + self.bucket(fingerprint, self.bits)
        return key, CROWDED_TAG + self.key_of(fingerprint) + stored

    def shape(self, table: Table) -> Shape:
        """How a table's permuted fingerprints are divided."""
        return self._shapes[table.prefix]

    def place(self, table: Table, fingerprint: int) -> tuple[str, int, bytes]:
        """Bucket (hex), field, and the rest of a fingerprint in a table."""
        bucket, field, rest = self._place(table, fingerprint)
        return f"{bucket:0{self.digits}x}", field, rest.to_bytes(self.shape(table).rest_bytes)

    def band_place(self, key: int) -> tuple[str, int] | None:
        """Bucket (hex) and field of a band key; None when it is no key."""
        if not key:
            return None
        return self.bucket(key, BAND_BITS), key >> self._to_band_field & self._band_mask

    def fingerprint_at(self, table: Table, bucket: str, field: int, rest: bytes) -> int:
        """The inverse of `place`."""
        shape = self.shape(table)
        permuted = (int(bucket, 16) << shape.field | field) << shape.rest | int.from_bytes(rest)
        return table.restore(permuted)

    def _place(self, table: Table, fingerprint: int) -> Place:
        shape = self.shape(table)
        permuted = table.permute(fingerprint)
        head = permuted >> shape.rest
        return head >> shape.field, head & ((1 << shape.field) - 1), permuted & ((1 << shape.rest) - 1)

    def _numbers(self, fingerprint: int) -> list[Place]:
        """The places of a fingerprint in each table."""
        return [self._place(table, fingerprint) for table in self._tables]

    # Records -------------------------------------------------------------------------------------------------------

    def body(self, entry: Entry) -> bytes:
        """What is stored of a page, without the time that the index gives it."""
        kind, _, digits = entry.digest.partition(":")
        flags, tail = packed(self._urls, entry.url, entry.id, entry.fetched_at, entry.features)
        own = entry.observation[:STORED_BYTES]
        if entry.fingerprint is None:
            return b"%c%b%b%b" % (flags | SHORT, own, tagged(entry.digest), tail)
        key, digest = self.key_of(entry.fingerprint), bytes.fromhex(digits[: 2 * STORED_BYTES])
        raw = RAW if kind == "raw" else 0
        return b"%c%b%b%b%b%b" % (flags | raw, own, key, self.verifier_of(entry), digest, tail)

    def verifier_of(self, entry: Entry) -> bytes:
        """A page's verifier with its band keys in bytes; none where the relation has none."""
        return (entry.verifier or 0).to_bytes(self.verifier_bytes) if self.verifier_bytes else b""

    def record(self, seq: int, data: bytes) -> tuple[int | None, Record]:
        """The fingerprint of a record, None where its page has none; and the record.

        Raises:
            IndexDamaged: these bytes are no record.
        """
        inserted, rest = int.from_bytes(data[:TIME_BYTES]), data[TIME_BYTES + 1 :]
        observation, rest = rest[:STORED_BYTES], rest[STORED_BYTES:]
        try:
            flags = data[TIME_BYTES]
            if flags & SHORT:
                digest, rest = untagged(rest[:DIGEST_BYTES]), rest[DIGEST_BYTES:]
                return None, Record(seq, inserted, observation, None, digest, *unpacked(self._urls, flags, rest))
            key, rest = rest[: self.fingerprint_bytes], rest[self.fingerprint_bytes :]
            verifier, rest = rest[: self.verifier_bytes], rest[self.verifier_bytes :]
            digest = f"{'raw' if flags & RAW else 'text'}:{rest[:STORED_BYTES].hex()}"
            tail = unpacked(self._urls, flags, rest[STORED_BYTES:])
        except (ValueError, LookupError) as error:
            raise IndexDamaged(f"record {seq} cannot be read") from error
        own = int.from_bytes(verifier) if verifier else None
        return int.from_bytes(key), Record(seq, inserted, observation, own, digest, *tail)

    def compared(self, data: bytes) -> tuple[int | None, int | None]:
        """What a record is found by: its fingerprint and its verifier, without all that `record` reads besides.

        Raises:
            IndexDamaged: these bytes are no record.
        """
        if len(data) > TIME_BYTES and data[TIME_BYTES] & SHORT:
            return None, None
        begin, verifier_at, end = self.compared_at
        if len(data) < end:
            raise IndexDamaged(f"a record has {len(data)} bytes")
        verifier = data[verifier_at:end]
        return int.from_bytes(data[begin:verifier_at]), int.from_bytes(verifier) if verifier else None

    # Calls ---------------------------------------------------------------------------------------------------------

    def page(self, entry: Entry, partition: int) -> bytes:
        """A page as an argument of the script; `partition` counts from 1, 0 is none."""
        offset = entry.position.offset if entry.position else 0
        body = self.body(entry)
        kind = b"d" if entry.fingerprint is None else b"f"
        head = struct.pack(">cH6s16sH", kind, partition, offset.to_bytes(OFFSET_BYTES), entry.observation, len(body))
        if entry.fingerprint is None:
            return b"".join((head, body, self.digests(tagged(entry.digest)).encode()))
        bands = self.spec.relation.band_keys(entry.verifier)
        return b"".join((head, body, self.places.packed(self.key_of(entry.fingerprint)), self._band_places(bands)))

    def answer(self, data: bytes) -> Answer:
        """The script's answer for a page, without the observation before it."""
        count, previous, decision = answer_parts(data)
        cost = (count & ~_CROWDED & ~_VERSION, bool(count & _CROWDED), previous)
        if decision[:1] == b"u":
            return Answer(Unique(int.from_bytes(decision[1:])), *cost)
        seq = int.from_bytes(decision[2 : 2 + SEQ_BYTES])
        return Answer(Duplicate(decision[1], self.record(seq, decision[2 + SEQ_BYTES :])[1]), *cost)

    def answered(self, decision: Unique | Duplicate, entry: Entry) -> bytes:
        """An answer as the script would give it: what a base decides on a page."""
        if isinstance(decision, Unique):
            return struct.pack(">Ic6s", 1, b"u", decision.seq.to_bytes(SEQ_BYTES))
        match = decision.match
        of_match = Entry(
            match.observation,
            None,
            entry.fingerprint,
            match.verifier,
            match.digest,
            match.url,
            match.id,
            match.fetched_at,
            match.features,
        )
        head = struct.pack(">IcB", 1, b"d", decision.distance)
        numbers = match.seq.to_bytes(SEQ_BYTES) + match.inserted_ms.to_bytes(TIME_BYTES)
        return head + numbers + self.body(of_match)

    def for_script(self, source: str) -> str:
        """The script `lua/index.lua` with what it must know of the layout written into it; lines keep their numbers."""
        layout, permutations = expression(self._described()), expression(self._permutations())
        return source.replace("--[[LAYOUT]] nil", layout, 1).replace("--[[PERMUTATIONS]] nil", permutations, 1)

    def _described(self) -> dict[str, object]:
        relation = self.spec.relation
        bands = "".join(
            f"c{len(self.band(i).encode()) + self.digits}c{self.band_shape.field_digits}" for i in range(relation.bands)
        )
        return {
            "tombstones": self.tombstones,
            "nothing": f"{self.tag}:nothing",
            "journals": self.journals_start,
            "versions": self.versions_start,
            "records": self.records_start,
            "records_per_hash": RECORDS_PER_HASH,
            "digests": self.digests_start,
            "table_keys": [self.table(i) for i in range(len(self._tables))],
            "bands": [self.band(i) for i in range(relation.bands)],
            "bits": self.bits,
            "fingerprint_bytes": self.fingerprint_bytes,
            "reach": relation.reach,
            "verifier_reach": -1 if relation.verifier_reach is None else relation.verifier_reach,
            "verifier_bytes": self.verifier_bytes,
            "compared_bytes": self.verifier_bytes - relation.bands * BAND_BITS // 8,
            "short": SHORT,
            "bucket_bits": self.spec.bucket_bits,
            "bucket_digits": self.digits,
            "bucket_format": f"%0{self.digits}x",
            "band_field_bits": self.band_shape.field,
            "prefixes": [table.prefix for table in self._tables],
            "radii": [table.radius for table in self._tables],
            "probes": relation.probes,
            "limit": relation.place_limit,
            "neighbours": relation.neighbour_limits,
            "places": f">{self.places.struct}{bands}",
        }

    def _permutations(self) -> list[list[list[int]]]:
        """Each table's blocks, as substrings (from 1) of a fingerprint's bits."""
        return [[[block.start + 1, block.end] for block in table.blocks] for table in self._tables]

    def _band_format(self, index: int) -> str:
        field = f"%0{self.band_shape.field_digits}d"
        return f"{self.band(index).replace('%', '%%')}%0{self.digits}x{field}"

    def _band_places(self, keys: Sequence[int]) -> bytes:
        """For each band key its key in Redis and its field, as text; dashes: there is no band key."""
        if all(keys):
            places: list[int] = []
            for key in keys:
                places += key >> self._to_band_bucket, key >> self._to_band_field & self._band_mask
            return (self._bands % tuple(places)).encode()
        return b"".join(self._band_text(i, key) for i, key in enumerate(keys))

    def _band_text(self, index: int, key: int) -> bytes:
        if not key:
            return b"-" * (len(self.band(index).encode()) + self.digits + self.band_shape.field_digits)
        bucket, field = key >> self._to_band_bucket, key >> self._to_band_field & self._band_mask
        return (self._band_format(index) % (bucket, field)).encode()


def answer_parts(data: bytes) -> tuple[int, bytes | None, bytes]:
    """Of an answer's bytes the count with its flags; the version before, None without one; and the decision, which
    begins with its kind, 'u' or 'd'."""
    count = int.from_bytes(data[:4])
    if not count & _VERSION:
        return count, None, data[4:]
    end = 5 + (data[4] if len(data) > 4 else 0)
    return count, data[5:end], data[end:]


def number(seq: int) -> bytes:
    """A seq as a place has it: 7 in 3 bytes, a million million in 6."""
    more = next(n for n in range(4) if seq >> 22 + 8 * n == 0)
    return (more << 22 + 8 * more | seq).to_bytes(LEAST_NUMBER_BYTES + more)


def numbers_in(place: bytes, rest_bytes: int = 0) -> list[tuple[bytes, int]]:
    """The entries of a place: what stands behind the prefix (of a band nothing), and the seq.

    Raises:
        ValueError: the bytes are no place.
    """
    found, at = [], 0
    while at < len(place):
        begin = at + rest_bytes
        more = place[begin] >> 6 if begin < len(place) else 0
        end = begin + LEAST_NUMBER_BYTES + more
        if end > len(place):
            raise ValueError("a place ends within an entry")
        seq = int.from_bytes(place[begin:end]) & ((1 << 22 + 8 * more) - 1)
        found.append((place[at:begin], seq))
        at = end
    return found


def tag_of(name: str) -> str:
    """What all keys of the index called `name` start with: a hash tag, which puts them into one slot of a cluster."""
    return f"{{{name}}}"


def meta_key(name: str) -> str:
    """The key of what the index called `name` says of itself."""
    return f"{tag_of(name)}:meta"


def tagged(digest: str) -> bytes:
    """17 bytes: 't' or 'r', and the digest of the text or of the raw bytes."""
    name, _, digits = digest.partition(":")
    return _TAGS[name] + bytes.fromhex(digits)


def untagged(digest: bytes) -> str:
    """The inverse of `tagged`."""
    return f"{_NAMES[digest[:1]]}:{digest[1:].hex()}"


def literal(text: str) -> str:
    """A part of a key as itself in a MATCH pattern."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)


# Tails ----------------------------------------------------------------------------------------------------------------
#
# What a record tells of its page but is not compared by, in as few bytes as that needs:
#
#     features: 1 | fetched_at: 4, or 2 + its text | id: 2 + its text | the rest of the URL
#
# What is there, the record's flags say:
#
#     bit 0     the URL begins with https://, and that is not repeated
#     bit 1     the rest of the URL is compressed by the index's dictionary (`simhash.index.urls`)
#     bit 2     there is the number of features, as `simhash.relation.overlap` has it in a byte
#     bit 3     there is an id
#     bits 4-5  fetched_at: 0 none, 1 seconds since 1970, 2 its text
#     bit 6     the digest is one of raw bytes (of a page with a fingerprint)
#     bit 7     the page has no fingerprint
#
# A fetch time is written in seconds when exactly that text comes back; any other is kept as it is. A 2 is the length in
# bytes of the text (UTF-8) behind it. A URL that would not get shorter is kept as it is.

_HAS_HEAD, _COMPRESSED, _HAS_FEATURES, _HAS_ID = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SECONDS, _TEXT, RAW, SHORT = 1 << 4, 2 << 4, 1 << 6, 1 << 7
_MAX_SECONDS = (1 << 32) - 1
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Tail(NamedTuple):
    """See the fields of `simhash.index.Record`."""

    url: str
    id: str | None
    fetched_at: str | None
    features: int | None = None


def packed(
    urls: UrlCodec, url: str, id_: str | None, fetched_at: str | None, features: int | None = None
) -> tuple[int, bytes]:
    """Flags, and the bytes of a tail."""
    head = _HAS_HEAD if url.startswith(HEAD) else 0
    flags, time = _packed_time(fetched_at)
    plain = url[len(HEAD) if head else 0 :].encode()
    shorter = urls.compressed(plain)
    rest = plain if shorter is None else shorter
    flags |= head | (0 if shorter is None else _COMPRESSED)
    if features is not None:
        flags, time = flags | _HAS_FEATURES, b"%c%b" % (code_of(features), time)
    if id_ is None:
        return flags, time + rest
    return flags | _HAS_ID, b"%b%b%b" % (time, _with_length(id_), rest)


def unpacked(urls: UrlCodec, flags: int, data: bytes) -> Tail:
    """The inverse of `packed`.

    Raises:
        ValueError, IndexError: these are no bytes of a tail.
    """
    at = 0
    fetched_at = id_ = features = None
    if flags & _HAS_FEATURES:
        features, at = features_of(data[0]), 1
    if flags & _SECONDS:
        fetched_at, at = _time(int.from_bytes(data[at : at + 4])), at + 4
    elif flags & _TEXT:
        fetched_at, at = _text(data, at)
    if flags & _HAS_ID:
        id_, at = _text(data, at)
    rest = urls.decompressed(data[at:]) if flags & _COMPRESSED else data[at:]
    return Tail((HEAD if flags & _HAS_HEAD else "") + rest.decode(), id_, fetched_at, features)


@lru_cache(maxsize=1024)
def _packed_time(text: str | None) -> tuple[int, bytes]:
    """Flags and bytes of a fetch time."""
    if text is None:
        return 0, b""
    seconds = _seconds(text)
    return (_TEXT, _with_length(text)) if seconds is None else (_SECONDS, struct.pack(">I", seconds))


def _seconds(text: str) -> int | None:
    """Seconds since 1970 when they give back exactly this text."""
    try:
        seconds = int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _MAX_SECONDS and _time(seconds) == text else None


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME)


def _with_length(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _text(data: bytes, at: int) -> tuple[str, int]:
    """The text behind its length at `at`, and where it ends."""
    end = at + 2 + int.from_bytes(data[at : at + 2])
    return data[at + 2 : end].decode(), end


# Places ---------------------------------------------------------------------------------------------------------------
#
# Where a fingerprint goes in all tables at once, packed for the script: what a client does most often. A permutation
# moves each bit on its own, so the places of a fingerprint are the bitwise or of the places of its bits.
# `FingerprintPlaces` looks them up byte by byte, as one long number a byte value, instead of permuting once a table: 64
# bits take 8 look-ups, however many tables. They come out as text (keys in hex, fields in decimal) and bytes (the
# rests), as `FingerprintPlaces.struct` takes them apart:
#
#     key field | key field | ... | rest | rest | ...


@dataclass(frozen=True, slots=True)
class Column:
    """A table: what its keys start with, and how many digits and bytes follow."""

    start: str
    bucket_digits: int
    field_digits: int
    rest_bytes: int

    @property
    def text(self) -> bytes:
        """The format of key and field."""
        return f"{self.start.replace('%', '%%')}%0{self.bucket_digits}x%0{self.field_digits}d".encode()

    @property
    def struct(self) -> str:
        """Key and field, as the script unpacks them."""
        return f"c{len(self.start.encode()) + self.bucket_digits}c{self.field_digits}"


Place = tuple[int, int, int]
"""Bucket (up to 32 bits), field (up to 64 bits), rest."""


class FingerprintPlaces:
    """The places of fingerprints of so many bits in some columns.

    Args:
        place: for a fingerprint its place in each column: a permutation of its bits and nothing else.
    """

    def __init__(self, columns: Sequence[Column], bits: int, place: Callable[[int], Sequence[Place]]) -> None:
        self._text = b"".join(column.text for column in columns)
        self._numbers = struct.Struct(">" + "IQ" * len(columns))
        self._columns = columns
        self._size = self._numbers.size + sum(column.rest_bytes for column in columns)
        of_bits = [self._number(place(1 << bit)) for bit in range(bits)]
        self._by_byte = [_all_or(of_bits[at : at + 8]) for at in reversed(range(0, bits, 8))]
        rests = (f"c{column.rest_bytes}" for column in columns)
        self.struct = "".join((*(column.struct for column in columns), *rests))

    def packed(self, fingerprint: bytes) -> bytes:
        """The places of a fingerprint, in bytes."""
        number = 0
        for numbers, byte in zip(self._by_byte, fingerprint, strict=True):
            number |= numbers[byte]
        data = number.to_bytes(self._size)
        return self._text % self._numbers.unpack_from(data) + data[self._numbers.size :]

    def _number(self, places: Sequence[Place]) -> int:
        """Buckets, fields and rests behind each other, as one number."""
        numbers: list[int] = []
        rests = b""
        for column, (bucket, field, rest) in zip(self._columns, places, strict=True):
            numbers += bucket, field
            rests += rest.to_bytes(column.rest_bytes)
        return int.from_bytes(self._numbers.pack(*numbers) + rests)


def _all_or(numbers: Sequence[int]) -> list[int]:
    """The bitwise or of every choice of `numbers`; bit i of the place says whether number i is in it."""
    chosen = [0]
    for number in numbers:
        chosen += [one | number for one in chosen]
    return chosen


# Lua ------------------------------------------------------------------------------------------------------------------


def expression(value: object) -> str:
    """A string, a whole number, a list, or a table whose keys are names; of these.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {expression(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence):
        return "{" + ", ".join(map(expression, value)) + "}"
    raise TypeError(f"no Lua for {value!r}")


def _escaped(byte: int) -> str:
    char = chr(byte)
    return char if 32 <= byte < 127 and char not in '"\\' else f"\\{byte:03d}"
