"""How an index lies in Redis: key names, and the bytes of records, pages and answers. No connection lives here.

    key                            type  holds
    {ns}:meta                      HASH  format, generation, the spec, seq (last given), documents; how hot places are:
                                         most_candidates that a page met, crowded (records that do not stand everywhere)
    {ns}:t<i>:<top b bits, hex>    ZSET  fingerprints as table i permutes them: score bits b..p, member those behind p
    {ns}:b<i>:<top b bits, hex>    ZSET  band keys i: score the next 7 bits of the key, member the record's name
    {ns}:r:<top b bits, hex>       HASH  name -> record, a field for each record
    {ns}:x:<top b bits, hex>       HASH  tagged digest -> record, for pages without a fingerprint; 'c', fingerprint and
                                         digest of a record that does not stand everywhere -> its seq, where it stands
    {ns}:log                       LIST  the name of each record, oldest first: one entry for each seq
    {ns}:tombstones                ZSET  seq of records that were removed out of turn, and whose entries the log has
    {ns}:j:<topic>:<partition>     HASH  journal: offset -> observation and answer; "mark" -> the committed offset;
                                         "trimmed" -> from where on decisions below the mark are still there

    record   seq 6 | inserted ms 6 | observation 8 | verifier | digest 8 | tail           of a fingerprint
             seq 6 | inserted ms 6 | observation 8 | tail                                 of a tagged digest
    name     fingerprint, or fingerprint | seq 6, where the fingerprint alone is another record's name, or the record
             does not stand in all its places

The braces are a hash tag: all keys of an index lie in one slot of a Redis Cluster. Integers are big-endian; the tail
(URL, id, fetch time) is in `tail`. Members carry nothing but the rest of their key: a fingerprint names its record, and
what stands behind the fingerprint in a name stands behind each of the record's members. A verifier has no bytes where
the relation has none; its band keys are its last bytes.

A *place* is what a page looks at in one step: the entries of a table that share a prefix, or of a band that share the
first b + 7 bits of a key. A place takes `Relation.place_limit` records, the oldest, and no more, so that whatever is
stored a page is compared with a bounded number. A record that found a place full does not stand there; its exact copies
find it by the field in {ns}:x.

Bucket bits b are chosen so that a bucket holds 26 to 51 entries and stays one listpack, which is what makes the tables
small: one key per full prefix would cost ten times as much. A score is a double, exact for integers up to 53 bits: a
whole fingerprint does not fit, bits b..p do, and an integer of up to 12 bits takes 2 or 3 bytes of a listpack.

The last entry of the log is that of the last `seq` given, and none is missing: so an entry's number is its place, and
need not be written. Who removes a record out of turn leaves its entry, which is passed over when it is the oldest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from simhash.errors import DesignError
from simhash.index.interface import STORED_BYTES, Answer, Duplicate, Entry, IndexSpec, Partition, Record, Unique
from simhash.index.redis.lua_values import expression
from simhash.index.redis.places import Column, Place, Places
from simhash.index.redis.tail import packed, unpacked
from simhash.relation.tables import Design, Table
from simhash.signature.minhash import BAND_BITS

OBSERVATION_BYTES = 16
SEQ_BYTES = TIME_BYTES = OFFSET_BYTES = 6
MOST_DOCUMENTS = (1 << 8 * SEQ_BYTES) - 1
"""As many numbers as there are."""
ENTRIES_PER_BUCKET = 36
"""Aim for b: 26 to 51 entries keep a bucket one listpack, which is cheap to read and write. At a million documents in
10 tables, buckets of 30 rather than 61 take 17 bytes more of a document (of 268) and a tenth less time."""
DIGEST_BYTES = 17
CROWDED_TAG = b"c"
MAX_SCORE_BITS = 53
BAND_SCORE_BITS = 7
"""Bits of a band key behind b: the most that a listpack holds in one byte. Of other keys that share b + 7 bits with a
page's own, a bucket of 36 entries holds one in three or four: they are compared and found wanting."""

_CROWDED = 1 << 31
"""In the count of an answer's candidates: one of the page's places was full."""
_TAGS = {"text": b"t", "raw": b"r"}
_NAMES = {tag: name for name, tag in _TAGS.items()}


