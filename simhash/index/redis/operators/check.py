"""Whether a live index in Redis is whole: every record in all its places, and everything else there with a reason.

Workers go on meanwhile. What looks wrong is read again, all of it in one step, before it is reported: a record that was
stored or forgotten between two readings is no fault. Every command is short. The invariants, by the names under which
violations are reported:

    documents   there are as many records as the counter says
    tombstone   a number that is said to be without a record has none
    record      a record can be read, and its number is one that was given and not forgotten
    member      a record stands in each table, one without a fingerprint under its digest; or it is noted as crowded
    band        it stands in the place of each of its band keys; likewise
    crowded     what is noted of a record that does not stand everywhere belongs to one
    orphan      what stands in a table or band has a record that belongs there; what a digest leads to has that digest
    version     what is kept of a URL has a bucket and a field of the right size, and is whole
    journal     an entry of a journal can be read, and is not below the mark
    key         a key is one that an index has, and of the type that it has there
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from simhash.errors import IndexDamaged
from simhash.index.redis.faults import translated
from simhash.index.redis.layout import (
    CROWDED_TAG,
    DAY_BYTES,
    OBSERVATION_BYTES,
    OFFSET_BYTES,
    VERSION_FIELD_BYTES,
    answer_parts,
    literal,
    numbers_in,
    tagged,
)
from simhash.index.redis.operators.check_findings import CheckFindings, Violation
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.kept_versions import bits_there
from simhash.index.redis.operators.spots import (
    OF_GENERATION,
    KeyName,
    Place,
    Spot,
    key_name,
    parts_of_key,
    read,
    spot_of,
    spots,
)
from simhash.index.redis.operators.walking import Numbered, Stretch, walk
from simhash.index.redis.spec import REPLACED_FIELD
from simhash.index.versions import least_and_most

KEYS_AT_ONCE = 100
FIELDS_AT_ONCE = 100
WALKS = 3
"""Walks along an index from which records are being removed out of turn."""
SHORT_ENCODINGS = (b"listpack", b"ziplist")
HASHES = ("r", "x", "t", "b", "v", "j")
"""The kinds of keys of which the fields are looked at."""
Fields = Iterable[tuple[bytes, bytes]]
"""Names and values."""


def check(inside: Inside, on_progress: Callable[[CheckFindings], None]) -> CheckFindings:
    """All that is wrong with an index, and how much was looked at.

    Args:
        on_progress: is told now and then what was found so far.
    """
    return _Checker(inside, on_progress).run()


class _Checker:
    """One check: first along the numbers, then over all keys."""

    def __init__(self, inside: Inside, on_progress: Callable[[CheckFindings], None]) -> None:
        self._progress = on_progress
        self.found = CheckFindings()
        self._inside, self._layout, self._client = inside, inside.layout, inside.client
        self._replaced = ""
        tables = self._layout.spec.relation.design.tables
        self._rest_bytes = [self._layout.shape(table).rest_bytes for table in tables]

    def run(self) -> CheckFindings:
        try:
            with translated():
                self._replaced = (self._client.hget(self._layout.meta, REPLACED_FIELD) or b"").decode()
                self._check_numbers()
                for keys in self._keys():
                    self._check_keys(keys)
        except IndexDamaged as damage:
            for keys in self._keys():
                self._check_types(keys)
            self._report("key", f"it was looked at no further than to this: {damage.what}")
        return self.found

    def _keys(self) -> Iterator[list[bytes]]:
        """All keys of the index, some at a time, but for those of tables that were replaced."""
        patterns = [f"{literal(start)}:*" for start in dict.fromkeys([self._layout.tag, self._layout.keys])]
        there = chain.from_iterable(self._client.scan_iter(each, count=KEYS_AT_ONCE) for each in patterns)
        found = (key for key in there if not self._is_replaced(key))
        self.found.replaced = 0
        while some := list(islice(found, KEYS_AT_ONCE)):
            yield some

    def _is_replaced(self, key: bytes) -> bool:
        """Whether it is of tables that a migration has replaced, and did not come to remove yet."""
        name = parts_of_key(key.decode(errors="replace"), self._replaced) if self._replaced else None
        is_replaced = name is not None and name.kind in OF_GENERATION
        self.found.replaced += is_replaced
        return is_replaced

    def _report(self, invariant: str, what: str) -> None:
        violation = Violation(invariant, what)
        if violation not in self.found.violations[-1:]:
            self.found.violations.append(violation)

    # Numbers ---------------------------------------------------------------------------------------------------------

    def _check_numbers(self) -> None:
        for nth in range(WALKS):
            gone = [int(member) for member, _ in self._client.zscan_iter(self._layout.tombstones, count=FIELDS_AT_ONCE)]
            removed, last, without = self._walk(first_time=nth == 0)
            gaps = sum(seq >= last.first for seq in without)
            if gaps == last.seq - last.first + 1 - last.documents:
                for seq in gone:
                    if seq >= last.first and seq not in without:
                        self._report("tombstone", f"number {seq} is said to be without a record, and has one")
                return
            if removed == last.removed:
                there = last.seq - last.first + 1 - gaps
                some = ", ".join(map(str, sorted(without)[:5]))
                self._report(
                    "documents",
                    f"the counter says {last.documents}, there are {there} records"
                    + (f" (numbers without one: {some}{', ...' if gaps > 5 else ''})" if some else ""),
                )
                return

    def _walk(self, first_time: bool) -> tuple[int, Stretch, set[int]]:
        """Records ever removed when it began, the last stretch, and the numbers that have no record.

        Of what comes in meanwhile records are counted, no more: workers may store as fast as they are looked up.
        """
        without: set[int] = set()
        begin: Stretch | None = None
        self.found.records = 0
        for part in walk(self._inside):
            begin = begin or part
            for entry in part.entries:
                if entry.record:
                    self.found.records += 1
                else:
                    without.add(entry.seq)
                if entry.damaged and first_time:
                    self._report("record", f"record {entry.seq} cannot be read")
            if first_time:
                self._check_records([entry for entry in part.entries if entry.seq <= begin.seq])
            self._progress(self.found)
        return begin.removed if begin else 0, part, without

    def _check_records(self, entries: Sequence[Numbered]) -> None:
        """Each record of a stretch stands where it should."""
        wanted = [(entry, spot) for entry in entries for spot in self._spots(entry)]
        values = read(self._inside, [(spot.key, spot.field) for _, spot in wanted])
        suspects = {
            entry.seq: entry
            for (entry, spot), value in zip(wanted, values, strict=True)
            if not _leads_to(entry, spot, value)
        }
        for entry in suspects.values():
            self._check_record(entry)

    def _spots(self, entry: Numbered) -> list[Spot]:
        """The places in which a record stands; of one without a fingerprint, that of its digest."""
        if not entry.record:
            return []
        if entry.fingerprint is None:
            digest = tagged(entry.record.digest)
            return [Spot(self._layout.digests(digest), digest)]
        return spots(self._layout, entry.fingerprint, entry.record)

    def _check_record(self, entry: Numbered) -> None:
        """A record and all its places, at one moment."""
        assert entry.record
        expected = self._spots(entry)
        asked = [("HEXISTS", *self._layout.records(entry.seq)), *(("HGET", spot.key, spot.field) for spot in expected)]
        if entry.fingerprint is not None:
            asked.append(("HGET", *self._layout.crowd_field(entry.fingerprint, entry.record.digest)))
        there, *values = self._inside.at_once(asked)
        if not there:
            return  # forgotten meanwhile
        noted = values.pop() if entry.fingerprint is not None else None
        if any(seq >= entry.seq for _, seq in _entries(noted)):
            return
        for spot, value in zip(expected, values, strict=True):
            if not _leads_to(entry, spot, value):
                invariant = "band" if spot.key.startswith(f"{self._layout.keys}:b") else "member"
                self._report(invariant, f"record {entry.seq} stands not in {spot.key}, field {spot.field!r}")

    # Keys ------------------------------------------------------------------------------------------------------------

    def _check_keys(self, keys: Sequence[bytes]) -> None:
        self.found.keys += len(keys)
        names = {key: key_name(self._layout, key) for key in (each.decode(errors="replace") for each in keys)}
        for key in [key for key, name in names.items() if name is None]:
            self._report("key", f"{key} is no key of an index")
        hashes = [(key, name) for key, name in names.items() if name and name.kind in HASHES]
        buckets: list[tuple[str, KeyName, Fields]] = []
        for (key, name), fields in zip(hashes, self._contents(hashes), strict=True):
            match name.kind:
                case "r":
                    self._check_fields(key, fields)
                case "x":
                    self._check_digests(key, fields)
                case "j":
                    self._check_entries(key, fields)
                case "v":
                    self._check_versions(key, name, fields)
                case _:
                    buckets.append((key, name, fields))
        self._check_places(buckets)
        self._progress(self.found)

    def _contents(self, hashes: Sequence[tuple[str, KeyName]]) -> Iterator[Fields]:
        """What each of these holds: asked for together, as most hold little; of what is longer, step by step."""
        encodings = self._inside.run("read", "OBJECT", *(part for key, _ in hashes for part in ("ENCODING", key)))
        answers = self._inside.run("read", "HSCAN", *(part for key, _ in hashes for part in (key, 0)))
        for (key, name), encoding, (cursor, parts) in zip(hashes, encodings, answers, strict=True):
            if name.kind != "j" and encoding:
                self.found.long_buckets += encoding not in SHORT_ENCODINGS
            fields = zip(parts[::2], parts[1::2], strict=True)
            yield fields if cursor == b"0" else self._client.hscan_iter(key, count=FIELDS_AT_ONCE)

    def _check_types(self, keys: Sequence[bytes]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for each in keys:
                pipe.type(each)
            types = pipe.execute()
        for each, kind in zip(keys, types, strict=True):
            expected = b"zset" if each.decode(errors="replace") == self._layout.tombstones else b"hash"
            if kind not in (expected, b"none"):
                self._report("key", f"{each.decode(errors='replace')} is a {kind.decode()}, not a {expected.decode()}")

    def _check_fields(self, key: str, records: Fields) -> None:
        """Records: each has a number that was given, and not forgotten."""
        fields = [field for field, _ in records]
        asked = [("HMGET", self._layout.meta, "first", "seq"), *(("HEXISTS", key, field) for field in fields)]
        (first, last), *there = self._inside.at_once(asked)
        for field, still in zip(fields, there, strict=True):
            seq = self._layout.seq_at(key, field)
            if still and not (seq and int(first) <= seq <= int(last)):
                self._report("record", f"field {field!r} of {key} has no number from {int(first)} to {int(last)}")

    def _check_digests(self, key: str, fields: Fields) -> None:
        there = list(fields)
        values = read(self._inside, [self._leading_to(value) for _, value in there])
        for (field, _), value in zip(there, values, strict=True):
            self.found.crowded += field[:1] == CROWDED_TAG and not self._layout.is_digest(field)
            if not self._accounts_for(key, field, value):
                self._check_digest(key, field)

    def _leading_to(self, value: bytes) -> Place:
        """Where the record lies of the one number in a field of digests; there is none of number 0."""
        numbers = [seq for _, seq in _entries(value)]
        return self._layout.records(numbers[0] if len(numbers) == 1 else 0)

    def _accounts_for(self, key: str, field: bytes, value: bytes | None) -> bool:
        """Whether a field of digests is that of this record."""
        if value is None:
            return False
        try:
            fingerprint, record = self._layout.record(0, value)
        except IndexDamaged:
            return False
        if fingerprint is None:
            return (key, field) == (self._layout.digests(field), tagged(record.digest))
        return (key, field) == self._layout.crowd_field(fingerprint, record.digest)

    def _check_digest(self, key: str, field: bytes) -> None:
        """A field that led to no record: it may have changed meanwhile."""
        for _ in range(WALKS):
            value = self._client.hget(key, field)
            if value is None or self._accounts_for(key, field, self._client.hget(*self._leading_to(value))):
                return
            if self._client.hget(key, field) == value:
                break
        if self._layout.is_digest(field):
            self._report("orphan", f"digest {field.hex()} in {key} leads to no record that has it")
        else:
            self._report("crowded", f"{field.hex()} in {key} is noted of no record")

    # Places ----------------------------------------------------------------------------------------------------------

    def _check_places(self, buckets: Sequence[tuple[str, KeyName, Fields]]) -> None:
        """Buckets of tables and bands: each entry is of a record that belongs there."""
        entries = [
            (name, Spot(key, field, rest), seq)
            for key, name, fields in buckets
            for field, value in fields
            for rest, seq in self._parsed(key, name, field, value)
        ]
        self.found.members += len(entries)
        numbers = list(dict.fromkeys(seq for _, _, seq in entries))
        values = dict(zip(numbers, read(self._inside, [self._layout.records(seq) for seq in numbers]), strict=True))
        for name, spot, seq in entries:
            if not self._belongs(values[seq], name, spot):
                self._check_orphan(seq, name, spot)

    def _parsed(self, key: str, name: KeyName, field: bytes, value: bytes) -> list[tuple[bytes, int]]:
        found = _entries(value, self._rest_bytes[name.number] if name.kind == "t" else 0)
        if not found or len({seq for _, seq in found}) < len(found):
            self._report("orphan", f"field {field!r} of {key} is no place, or has a number twice")
        return found

    def _belongs(self, value: bytes | None, name: KeyName, spot: Spot) -> bool:
        """Whether a number's record is why an entry stands there."""
        if not value:
            return False
        try:
            fingerprint, verifier = self._layout.compared(value)
        except IndexDamaged:
            return True  # reported where it lies
        return fingerprint is not None and spot == spot_of(self._layout, name, fingerprint, verifier)

    def _check_orphan(self, seq: int, name: KeyName, spot: Spot) -> None:
        place, value = self._inside.at_once([("HGET", spot.key, spot.field), ("HGET", *self._layout.records(seq))])
        there = (spot.rest, seq) in _entries(place, len(spot.rest))
        if there and not self._belongs(value, name, spot):
            self._report(
                "orphan", f"{seq} stands in {spot.key}, field {spot.field!r}, without a record that belongs there"
            )

    # Versions --------------------------------------------------------------------------------------------------------

    def _check_versions(self, key: str, name: KeyName, fields: Fields) -> None:
        bits = bits_there(self._inside)
        if bits is None or len(name.bucket) != -(-bits // 4) or int(name.bucket, 16) >> bits:
            self._report("version", f"{key} is no bucket of {bits or 'no'} bits")
        least, most = least_and_most(self._layout.fingerprint_bytes)
        for field, value in fields:
            self.found.versions += 1
            if len(field) != VERSION_FIELD_BYTES or not least <= len(value) - DAY_BYTES <= most:
                self._report("version", f"field {field.hex()} of {key} is no URL's, or its version is not whole")

    # Journals --------------------------------------------------------------------------------------------------------

    def _check_entries(self, key: str, fields: Fields) -> None:
        """A journal: each entry must be readable, and not below the mark, or below what is being trimmed."""
        kept = _kept_from(self._client.hmget(key, "mark", "trimmed"))
        for offset, value in fields:
            if offset in (b"mark", b"trimmed"):
                if not value.isdigit():
                    self._report("journal", f"the {offset.decode()} of {key} is {value!r:.40}")
                continue
            self.found.journalled += 1
            kind = answer_parts(value[OBSERVATION_BYTES:])[2][:1]
            if len(offset) != OFFSET_BYTES or kind not in (b"u", b"d"):
                self._report("journal", f"entry {offset.hex()} of {key} cannot be read")
            elif int.from_bytes(offset) < kept:
                self._check_entry(key, offset)

    def _check_entry(self, key: str, offset: bytes) -> None:
        """An entry that was below the mark: it may be forgotten by now."""
        marks, there = self._inside.at_once([("HMGET", key, "mark", "trimmed"), ("HEXISTS", key, offset)])
        if there and int.from_bytes(offset) < _kept_from(marks):
            self._report("journal", f"{key} has offset {int.from_bytes(offset)}, below its mark {int(marks[0])}")


def _kept_from(marks: Sequence[bytes | None]) -> int:
    """From which offset on a journal may have entries, by its mark and by how far it is trimmed."""
    mark, trimmed = (int(each) if each and each.isdigit() else None for each in marks)
    return 0 if mark is None else mark if trimmed is None else min(mark, trimmed)


def _leads_to(entry: Numbered, spot: Spot, value: bytes | None) -> bool:
    """Whether a record is found in its place; one without a fingerprint may have been overtaken by a later one."""
    if entry.fingerprint is None:
        return any(seq >= entry.seq for _, seq in _entries(value))
    return (spot.rest, entry.seq) in _entries(value, len(spot.rest))


def _entries(place: bytes | None, rest_bytes: int = 0) -> list[tuple[bytes, int]]:
    """The entries of a place; none where its bytes are none."""
    try:
        return numbers_in(place or b"", rest_bytes)
    except ValueError:
        return []
