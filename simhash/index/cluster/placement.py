"""Where the keys of an index on a cluster lie, and what is read and written there. No connection lives here.

    key                                  type  holds
    {ns:claim}:…                               the claim slot: see claims.lua
    {ns:<g>}:t<i>:<top b bits, hex>      ZSET  scores 0; the rest of each fingerprint as table i permutes it
    {ns:<g>}:b<i>:<top b bits, hex>      ZSET  scores 0; the rest of band key i and the fingerprint
    {ns:<g>}:r:<top b bits, hex>         HASH  fingerprint -> its records, each behind two bytes of length
    {ns:<g>}:x:<top b bits, hex>         HASH  tagged digest -> record, for pages without a fingerprint
    {ns:<g>}:log:<seq / 128>             HASH  seq -> time and fingerprint or digest, for retention
    {ns:<g>}:barred                      ZSET  nonces that may not write in this group any more
    {ns:<g>}:written                     STRING  how many calls have written in this group

`ns` is another once the index was migrated; while it is being migrated there is a next placement beside this one, whose
groups are numbered behind these, and which is written to as well.

Buckets are dealt out to `GROUPS` groups by a hash of their names. A group is one hash tag, so one slot, so one script
call for all that a batch reads or writes there; the tags are chosen such that the groups lie evenly over the slots. The
records are those of a single primary, without its short form of a lone one; members keep all bits behind b.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from simhash.index.cluster.groups import GROUPS, Operation, Spot, behind, group_tags
from simhash.index.interface import Entry, IndexSpec
from simhash.index.layout import SEQ_BYTES, TIME_BYTES, Layout, tagged
from simhash.sketch import BAND_BITS
from simhash.tables import Table

DIGEST_BYTES = 17
LOG_SEGMENT = 128
BODY = SEQ_BYTES + TIME_BYTES
"""Where a record's body begins."""
REMEMBERED = 1024
"""Fingerprints of which the places are kept: those of a batch are needed thrice."""
_KEY = re.compile(
    r"\{(?P<tag>.+)\}:((?P<alone>barred|written)|log:(?P<segment>[0-9a-f]+)|"
    r"(?P<kind>[tbrx])(?P<number>(?<=[tb])\d+)?:(?P<bucket>[0-9a-f]+))"
)
_SPREAD = 0x9E3779B97F4A7C15
"""Odd, so that different prefixes of up to 64 bits stay different; it keeps those of different tables apart."""


class Probe(NamedTuple):
    """A bucket to be read for a page, and how its members become fingerprints (`table` None: a band)."""

    operation: Operation
    table: Table | None
    bucket: int


class Place(NamedTuple):
    """Where a fingerprint lies in a table: its bucket and member, and the prefix by which it is met."""

    table: Table
    spot: Spot
    member: bytes
    prefix: int


class Member(NamedTuple):
    """A member of a bucket."""

    spot: Spot
    member: bytes


class KeyName(NamedTuple):
    """A key of a group, taken apart: its kind (t, b, r, x, log, barred, written), which of its kind, which bucket."""

    kind: str
    number: int
    bucket: int


class Logged(NamedTuple):
    """An entry of the log: when a record was inserted, and its fingerprint or tagged digest."""

    inserted_ms: int
    key: bytes