def bucket_bits(capacity: int, design: Design) -> int:
    """b for `capacity` documents: log2(n / 36), at most the shortest prefix and 32 bits, at least 1.

    Raises:
        DesignError: the prefixes are so long that what is behind b does not fit into a score.
    """
    wanted = round(math.log2(max(capacity, 1) / ENTRIES_PER_BUCKET)) if capacity > ENTRIES_PER_BUCKET else 1
    possible = possible_bucket_bits(design)
    return max(possible[0], min(wanted, possible[-1]))


def possible_bucket_bits(design: Design) -> range:
    """Every b that an index of this design can have: no prefix is shorter, and what is behind b fits into a score.

    Raises:
        DesignError: there is none.
    """
    longest = max(table.prefix for table in design.tables)
    possible = range(max(1, longest - MAX_SCORE_BITS), min(design.shortest_prefix, 32) + 1)
    if not possible:
        raise DesignError(f"design {design.name!r} has prefixes of {longest} bits: too long for an index in Redis")
    return possible


@dataclass(frozen=True, slots=True)
class Shape:
    """Of which sizes the entries of a table are, in bits: bucket, score and member follow each other in the permuted
    fingerprint.

    Attributes:
        score_digits: decimal digits of the largest score.
        member_bytes: bytes of a member; one even where no bits are left for it.
    """

    bucket: int
    score: int
    member: int
    score_digits: int = field(init=False)
    member_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "score_digits", len(str((1 << self.score) - 1)))
        object.__setattr__(self, "member_bytes", max(1, math.ceil(self.member / 8)))


