"""How an index lies in Redis: key names, and the bytes of records, pages and answers. No connection lives here.

    key                          type  holds
    ns:meta                      HASH  format, generation, the spec, seq (last given), documents
    ns:t<i>:<top b bits, hex>    ZSET  scores 0; the rest of each fingerprint as table i permutes it: a sorted bucket
    ns:b<i>:<top b bits, hex>    ZSET  scores 0; the rest of band key i and the fingerprint: a sorted bucket
    ns:r:<top b bits, hex>       HASH  fingerprint -> its records, each behind two bytes of length
    ns:x:<top b bits, hex>       HASH  tagged digest -> record, for pages without a fingerprint
    ns:log                       LIST  kind, seq, time and fingerprint or digest of each record, oldest first
    ns:j:<topic>:<partition>     HASH  journal: offset -> observation and answer; "mark" -> the committed offset

    record   seq 6 | inserted ms 6 | observation 16 | verifier | tag 1 + digest 16 | msgpack [url, id, fetched]

Integers are big-endian. Members carry nothing but the rest of their key: a fingerprint names its record. The verifier
has no bytes in a record of `ns:x`, or where the relation has none; its band keys are its last bytes.
Bucket bits b are chosen so that a bucket holds 16 to 60 entries and stays one listpack, which is what makes the
tables small: one key per full prefix would cost ten times as much, and a score cannot hold 64 bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import msgspec

from simhash.index.interface import Answer, Duplicate, Entry, IndexSpec, Partition, Record, Unique
from simhash.sketch import BAND_BITS
from simhash.tables import Table

OBSERVATION_BYTES = 16
DIGEST_BYTES = 17
SEQ_BYTES = TIME_BYTES = OFFSET_BYTES = 6
ENTRIES_PER_BUCKET = 32
"""Aim for b: 16 to 60 entries keep a bucket one listpack and ZRANGEBYLEX in it cheap."""

_TAGS = {"text": b"t", "raw": b"r"}
_NAMES = {tag: name for name, tag in _TAGS.items()}
_TAIL = msgspec.msgpack.Encoder()
_TAIL_DECODER = msgspec.msgpack.Decoder(tuple[str, str | None, str | None])


def bucket_bits(capacity: int, shortest_prefix: int) -> int:
    """b for `capacity` documents: log2(n / 32), at most the shortest prefix and 32 bits, at least 1."""
    wanted = round(math.log2(max(capacity, 1) / ENTRIES_PER_BUCKET)) if capacity > ENTRIES_PER_BUCKET else 1
    return max(1, min(wanted, shortest_prefix, 32))


class Layout:
    """The bytes of one index: everything that follows from its name and spec."""

    def __init__(self, name: str, spec: IndexSpec) -> None:
        design = spec.relation.design
        self.name = name
        self.spec = spec
        self.meta = f"{name}:meta"
        self.log = f"{name}:log"
        self.fingerprint_bytes = math.ceil(design.bits / 8)
        self.digits = math.ceil(spec.bucket_bits / 4)
        self.rest_bits = design.bits - spec.bucket_bits
        self.rest_bytes = math.ceil(self.rest_bits / 8)
        relation = spec.relation
        verifier_bits = 0 if relation.verifier_reach is None else relation.verifier_bits + BAND_BITS * relation.bands
        self.verifier_bytes = verifier_bits // 8
        self.band_rest_bytes = max(1, math.ceil((BAND_BITS - spec.bucket_bits) / 8))
        self._rest_mask = (1 << self.rest_bits) - 1

    # Keys ----------------------------------------------------------------------------------------------------------

    def journal(self, partition: Partition) -> str:
        """The journal of a partition."""
        return f"{self.name}:j:{partition.topic}:{partition.number}"

    def table(self, index: int) -> str:
        """What the keys of a table's buckets start with."""
        return f"{self.name}:t{index}:"

    def band(self, index: int) -> str:
        """What the keys of a band's buckets start with."""
        return f"{self.name}:b{index}:"

    def bucket(self, value: int, bits: int) -> str:
        """The bucket, in hex, of a value of `bits` bits: its top b bits."""
        return f"{value >> (bits - self.spec.bucket_bits):0{self.digits}x}"

    def records(self, fingerprint: int) -> str:
        """The hash that holds the records of a fingerprint."""
        return f"{self.name}:r:{self.bucket(fingerprint, self.spec.relation.design.bits)}"

    def digests(self, digest: bytes) -> str:
        """The hash that holds the record of a tagged digest."""
        return f"{self.name}:x:{self.bucket(int.from_bytes(digest[1:]), 128)}"

    # Fingerprints --------------------------------------------------------------------------------------------------

    def key_of(self, fingerprint: int) -> bytes:
        """A fingerprint as the field of its records."""
        return fingerprint.to_bytes(self.fingerprint_bytes)

    def place(self, table: Table, fingerprint: int) -> tuple[str, bytes]:
        """Bucket (hex) and member of a fingerprint in a table."""
        permuted = table.permute(fingerprint)
        return self.bucket(permuted, table.bits), (permuted & self._rest_mask).to_bytes(self.rest_bytes)

    def band_place(self, key: int) -> tuple[str, bytes]:
        """Bucket (hex; dashes: there is no key) and rest of a band key."""
        if not key:
            return "-" * self.digits, bytes(self.band_rest_bytes)
        rest = key & ((1 << (BAND_BITS - self.spec.bucket_bits)) - 1)
        return self.bucket(key, BAND_BITS), rest.to_bytes(self.band_rest_bytes)

    def fingerprint_at(self, table: Table, bucket: str, member: bytes) -> int:
        """The inverse of `place`."""
        return table.restore(int(bucket, 16) << self.rest_bits | int.from_bytes(member))

    # Records -------------------------------------------------------------------------------------------------------

    def body(self, entry: Entry) -> bytes:
        """What is stored of a page, without the number and time that the index gives it."""
        verifier = b""
        if entry.fingerprint is not None and self.verifier_bytes:
            verifier = (entry.verifier or 0).to_bytes(self.verifier_bytes)
        tail = _TAIL.encode((entry.url, entry.id, entry.fetched_at))
        return entry.observation + verifier + tagged(entry.digest) + tail

    def record(self, data: bytes, has_fingerprint: bool) -> Record:
        """The record in `data`."""
        seq, inserted = int.from_bytes(data[:6]), int.from_bytes(data[6:12])
        at = 12 + OBSERVATION_BYTES
        width = self.verifier_bytes if has_fingerprint else 0
        verifier = int.from_bytes(data[at : at + width]) if width else None
        digest = data[at + width : at + width + DIGEST_BYTES]
        url, id_, fetched_at = _TAIL_DECODER.decode(data[at + width + DIGEST_BYTES :])
        return Record(seq, inserted, data[12:at], verifier, untagged(digest), url, id_, fetched_at)

    def records_in(self, field: bytes) -> list[Record]:
        """The records under one fingerprint."""
        records, at = [], 0
        while at < len(field):
            (length,) = struct.unpack_from(">H", field, at)
            records.append(self.record(field[at + 2 : at + 2 + length], has_fingerprint=True))
            at += 2 + length
        return records

    # Calls ---------------------------------------------------------------------------------------------------------

    def page(self, entry: Entry, partition: int) -> bytes:
        """A page as an argument of the script; `partition` counts from 1, 0 is none."""
        offset = entry.position.offset if entry.position else 0
        body = self.body(entry)
        kind = b"d" if entry.fingerprint is None else b"f"
        head = struct.pack(">cH6sH", kind, partition, offset.to_bytes(OFFSET_BYTES), len(body)) + body
        if entry.fingerprint is None:
            return head + self.bucket(int.from_bytes(tagged(entry.digest)[1:]), 128).encode()
        design = self.spec.relation.design
        parts = [head, self.key_of(entry.fingerprint), self.bucket(entry.fingerprint, design.bits).encode()]
        for table in design.tables:
            bucket, member = self.place(table, entry.fingerprint)
            parts += bucket.encode(), member
        for key in self.spec.relation.band_keys(entry.verifier):
            bucket, rest = self.band_place(key)
            parts += bucket.encode(), rest
        return b"".join(parts)

    def answer(self, data: bytes, has_fingerprint: bool) -> Answer:
        """The script's answer for one page."""
        candidates, kind = int.from_bytes(data[:4]), data[4:5]
        if kind == b"u":
            return Answer(Unique(int.from_bytes(data[5:])), candidates)
        return Answer(Duplicate(data[5], self.record(data[6:], has_fingerprint)), candidates)

    def for_script(self) -> Mapping[str, object]:
        """What the script must know of the layout."""
        relation = self.spec.relation
        places = f"c{self.digits}c{self.rest_bytes}" * len(relation.design.tables)
        places += f"c{self.digits}c{self.band_rest_bytes}" * relation.bands
        return {
            "bits": relation.design.bits,
            "reach": relation.reach,
            "verifier_reach": -1 if relation.verifier_reach is None else relation.verifier_reach,
            "verifier_bytes": self.verifier_bytes,
            "compared_bytes": self.verifier_bytes - relation.bands * BAND_BITS // 8,
            "fingerprint_bytes": self.fingerprint_bytes,
            "bands": [self.band(i) for i in range(relation.bands)],
            "band_rest_bytes": self.band_rest_bytes,
            "bucket_bits": self.spec.bucket_bits,
            "bucket_digits": self.digits,
            "radius": relation.design.radius,
            "places": f">c{self.fingerprint_bytes}c{self.digits}{places}",
            "rest_bytes": self.rest_bytes,
            "tables": [self._table_for_script(i, table) for i, table in enumerate(relation.design.tables)],
        }

    def _table_for_script(self, index: int, table: Table) -> Mapping[str, object]:
        """Where the bits between b and p lie in a member, and both permutations as substrings (from 1)."""
        padding = 8 * self.rest_bytes - self.rest_bits
        fixed = padding + table.prefix - self.spec.bucket_bits
        whole = table.prefix == self.spec.bucket_bits
        at = {}
        position = 1
        for block in table.blocks:
            at[block.start] = [position, position + block.width - 1]
            position += block.width
        return {
            "key": self.table(index),
            "whole_bucket": whole,
            "range_bytes": min(fixed // 8, self.rest_bytes - 1),
            "range_mask": 0 if fixed == 8 * self.rest_bytes else (1 << (8 - fixed % 8)) - 1,
            "first_bit": padding,
            "last_bit": fixed - 1,
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