class Placement:
    """Keys, probes and writes of one generation of an index.

    Attributes:
        next: of the generation that is written to beside it; None: there is none.
    """

    def __init__(self, name: str, spec: IndexSpec, layout: Layout) -> None:
        self.name = name
        self.spec = spec
        self.tags = group_tags(name)
        self.next: Placement | None = None
        self._layout = layout
        self._bits = spec.relation.design.bits
        self._rest_bits = self._bits - spec.bucket_bits
        self._rest_bytes = math.ceil(self._rest_bits / 8)
        self._rest_mask = (1 << self._rest_bits) - 1
        self._fingerprint_bytes = math.ceil(self._bits / 8)
        self._radius = spec.relation.design.radius
        self._placed = lru_cache(REMEMBERED)(self._place)
        self._band_rest_bits = max(0, BAND_BITS - spec.bucket_bits)
        self._band_rest_bytes = max(1, math.ceil(self._band_rest_bits / 8))

    @property
    def groups(self) -> int:
        """How many groups are written to."""
        return GROUPS if self.next is None else 2 * GROUPS

    def barred(self, group: int) -> str:
        """The key of the nonces that may not write in a group."""
        return f"{{{self._tag(group)}}}:barred"

    def written(self, group: int) -> str:
        """The key of how many calls have written in a group."""
        return f"{{{self._tag(group)}}}:written"

    def _tag(self, group: int) -> str:
        if group < GROUPS or self.next is None:
            return self.tags[group]
        return self.next.tags[group - GROUPS]

    # Reading -------------------------------------------------------------------------------------------------------

    def probes(self, fingerprint: int) -> Iterator[Probe]:
        """What holds every stored fingerprint that shares a prefix with this one in some table."""
        for index, place in enumerate(self._placed(fingerprint)):
            table = place.table
            behind = self._bits - table.prefix
            yield self._probe(table, place.spot, place.prefix << behind)
            for prefix in flipped(place.prefix, table.prefix) if self._radius else ():
                start = prefix << behind
                yield self._probe(table, self._spot(f"t{index}", start >> self._rest_bits), start)

    def _probe(self, table: Table, spot: Spot, start: int) -> Probe:
        """Read the part of a bucket that begins with the prefix of `start`, all behind it 0."""
        bucket, low = start >> self._rest_bits, start & self._rest_mask
        high = low | ((1 << (self._bits - table.prefix)) - 1)
        ends = low.to_bytes(self._rest_bytes), high.to_bytes(self._rest_bytes)
        return Probe(self._range(spot, *ends), table, bucket)

    @staticmethod
    def behind(operation: Operation, last: bytes) -> Operation:
        """Read the part of a bucket that `operation` reads, but for what is up to the member `last`."""
        length = operation.argument[1]
        return Operation(operation.spot, b"z" + _headed(last + b"\0", operation.argument[2 + length :]))

    def band_probes(self, verifier: int | None) -> Iterator[Probe]:
        """What holds every stored fingerprint with a band key of this verifier's."""
        for spot, rest in self._band_spots(verifier):
            ends = rest + bytes(self._fingerprint_bytes), rest + b"\xff" * self._fingerprint_bytes
            yield Probe(self._range(spot, *ends), None, 0)

    def fingerprints(self, probe: Probe, members: list[bytes]) -> list[int]:
        """The fingerprints that a probe has found."""
        if probe.table is None:
            return [int.from_bytes(member[self._band_rest_bytes :]) for member in members]
        bucket = probe.bucket << self._rest_bits
        return [probe.table.restore(bucket | int.from_bytes(member)) for member in members]

    def records_of(self, fingerprint: int) -> Operation:
        """Read the records of a fingerprint."""
        return Operation(self._records(fingerprint), b"h" + self._layout.key_of(fingerprint))

    def record_of(self, digest: bytes) -> Operation:
        """Read the record of a tagged digest."""
        return Operation(self._digests(digest), b"h" + digest)

    def stored_under(self, key: bytes) -> Operation:
        """Read what is stored under a fingerprint or a tagged digest."""
        return self.record_of(key) if is_digest(key) else self.records_of(int.from_bytes(key))

    def logged(self, seq: int) -> Operation:
        """Read the log's entry of a record."""
        return Operation(self._log(seq), b"h" + seq.to_bytes(SEQ_BYTES))

    @staticmethod
    def log_entry(value: bytes) -> Logged:
        """What the log says of a record."""
        return Logged(int.from_bytes(value[:TIME_BYTES]), value[TIME_BYTES:])

    # Writing -------------------------------------------------------------------------------------------------------

    def insertion(self, key: bytes, record: bytes, verifier: int | None) -> list[Operation]:
        """Everything that is written for a unique page of this fingerprint or digest: record, log entry, members."""
        number, logged = int.from_bytes(record[:SEQ_BYTES]), Logged(int.from_bytes(record[SEQ_BYTES:BODY]), key)
        return self._in_both(lambda placement: placement._insertion(number, logged, record, verifier))

    def carrying(self, seq: int, logged: Logged, record: bytes | None, verifier: int | None) -> list[Operation]:
        """What is written to the next generation for an entry of the log; without a record when its place was taken."""
        if self.next is None:
            return []
        return behind(self.next._insertion(seq, logged, record, verifier))

    def _insertion(self, seq: int, logged: Logged, record: bytes | None, verifier: int | None) -> list[Operation]:
        number, key = seq.to_bytes(SEQ_BYTES), logged.key
        entry = Operation(self._log(seq), b"s" + _headed(number, logged.inserted_ms.to_bytes(TIME_BYTES) + key))
        if record is None:
            return [entry]
        if is_digest(key):
            return [Operation(self._digests(key), b"w" + _headed(key, record)), entry]
        fingerprint = int.from_bytes(key)
        written = [Operation(self._records(fingerprint), b"p" + _headed(key, record)), entry]
        written += [Operation(place.spot, b"a" + place.member) for place in self._placed(fingerprint)]
        return written + [Operation(spot, b"a" + rest + key) for spot, rest in self._band_spots(verifier)]

    def removal_of_members(
        self, fingerprint: int, verifier: int | None, others: Sequence[int | None]
    ) -> list[Operation]:
        """Delete the bands that no other record of the fingerprint has, and the members when there is no other.

        Args:
            verifier: the record's; others: those of the other records of the fingerprint.
        """
        return self._in_both(lambda placement: placement._removal_of_members(fingerprint, verifier, others))

    def _removal_of_members(
        self, fingerprint: int, verifier: int | None, others: Sequence[int | None]
    ) -> list[Operation]:
        key = self._layout.key_of(fingerprint)
        kept = {place for other in others for place in self._band_spots(other)}
        gone = [place for place in self._band_spots(verifier) if place not in kept]
        written = [Operation(spot, b"d" + rest + key) for spot, rest in gone]
        if not others:
            written += [Operation(place.spot, b"d" + place.member) for place in self._placed(fingerprint)]
        return written

    def removal_of_record(self, key: bytes, seq: int) -> list[Operation]:
        """Delete a record and its log entry."""
        return self._in_both(lambda placement: placement._removal_of_record(key, seq))

    def _removal_of_record(self, key: bytes, seq: int) -> list[Operation]:
        number = seq.to_bytes(SEQ_BYTES)
        if is_digest(key):
            record = Operation(self._digests(key), b"v" + _headed(key, number))
        else:
            record = Operation(self._records(int.from_bytes(key)), b"q" + _headed(key, number))
        return [record, Operation(self._log(seq), b"u" + number)]

    def _in_both(self, written: Callable[[Placement], list[Operation]]) -> list[Operation]:
        """What is written in this generation, and in the next one."""
        return written(self) + (behind(written(self.next)) if self.next else [])

    # Taking apart --------------------------------------------------------------------------------------------------

    def place_of(self, key: str) -> KeyName | None:
        """The parts of a key that lies in a group; None: no index has such a key there."""
        found = _KEY.fullmatch(key)
        if found is None or found["tag"] not in self.tags:
            return None
        if found["alone"] or found["segment"]:
            name = KeyName(found["alone"] or "log", 0, int(found["segment"] or "0", 16))
            return name if name.kind != "log" or self._log(name.bucket * LOG_SEGMENT).key == key else None
        name = KeyName(found["kind"], int(found["number"] or 0), int(found["bucket"], 16))
        relation = self.spec.relation
        there_are = {"t": len(relation.design.tables), "b": relation.bands}.get(name.kind, 1)
        numbered = f"{name.kind}{name.number}" if name.kind in "tb" else name.kind
        return name if name.number < there_are and self._spot(numbered, name.bucket).key == key else None

    def owner(self, name: KeyName, member: bytes) -> int | None:
        """The fingerprint whose member of a bucket this is; None: it can be nobody's."""
        if name.kind == "b":
            whole = len(member) == self._band_rest_bytes + self._fingerprint_bytes
            return int.from_bytes(member[self._band_rest_bytes :]) if whole else None
        rest = int.from_bytes(member)
        if len(member) != self._rest_bytes or rest > self._rest_mask:
            return None
        return self.spec.relation.design.tables[name.number].restore(name.bucket << self._rest_bits | rest)

    def members(self, fingerprint: int, verifiers: Sequence[int | None]) -> tuple[set[Member], set[Member]]:
        """Where a fingerprint stands in each table; and in the bands, by the verifiers of its records."""
        key = self._layout.key_of(fingerprint)
        bands = {Member(spot, rest + key) for verifier in verifiers for spot, rest in self._band_spots(verifier)}
        return {Member(place.spot, place.member) for place in self._placed(fingerprint)}, bands

    def has_band(self, key: str, member: bytes, verifier: int | None) -> bool:
        """Whether a member of a band's bucket is there for this verifier, whatever its fingerprint."""
        spots = self._band_spots(verifier)
        return any(spot.key == key and member[: self._band_rest_bytes] == rest for spot, rest in spots)

    @staticmethod
    def standing(member: Member) -> Operation:
        """Read whether a member is there."""
        return Operation(member.spot, b"m" + member.member)

    # Meeting -------------------------------------------------------------------------------------------------------

    def meeting(self, entry: Entry) -> tuple[list[bytes], list[bytes]]:
        """The keys by which a page meets others in the claim slot; and those by which it is looked for beside them.

        Those of the next generation as well: claims that are there when it takes over are met by its tables.
        """
        own, beside = self._meeting(entry)
        if self.next is not None:
            more, more_beside = self.next._meeting(entry)
            own, beside = [*dict.fromkeys(own + more)], beside + more_beside
        return own, beside

    def _meeting(self, entry: Entry) -> tuple[list[bytes], list[bytes]]:
        relation = self.spec.relation
        own = [self.meeting_of(self.key(entry))]
        beside: list[bytes] = []
        if entry.fingerprint is None:
            return own, beside
        for index, place in enumerate(self._placed(entry.fingerprint)):
            own.append(_meeting(b"t", place.prefix, index))
            if self._radius:
                beside += [_meeting(b"t", prefix, index) for prefix in flipped(place.prefix, place.table.prefix)]
        for index, key in enumerate(relation.band_keys(entry.verifier)):
            if key:
                own.append(_meeting(b"b", key, index))
        return own, beside

    def meeting_keys(self) -> int:
        """By how many keys a page is looked for in the claim slot, at most."""
        relation = self.spec.relation
        tables = sum(1 + table.prefix * self._radius for table in relation.design.tables)
        return 1 + tables + relation.bands + (self.next.meeting_keys() if self.next else 0)

    @staticmethod
    def meeting_of(key: bytes) -> bytes:
        """The key by which only pages of the same fingerprint, or tagged digest, meet."""
        return _meeting(b"x" if is_digest(key) else b"f", int.from_bytes(key), 0)

    def key(self, entry: Entry) -> bytes:
        """What a page's record is stored under: its fingerprint, or its tagged digest."""
        return tagged(entry.digest) if entry.fingerprint is None else self._layout.key_of(entry.fingerprint)

    # Spots ---------------------------------------------------------------------------------------------------------

    def bucket(self, kind: str, number: int) -> str:
        """The key of a bucket of a kind: t0, b0, r, x ..."""
        return self._spot(kind, number).key

    def _spot(self, kind: str, bucket: int) -> Spot:
        name = f"{kind}:{bucket:0{self._layout.digits}x}"
        group = zlib.crc32(name.encode()) % GROUPS
        return Spot(group, f"{{{self.tags[group]}}}:{name}")

    def _range(self, spot: Spot, low: bytes, high: bytes) -> Operation:
        return Operation(spot, b"z" + _headed(low, high))

    def _place(self, fingerprint: int) -> list[Place]:
        """Where a fingerprint lies in each table."""
        places = []
        for index, table in enumerate(self.spec.relation.design.tables):
            permuted = table.permute(fingerprint)
            member = (permuted & self._rest_mask).to_bytes(self._rest_bytes)
            spot = self._spot(f"t{index}", permuted >> self._rest_bits)
            places.append(Place(table, spot, member, permuted >> (self._bits - table.prefix)))
        return places

    def _band_spots(self, verifier: int | None) -> Iterator[tuple[Spot, bytes]]:
        """For each band key its bucket, and its rest."""
        for index, key in enumerate(self.spec.relation.band_keys(verifier)):
            if key:
                bucket, rest = divmod(key, 1 << self._band_rest_bits)
                yield self._spot(f"b{index}", bucket), rest.to_bytes(self._band_rest_bytes)

    def _records(self, fingerprint: int) -> Spot:
        return self._spot("r", fingerprint >> self._rest_bits)

    def _digests(self, digest: bytes) -> Spot:
        return self._spot("x", int.from_bytes(digest[1:]) >> (128 - self.spec.bucket_bits))

    def _log(self, seq: int) -> Spot:
        return self._spot("log", seq // LOG_SEGMENT)


def is_digest(key: bytes) -> bool:
    """Whether a record's key is a tagged digest; a fingerprint has fewer bytes."""
    return len(key) == DIGEST_BYTES


def flipped(prefix: int, bits: int) -> Iterator[int]:
    """The prefixes that differ from this one in one bit."""
    return (prefix ^ (1 << bit) for bit in range(bits))


def _meeting(kind: bytes, value: int, index: int) -> bytes:
    """9 bytes. Two keys may be equal by chance: their pages are then compared, or wait for each other, for nothing."""
    return struct.pack(">cQ", kind, (value * _SPREAD + (value >> 64) + index) % 2**64)


def _headed(head: bytes, rest: bytes) -> bytes:
    return bytes([len(head)]) + head + rest
