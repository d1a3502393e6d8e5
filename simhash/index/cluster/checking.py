"""Whether an index on a cluster is whole: the invariants of `simhash.index.checking`, by the same names.

No step sees all primaries, so what looks wrong is read again, as often as it takes, while nobody holds a claim on it: a
record comes and goes under a claim on its fingerprint only. It is reported when its record was the same before and
after and no claim was there at either time. What a claim covers is its worker's to finish, and is no fault; claims that
outlast the check are named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from simhash.index.cluster.answers import Claim
from simhash.index.cluster.claims import CLAIM_SLOT
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.judging import Stored
from simhash.index.cluster.placement import LOG_SEGMENT, KeyName, Member, is_digest
from simhash.index.cluster.reading import fingerprint_of
from simhash.index.findings import Checker, Findings, Numbers
from simhash.index.layout import SEQ_BYTES
from simhash.index.walking import DIGEST_BYTES, UNREADABLE

AT_ONCE = 1024
"""Log entries, members or fields that are looked at together: a few in each script call."""
ATTEMPTS = 20
WAIT_SECONDS = 0.02
"""Between two readings of what a claim is on: workers hold theirs for a few milliseconds."""
T = TypeVar("T")


class Key(NamedTuple):
    """A key of a group, and its parts."""

    key: str
    name: KeyName


def check(inside: Inside, on_progress: Callable[[Findings], None]) -> Findings:
    """All that is wrong with an index, and how much was looked at.

    Args:
        on_progress: is told now and then what was found so far.
    """
    return _Checker(inside, on_progress).run()


class _Checker(Checker):
    """One check: the claim slot, then along the log, then over all keys."""

    def __init__(self, inside: Inside, on_progress: Callable[[Findings], None]) -> None:
        super().__init__(on_progress)
        self._inside = inside
        self._nodes, self._placement = inside.nodes, inside.placement
        self._claims, self._reader = inside.claims, inside.reader
        self._logged = Numbers(0)

    def run(self) -> Findings:
        held = {(claim.id, claim.nonce) for claim in self._claims.listed()}
        self._check_log(self._check_claims())
        starts = dict.fromkeys([self._placement.name, self._inside.name])
        keys = chain.from_iterable(self._nodes.keys(f"{{{start}:", "}:") for start in starts)
        while some := list(islice(keys, AT_ONCE)):
            self._check_keys(some)
            self._progress(self.found)
        left = [claim for claim in self._claims.listed() if (claim.id, claim.nonce) in held]
        self.found.held = [_told(claim) for claim in left]
        return self.found

    def _check_claims(self) -> range:
        """The claim slot itself; the numbers that there are."""
        first, seq, documents, stored, astray = self._claims.audit()
        if documents != stored:
            self._report(
                "documents", f"the counter says {documents}, {stored} numbers are given, finished and not gone"
            )
        for id_ in astray:
            self._report("claim", f"{id_.hex()} is no claim, or is not found under its keys")
        return range(first, seq + 1)

    # Log -------------------------------------------------------------------------------------------------------------

    def _check_log(self, numbers: range) -> None:
        self._logged = Numbers(numbers.start)
        for at in range(0, len(numbers), AT_ONCE):
            some = numbers[at : at + AT_ONCE]
            there = self._logged_records(some)
            for seq in there:
                self._logged.add(seq)
            self.found.logged += len(there)
            missing = [seq for seq in some if seq not in there]
            for seq in self._claims.standing(missing) if missing else ():
                self._check_number(seq)
            self._progress(self.found)

    def _logged_records(self, seqs: Sequence[int]) -> set[int]:
        """Those of these numbers that the log has and whose records lie where it says; or whose place was taken."""
        logged = self._reader.logged(seqs)
        stored = self._stored(dict.fromkeys(entry.key for entry in logged.values()))
        found = set()
        for seq, entry in logged.items():
            numbers = [each.record.seq for each in stored[entry.key]]
            # A short page whose text came again after its age: retention has not come to its entry yet.
            if seq in numbers or (is_digest(entry.key) and numbers and numbers[0] > seq):
                found.add(seq)
        return found

    def _check_number(self, seq: int) -> None:
        """A number that had no record, though it should have had one: now, at a moment without a claim."""
        there = self._logged_records([seq])
        if not there and self._claims.standing([seq]):
            logged = self._reader.logged([seq])
            what = (
                f"number {seq} has no entry" if not logged else f"{logged[seq].key.hex()} has no record of number {seq}"
            )
            self._report("log", f"{what}, and was not removed")

    # Keys ------------------------------------------------------------------------------------------------------------

    def _check_keys(self, keys: Sequence[str]) -> None:
        journals = self._claims.journals
        own = journals.removesuffix("j:")
        self.found.keys += len(keys)
        named: list[Key] = []
        for key in keys:
            name = self._placement.place_of(key)
            if key.startswith(journals):
                self._check_entries(key)
            elif name is not None:
                named.append(Key(key, name))
            elif key.removeprefix(own) not in CLAIM_SLOT and self._is_ours(key):
                self._report("key", f"{key} is no key of an index")
        for members in _portions(self._members([each for each in named if each.name.kind in "tb"])):
            self._check_members(members)
        for fields in _portions(self._fields([each for each in named if each.name.kind in ("r", "x")])):
            self._check_records(fields)
        for fields in _portions(self._fields([each for each in named if each.name.kind == "log"])):
            self._check_segments(fields)

    def _members(self, keys: Sequence[Key]) -> Iterator[tuple[Key, bytes]]:
        """All members of these buckets; of the short ones many at once."""
        for key, found in zip(keys, self._nodes.short([key.key for key in keys], "ZSCAN"), strict=True):
            members = self._nodes.members(key.key) if found is None else (member for member, _ in found)
            yield from ((key, member) for member in members)

    def _fields(self, keys: Sequence[Key]) -> Iterator[tuple[Key, tuple[bytes, bytes]]]:
        """All fields of these hashes, likewise."""
        for key, found in zip(keys, self._nodes.short([key.key for key in keys], "HSCAN"), strict=True):
            fields = self._nodes.fields(key.key) if found is None else iter(found.items())
            yield from ((key, field) for field in fields)

    def _is_ours(self, key: str) -> bool:
        """Whether a key has a tag of this index: another one's name may begin with ours."""
        tag = key[1:].rpartition("}:")[0]
        return tag == f"{self._inside.name}:claim" or any(tag == each for each in self._placement.tags)

    def _check_entries(self, key: str) -> None:
        def again(offset: bytes) -> tuple[bytes | None, bool]:
            (fields,) = self._nodes.hashes([key])
            return fields.get(b"mark"), offset in fields

        self._check_journal(key, self._nodes.fields(key), again)

    # Records ---------------------------------------------------------------------------------------------------------

    def _check_records(self, fields: Sequence[tuple[Key, tuple[bytes, bytes]]]) -> None:
        spots: list[tuple[bytes, Member]] = []
        for (key, (kind, *_)), (name, value) in fields:
            if is_digest(name) != (kind == "x") or len(name) not in (
                DIGEST_BYTES,
                self._inside.layout.fingerprint_bytes,
            ):
                self._report("record", f"{name.hex()} in {key} is no fingerprint or digest that belongs there")
                continue
            stored = self._read(key, name, value)
            fingerprint = fingerprint_of(name)
            if fingerprint is not None and stored:
                tables, bands = self._placement.members(fingerprint, [each.record.verifier for each in stored])
                spots += [(name, member) for member in tables | bands]
        standing = self._nodes.read(self._placement, [self._placement.standing(member) for _, member in spots])
        for name in dict.fromkeys(name for (name, _), there in zip(spots, standing, strict=True) if not there):
            self._confirm(name, self._missing_members)

    def _read(self, key: str, name: bytes, value: bytes) -> list[Stored]:
        """The records in a field; none, and a violation, when it cannot be read or lies elsewhere."""
        try:
            stored = self._reader.records(name, value)
        except UNREADABLE as error:
            self._report("record", f"{name.hex()} in {key} cannot be read: {error!r:.80}")
            return []
        if (place := self._placement.stored_under(name).spot.key) != key:
            self._report("record", f"{name.hex()} lies in {key}, not in {place}")
        numbers = [each.record.seq for each in stored]
        if len(set(numbers)) != len(numbers):
            self._report("record", f"{name.hex()}: its records have the numbers {numbers}")
        self.found.records += len(stored)
        if any(seq not in self._logged for seq in numbers):
            self._confirm(name, self._unlogged)
        return stored

    def _stored(self, names: Iterable[bytes]) -> dict[bytes, list[Stored]]:
        """The records under names; none where they cannot be read, which is reported where they lie."""
        wanted = list(names)
        fields = self._nodes.read(self._placement, [self._placement.stored_under(name) for name in wanted])
        return {name: self._readable(name, field) for name, field in zip(wanted, fields, strict=True)}

    def _readable(self, name: bytes, field: bytes | None) -> list[Stored]:
        try:
            return self._reader.records(name, field)
        except UNREADABLE:
            return []

    def _confirm(self, name: bytes, judge: Callable[[bytes, list[Stored]], Iterable[tuple[str, str]]]) -> None:
        """Report what `judge` finds wrong with the records of a name, at a moment in which nobody changes them."""
        for _ in range(ATTEMPTS):
            if any(claim.key == name for claim in self._claims.listed()):
                time.sleep(WAIT_SECONDS)
                continue
            before = self._stored([name])[name]
            found = list(judge(name, before))
            if not found:
                return
            if self._stored([name])[name] == before and not any(c.key == name for c in self._claims.listed()):
                for violation in found:
                    self._report(*violation)
                return

    def _missing_members(self, name: bytes, stored: list[Stored]) -> Iterator[tuple[str, str]]:
        if not stored:
            return
        tables, bands = self._placement.members(int.from_bytes(name), [each.record.verifier for each in stored])
        wanted = [*((m, "member") for m in tables), *((m, "band") for m in bands)]
        standing = self._nodes.read(self._placement, [self._placement.standing(member) for member, _ in wanted])
        for (member, invariant), there in zip(wanted, standing, strict=True):
            if not there:
                yield invariant, f"{name.hex()} does not stand in {member.spot.key}"

    def _unlogged(self, name: bytes, stored: list[Stored]) -> Iterator[tuple[str, str]]:
        logged = self._reader.logged([each.record.seq for each in stored])
        for seq in (each.record.seq for each in stored):
            if seq not in logged or logged[seq].key != name:
                yield "log", f"record {seq} ({name.hex()}) is not in the log under its number"

    # Members and the log's entries -----------------------------------------------------------------------------------

    def _check_members(self, members: Sequence[tuple[Key, bytes]]) -> None:
        self.found.members += len(members)
        owners = [self._placement.owner(key.name, member) for key, member in members]
        names = [b"" if owner is None else self._inside.layout.key_of(owner) for owner in owners]
        stored = self._stored(dict.fromkeys(filter(None, names)))
        for (key, member), own in zip(members, names, strict=True):
            if not own:
                self._report("orphan", f"{member.hex()} in {key.key} is no member")
            elif not self._accounted(key, member, stored[own]):
                self._confirm(own, partial(self._orphan, key, member))

    def _accounted(self, key: Key, member: bytes, stored: Sequence[Stored]) -> bool:
        """Whether the records of a fingerprint are why this stands there: in its place of a table, every one is."""
        if key.name.kind == "t":
            return bool(stored)
        return any(self._placement.has_band(key.key, member, each.record.verifier) for each in stored)

    def _orphan(self, key: Key, member: bytes, name: bytes, stored: list[Stored]) -> Iterator[tuple[str, str]]:
        if not self._accounted(key, member, stored) and self._nodes.is_member(key.key, member):
            yield "orphan", f"{name.hex()} stands in {key.key} without a record that belongs there"

    def _check_segments(self, fields: Sequence[tuple[Key, tuple[bytes, bytes]]]) -> None:
        for (key, (*_, segment)), (field, value) in fields:
            seq = int.from_bytes(field)
            name = self._placement.log_entry(value).key
            if len(field) != SEQ_BYTES or seq // LOG_SEGMENT != segment:
                self._report("log", f"entry {field.hex()} lies in {key}")
            elif len(name) not in (DIGEST_BYTES, self._inside.layout.fingerprint_bytes):
                self._report("log", f"the entry of number {seq} is no name: {name[:20].hex()}")
            elif seq not in self._logged:
                self._confirm(name, partial(self._unrecorded, seq))

    def _unrecorded(self, seq: int, name: bytes, stored: list[Stored]) -> Iterator[tuple[str, str]]:
        """An entry of the log behind which there is nothing."""
        numbers = [each.record.seq for each in stored]
        superseded = is_digest(name) and bool(numbers) and numbers[0] > seq
        if seq not in numbers and not superseded and seq in self._reader.logged([seq]):
            yield "log", f"the log names {name.hex()} under number {seq}, which has no such record"


def _portions(found: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(found, AT_ONCE)):
        yield some


def _told(claim: Claim) -> str:
    number = "" if claim.seq is None else f", number {claim.seq}"
    return f"{claim.id.hex()} ({claim.state}{number})"
