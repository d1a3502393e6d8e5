"""How an index lies in Redis: key names, and the bytes of records, pages and answers. No connection lives here.

    key                          type    holds
    ns:meta                      HASH    format, generation, the spec, seq (last given), documents; how hot buckets are:
                                         most_candidates that a page met, cuts (calls that ended early for them), crowds
                                         (pages that met too many for one call)
    ns:t                         HASH    all buckets of tables and bands: table or band, top b bits -> members
    ns:t:<field, hex>            ZSET    the members of a bucket that outgrew its string
    ns:r:<top b bits, hex>       HASH    fingerprint -> its record, or its records
    ns:x:<top b bits, hex>       HASH    tagged digest -> record, for pages without a fingerprint
    ns:log                       LIST    fingerprint or tagged digest of each record, oldest first: one for each seq
    ns:j:<topic>:<partition>     HASH    journal: offset -> observation and answer; "mark" -> the committed offset

    record   seq 6 | inserted ms 6 | observation 8 | verifier | digest 8 | tail           of a fingerprint
             seq 6 | inserted ms 6 | observation 8 | tail                                 of a tagged digest
    records  255 | length 2 | record | length 2 | record ...                             two and more of a fingerprint

Integers are big-endian; the tail (URL, id, fetch time) is in `tail`. Members carry nothing but the rest of their key: a
fingerprint names its record. How a bucket holds them is told in `buckets`. A verifier has no bytes where the relation
has none; its band keys are its last bytes.

Bucket bits b are chosen so that a bucket holds 14 to 28 members: many enough that its place costs little, few enough to
be read and written whole, which is what a page does in each table.

The last entry of the log is that of the last `seq` given, and none is missing: so an entry's number is its place, and
need not be written. Who removes a record out of turn leaves its entry, which is passed over when it is the oldest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from simhash.errors import DesignError
from simhash.index.buckets import MOST_BYTES
from simhash.index.interface import STORED_BYTES, Answer, Duplicate, Entry, IndexSpec, Partition, Record, Unique
from simhash.index.lua import expression
from simhash.index.places import Place, Places
from simhash.index.tail import packed, unpacked
from simhash.sketch import BAND_BITS
from simhash.tables import Design, Table

OBSERVATION_BYTES = 16
SEQ_BYTES = TIME_BYTES = OFFSET_BYTES = 6
SEVERAL = b"\xff"
"""How the records of a fingerprint begin when there are two and more; one begins with its seq, which is smaller."""
ENTRIES_PER_BUCKET = 20
"""Aim for b: 14 to 28 members in a bucket. With twice as many a document takes about 12 bytes less (6 tables, 3 bands,
record) and its call more time: Lua reads every byte of a string that it is given."""
FIRST_BAND = 128
"""What the fields of the first band begin with, those of the first table with 0."""
MAX_SCORE_BITS = 53
"""The score of a sorted set is a double."""
BAND_SCORE_BITS = 8
"""Bits of a band key behind b. Of other keys that share b + 8 bits with a page's own, a bucket of 20 members holds one
in thirteen: they are compared and found wanting."""

_TAGS = {"text": b"t", "raw": b"r"}
_NAMES = {tag: name for name, tag in _TAGS.items()}


def bucket_bits(capacity: int, design: Design) -> int:
    """b for `capacity` documents: log2(n / 20), at most the shortest prefix and 32 bits, at least 1.

    Raises:
        DesignError: the prefixes are so long that what is behind b does not fit into a score.
    """
    wanted = round(math.log2(max(capacity, 1) / ENTRIES_PER_BUCKET)) if capacity > ENTRIES_PER_BUCKET else 1
    longest = max(table.prefix for table in design.tables)
    most = min(design.shortest_prefix, 32)
    if longest - most > MAX_SCORE_BITS:
        raise DesignError(f"design {design.name!r} has prefixes of {longest} bits: too long for an index in Redis")
    return max(1, longest - MAX_SCORE_BITS, min(wanted, most))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the members of a kind of bucket are.

    Attributes:
        bucket: bits that name the bucket, in front of the members'.
        score: bits that a member begins with and shares with all that a probe is to find.
        size: bytes of a member.
    """

    bucket: int
    score: int
    size: int