class Layout:
    """The bytes of one index: everything that follows from its name and spec.

    Args:
        keys: what the keys of its tables, records and log start with in place of {ns}, once it was migrated; those that
            outlive a generation (meta, journals) start with {ns}.
        meta: the key of its meta in place of {ns}:meta, while it is filled beside a live one.
    """

    def __init__(self, name: str, spec: IndexSpec, keys: str | None = None, meta: str | None = None) -> None:
        self.name = name
        self.tag = tag_of(name)
        self.keys = keys or self.tag
        self.spec = spec
        self.meta = meta or meta_key(name)
        self.tombstones = f"{self.keys}:tombstones"
        self.log = f"{self.keys}:log"
        relation, b = spec.relation, spec.bucket_bits
        self.bits = relation.design.bits
        self.fingerprint_bytes = math.ceil(self.bits / 8)
        self.digits = math.ceil(b / 4)
        verifier_bits = 0 if relation.verifier_reach is None else relation.verifier_bits + BAND_BITS * relation.bands
        self.verifier_bytes = verifier_bits // 8
        self.band_shape = Shape(b, min(BAND_SCORE_BITS, BAND_BITS - b), self.bits)
        self._tables = relation.design.tables
        self._shapes = {t.prefix: Shape(b, t.prefix - b, self.bits - t.prefix) for t in self._tables}
        self._tail_at = 2 * STORED_BYTES + self.verifier_bytes
        self._bands = "".join(self._band_format(i) for i in range(relation.bands))
        self._to_band_bucket, self._band_mask = BAND_BITS - b, (1 << self.band_shape.score) - 1
        self._to_band_score = self._to_band_bucket - self.band_shape.score
        columns = [Column(self.records_start, self.digits)]
        for i, shape in enumerate(map(self.shape, self._tables)):
            columns.append(Column(self.table(i), self.digits, shape.score_digits, shape.member_bytes))
        self.places = Places(columns, self.bits, self._numbers)

    # Keys ----------------------------------------------------------------------------------------------------------

    @property
    def records_start(self) -> str:
        """What the keys of records of fingerprints start with."""
        return f"{self.keys}:r:"

    @property
    def digests_start(self) -> str:
        """What the keys of records of tagged digests start with."""
        return f"{self.keys}:x:"

    @property
    def journals_start(self) -> str:
        """What the keys of journals start with."""
        return f"{self.tag}:j:"

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

    def records(self, fingerprint: int) -> str:
        """The hash that holds the records of a fingerprint."""
        return self.records_start + self.bucket(fingerprint, self.bits)

    def digests(self, digest: bytes) -> str:
        """The hash that holds the record of a tagged digest."""
        return self.digests_start + self.bucket(int.from_bytes(digest[1:]), 128)

    # Fingerprints --------------------------------------------------------------------------------------------------

    def key_of(self, fingerprint: int) -> bytes:
        """A fingerprint as the field of its records."""
        return fingerprint.to_bytes(self.fingerprint_bytes)

    def fingerprint_of(self, name: bytes) -> int:
        """The fingerprint that a name begins with."""
        return int.from_bytes(name[: self.fingerprint_bytes])

    def split(self, name: bytes) -> tuple[int, bytes]:
        """The fingerprint of a name, and what stands behind it there and behind each member of its record."""
        return self.fingerprint_of(name), name[self.fingerprint_bytes :]

    def is_name(self, name: bytes) -> bool:
        """Whether a record with a fingerprint could be called so."""
        return len(name) - self.fingerprint_bytes in (0, SEQ_BYTES)

    @staticmethod
    def is_digest(name: bytes) -> bool:
        """Whether this is a tagged digest: the name of a record without a fingerprint."""
        return len(name) == DIGEST_BYTES and name[:1] in _NAMES

    def hash_of(self, name: bytes) -> str:
        """The hash in which the record of this name lies."""
        return self.digests(name) if self.is_digest(name) else self.records(self.fingerprint_of(name))

    def crowd_field(self, name: bytes, record: Record) -> tuple[str, bytes]:
        """Hash and field in which is noted where a record stands that does not stand everywhere."""
        fingerprint = self.fingerprint_of(name)
        digest = bytes.fromhex(record.digest.partition(":")[2][: 2 * STORED_BYTES])
        key = self.digests_start + self.bucket(fingerprint, self.bits)
        return key, CROWDED_TAG + name[: self.fingerprint_bytes] + digest

    def shape(self, table: Table) -> Shape:
        """How a table's permuted fingerprints are divided."""
        return self._shapes[table.prefix]

    def place(self, table: Table, fingerprint: int) -> tuple[str, int, bytes]:
        """Bucket (hex), score and member of a fingerprint in a table."""
        bucket, score, member = self._place(table, fingerprint)
        return f"{bucket:0{self.digits}x}", score, member.to_bytes(self.shape(table).member_bytes)

    def band_place(self, key: int) -> tuple[str, int] | None:
        """Bucket (hex) and score of a band key; None when it is no key."""
        if not key:
            return None
        score = key >> (BAND_BITS - self.spec.bucket_bits - self.band_shape.score)
        return self.bucket(key, BAND_BITS), score & ((1 << self.band_shape.score) - 1)

    def fingerprint_at(self, table: Table, bucket: str, score: int, member: bytes) -> int:
        """The inverse of `place`; the member as it is stored, so perhaps with a seq behind it."""
        shape = self.shape(table)
        own = int.from_bytes(member[: shape.member_bytes])
        permuted = (int(bucket, 16) << shape.score | score) << shape.member | own
        return table.restore(permuted)

    def _place(self, table: Table, fingerprint: int) -> Place:
        shape = self.shape(table)
        permuted = table.permute(fingerprint)
        head = permuted >> shape.member
        return head >> shape.score, head & ((1 << shape.score) - 1), permuted & ((1 << shape.member) - 1)

    def _numbers(self, fingerprint: int) -> list[Place]:
        """The places of a fingerprint: of its records, and in each table."""
        records = (fingerprint >> (self.bits - self.spec.bucket_bits), 0, 0)
        return [records, *(self._place(table, fingerprint) for table in self._tables)]

    # Records -------------------------------------------------------------------------------------------------------

    def body(self, entry: Entry) -> bytes:
        """What is stored of a page, without the number and time that the index gives it."""
        kind, _, digits = entry.digest.partition(":")
        tail = packed(entry.url, entry.id, entry.fetched_at, kind == "raw")
        own = entry.observation[:STORED_BYTES]
        if entry.fingerprint is None:
            return own + tail
        verifier = (entry.verifier or 0).to_bytes(self.verifier_bytes) if self.verifier_bytes else b""
        return b"%b%b%b%b" % (own, verifier, bytes.fromhex(digits[: 2 * STORED_BYTES]), tail)

    def record(self, data: bytes, digest: str | None = None) -> Record:
        """The record in `data`; `digest`: that of a page without a fingerprint, whose record does not repeat it."""
        seq, inserted = int.from_bytes(data[:6]), int.from_bytes(data[6:12])
        body = data[12:]
        observation = body[:STORED_BYTES]
        if digest is not None:
            url, id_, fetched_at, _ = unpacked(body[STORED_BYTES:])
            return Record(seq, inserted, observation, None, digest, url, id_, fetched_at)
        url, id_, fetched_at, raw = unpacked(body[self._tail_at :])
        verifier = body[STORED_BYTES : STORED_BYTES + self.verifier_bytes]
        text = f"{'raw' if raw else 'text'}:{body[self._tail_at - STORED_BYTES : self._tail_at].hex()}"
        return Record(
            seq, inserted, observation, int.from_bytes(verifier) if verifier else None, text, url, id_, fetched_at
        )

    # Calls ---------------------------------------------------------------------------------------------------------

    def page(self, entry: Entry, partition: int) -> bytes:
        """A page as an argument of the script; `partition` counts from 1, 0 is none."""
        offset = entry.position.offset if entry.position else 0
        body = self.body(entry)
        kind = b"d" if entry.fingerprint is None else b"f"
        head = struct.pack(">cH6s16sH", kind, partition, offset.to_bytes(OFFSET_BYTES), entry.observation, len(body))
        if entry.fingerprint is None:
            digest = tagged(entry.digest)
            return b"".join((head, body, digest, self.digests(digest).encode()))
        bands = self.spec.relation.band_keys(entry.verifier)
        key = self.key_of(entry.fingerprint)
        return b"".join((head, body, key, self.places.packed(key), self._band_places(bands)))

    def answer(self, data: bytes, entry: Entry) -> Answer:
        """The script's answer for a page, without the observation before it."""
        count, kind = int.from_bytes(data[:4]), data[4:5]
        candidates, crowded = count & ~_CROWDED, bool(count & _CROWDED)
        if kind == b"u":
            return Answer(Unique(int.from_bytes(data[5:])), candidates, crowded)
        record = self.record(data[6:], entry.digest if entry.fingerprint is None else None)
        return Answer(Duplicate(data[5], record), candidates, crowded)

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
            f"c{len(self.band(i).encode()) + self.digits}c{self.band_shape.score_digits}" for i in range(relation.bands)
        )
        return {
            "log": self.log,
            "tombstones": self.tombstones,
            "nothing": f"{self.tag}:nothing",
            "journals": self.journals_start,
            "records": self.records_start,
            "digests": self.digests_start,
            "table_keys": [self.table(i) for i in range(len(self._tables))],
            "bands": [self.band(i) for i in range(relation.bands)],
            "bits": self.bits,
            "fingerprint_bytes": self.fingerprint_bytes,
            "reach": relation.reach,
            "verifier_reach": -1 if relation.verifier_reach is None else relation.verifier_reach,
            "verifier_bytes": self.verifier_bytes,
            "compared_bytes": self.verifier_bytes - relation.bands * BAND_BITS // 8,
            "bucket_bits": self.spec.bucket_bits,
            "bucket_digits": self.digits,
            "bucket_format": f"%0{self.digits}x",
            "prefixes": [table.prefix for table in self._tables],
            "radii": [table.radius for table in self._tables],
            "probes": relation.probes,
            "limit": relation.place_limit,
            "places": f">c{self.fingerprint_bytes}{self.places.struct}{bands}",
        }

    def _permutations(self) -> list[list[list[int]]]:
        """Each table's blocks, as substrings (from 1) of a fingerprint's bits."""
        return [[[block.start + 1, block.end] for block in table.blocks] for table in self._tables]

    def _band_format(self, index: int) -> str:
        score = f"%0{self.band_shape.score_digits}d"
        return f"{self.band(index).replace('%', '%%')}%0{self.digits}x{score}"

    def _band_places(self, keys: Sequence[int]) -> bytes:
        """For each band key its key in Redis and its score, as text; dashes: there is no band key."""
        if all(keys):
            places: list[int] = []
            for key in keys:
                places += key >> self._to_band_bucket, key >> self._to_band_score & self._band_mask
            return (self._bands % tuple(places)).encode()
        return b"".join(self._band_text(i, key) for i, key in enumerate(keys))

    def _band_text(self, index: int, key: int) -> bytes:
        if not key:
            return b"-" * (len(self.band(index).encode()) + self.digits + self.band_shape.score_digits)
        bucket, score = key >> self._to_band_bucket, key >> self._to_band_score & self._band_mask
        return (self._band_format(index) % (bucket, score)).encode()


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