class Layout:
    """The bytes of one index: everything that follows from its name and spec.

    Args:
        keys: what the keys of its tables, records and log start with in place of the name, once it was migrated; its
            meta and its journals, which outlive a generation, start with the name.
    """

    def __init__(self, name: str, spec: IndexSpec, keys: str | None = None) -> None:
        self.name = name
        self.keys = keys or name
        self.spec = spec
        self.meta = f"{name}:meta"
        self.log = f"{self.keys}:log"
        relation, b = spec.relation, spec.bucket_bits
        self.bits = relation.design.bits
        self.fingerprint_bytes = math.ceil(self.bits / 8)
        self.digits = math.ceil(b / 4)
        verifier_bits = 0 if relation.verifier_reach is None else relation.verifier_bits + BAND_BITS * relation.bands
        self.verifier_bytes = verifier_bits // 8
        self._rest_bits = self.bits - b
        self._member_bytes = max(2, math.ceil(self._rest_bits / 8))
        self._spare = 8 * self._member_bytes - self._rest_bits  # bits behind the member, left 0
        self.band_shape = Shape(b, min(BAND_SCORE_BITS, BAND_BITS - b), 1 + self.fingerprint_bytes)
        self._tables = relation.design.tables
        self._tail_at = 2 * STORED_BYTES + self.verifier_bytes
        self._bucket_bytes = math.ceil(b / 8)
        self._field_bytes = 1 + self._bucket_bytes
        self._to_band_bucket, self._band_mask = BAND_BITS - b, (1 << self.band_shape.score) - 1
        self._to_band_score = self._to_band_bucket - self.band_shape.score
        self.tables = f"{self.keys}:t"
        self.places = Places(
            self.bits,
            len(self._tables),
            self._bucket_bytes,
            self._member_bytes,
            lambda fingerprint: fingerprint >> self._rest_bits,
            lambda fingerprint: [self._place(table, fingerprint) for table in self._tables],
        )

    # Keys ----------------------------------------------------------------------------------------------------------

    @property
    def records_start(self) -> str:
        """What the keys of records of fingerprints start with."""
        return f"{self.keys}:r:"

    @property
    def digests_start(self) -> str:
        """What the keys of records of tagged digests start with."""
        return f"{self.keys}:x:"

    def journal(self, partition: Partition) -> str:
        """The journal of a partition."""
        return f"{self.name}:j:{partition.topic}:{partition.number}"

    def field(self, kind: int, bucket: int) -> bytes:
        """The field of a bucket; `kind`: the table's number, or `FIRST_BAND` and the band's."""
        return bytes([kind]) + bucket.to_bytes(self._bucket_bytes)

    def outgrown(self, field: bytes) -> str:
        """The sorted set that holds the members of a bucket which outgrew its string."""
        return f"{self.tables}:{field.hex()}"

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

    def shape(self, table: Table) -> Shape:
        """What the members of a table's buckets are."""
        return Shape(self.spec.bucket_bits, table.prefix - self.spec.bucket_bits, self._member_bytes)

    def place(self, number: int, fingerprint: int) -> tuple[bytes, bytes]:
        """Field and member of a fingerprint in the table of that number."""
        bucket, member = self._place(self._tables[number], fingerprint)
        return self.field(number, bucket), member.to_bytes(self._member_bytes)

    def band_place(self, number: int, key: int, fingerprint: int) -> tuple[bytes, bytes] | None:
        """Field and member of a fingerprint by the band key of that number; None when it is no key."""
        if not key:
            return None
        field = self.field(FIRST_BAND + number, key >> self._to_band_bucket)
        return field, bytes([self._band_byte(key)]) + self.key_of(fingerprint)

    def shape_of(self, field: bytes) -> Shape | None:
        """What the members of the bucket of this field are; None: no bucket has such a field."""
        band = field[0] - FIRST_BAND if len(field) == self._field_bytes else -1
        if 0 <= band < self.spec.relation.bands:
            return self.band_shape
        return self.shape(self._tables[field[0]]) if -FIRST_BAND <= band < len(self._tables) - FIRST_BAND else None

    def fingerprint_at(self, field: bytes, member: bytes) -> int:
        """The inverse of `place` and `band_place`."""
        if field[0] >= FIRST_BAND:
            return int.from_bytes(member[1:])
        rest = int.from_bytes(member) >> self._spare
        return self._tables[field[0]].restore(int.from_bytes(field[1:]) << self._rest_bits | rest)

    def _place(self, table: Table, fingerprint: int) -> Place:
        permuted = table.permute(fingerprint)
        return permuted >> self._rest_bits, (permuted & (1 << self._rest_bits) - 1) << self._spare

    def _band_byte(self, key: int) -> int:
        """What is behind the bucket's bits of a band key, left-aligned in a byte."""
        return (key >> self._to_band_score & self._band_mask) << 8 - self.band_shape.score

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

    def records_in(self, field: bytes) -> list[Record]:
        """The records of one fingerprint."""
        if not field.startswith(SEVERAL):
            return [self.record(field)] if field else []
        records, at = [], 1
        while at < len(field):
            (length,) = struct.unpack_from(">H", field, at)
            records.append(self.record(field[at + 2 : at + 2 + length]))
            at += 2 + length
        return records

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
        key, bands = self.key_of(entry.fingerprint), self.spec.relation.band_keys(entry.verifier)
        bucket, fields, members = self.places.packed(key)
        records = f"{self.records_start}{bucket:0{self.digits}x}".encode()
        return b"".join(
            (
                head,
                body,
                key,
                records,
                fields,
                *map(self._band_field, range(len(bands)), bands),
                members,
                bytes(map(self._band_byte, bands)),
            )
        )

    def _band_field(self, number: int, key: int) -> bytes:
        """The field by a band key; ones: it is no key."""
        return self.field(FIRST_BAND + number, key >> self._to_band_bucket) if key else b"\xff" * self._field_bytes

    def answer(self, data: bytes, entry: Entry) -> Answer:
        """The script's answer for a page."""
        candidates, kind = int.from_bytes(data[:4]), data[4:5]
        if kind == b"u":
            return Answer(Unique(int.from_bytes(data[5:])), candidates)
        return Answer(
            Duplicate(data[5], self.record(data[6:], entry.digest if entry.fingerprint is None else None)), candidates
        )

    @staticmethod
    def meets_crowd(data: bytes) -> bool:
        """Whether the script has given, in place of an answer, that the page must be judged alone."""
        return data[4:5] == b"c"

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

    def for_script(self) -> str:
        """What scripts must know of the layout: Lua that stands before them, `layout` and `permutations()`."""
        relation = self.spec.relation
        scores = [self.shape(table).score for table in self._tables] + [self.band_shape.score] * relation.bands
        keys = f"c{len(self.records_start.encode()) + self.digits}"
        keys += f"c{self._field_bytes}" * len(scores)
        members = f"c{self._member_bytes}" * len(self._tables) + "c1" * relation.bands
        layout = expression({
            "log": self.log,
            "records": self.records_start,
            "digests": self.digests_start,
            "bits": self.bits,
            "reach": relation.reach,
            "verifier_reach": -1 if relation.verifier_reach is None else relation.verifier_reach,
            "verifier_bytes": self.verifier_bytes,
            "compared_bytes": self.verifier_bytes - relation.bands * BAND_BITS // 8,
            "bucket_bits": self.spec.bucket_bits,
            "bucket_digits": self.digits,
            "prefixes": [table.prefix for table in self._tables],
            "radius": relation.design.radius,
            "tables": self.tables,
            "bands": relation.bands,
            "first_band": FIRST_BAND,
            "fingerprint_bytes": self.fingerprint_bytes,
            "member_bytes": self._member_bytes,
            "scores": scores,
            "whole_bytes": [score // 8 for score in scores],
            "units": [1 << 8 - score % 8 for score in scores],
            "most_bytes": MOST_BYTES,
            "places": f">c{self.fingerprint_bytes}{keys}{members}",
        })  # fmt: skip
        permutations = expression([self._permutation(table) for table in self._tables])
        return f"local layout = {layout}\nlocal function permutations() return {permutations} end\n"

    def _permutation(self, table: Table) -> Mapping[str, object]:
        """What matches and removals need of a table: both permutations, as substrings (from 1) of a fingerprint."""
        at = {}
        position = 1
        for block in table.blocks:
            at[block.start] = [position, position + block.width - 1]
            position += block.width
        return {
            "permute": [[block.start + 1, block.end] for block in table.blocks],
            "restore": [at[start] for start in sorted(at)],
        }


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
