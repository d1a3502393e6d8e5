"""Whether a live index in Redis is whole: every record in all its places, and everything else there with a reason.

Workers go on meanwhile. What looks wrong is read again, all of it in one step, before it is reported: a record that was
stored or forgotten between two readings is no fault. Every command is short. The invariants, by the names under which
violations are reported:

    documents   the log has as many records as the counter says, and not more entries than numbers were given
    log         an entry of the log is a name; a record's entry stands at its number
    record      a record can be read and lies where it belongs, under its number where its name has one
    member      a record stands in each table; where a place was full when it was stored, in those that are noted
    band        it stands in the bucket of each of its band keys; likewise
    crowded     what is noted of a record that does not stand everywhere belongs to one
    orphan      what stands in a table or band has a record that belongs there
    journal     an entry of a journal can be read, and is not below the mark
    key         a key is one that an index has
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from simhash.index.interface import Record
from simhash.index.redis.layout import (
    CROWDED_TAG,
    OBSERVATION_BYTES,
    OFFSET_BYTES,
    SEQ_BYTES,
    literal,
)
from simhash.index.redis.operators.findings import Findings, Numbers, Violation
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.spots import KeyName, Spot, key_name, owner, spots
from simhash.index.redis.operators.walking import UNREADABLE, Stretch, parsed_stretch, record_of, walk

KEYS_AT_ONCE = 100
FIELDS_AT_ONCE = 100
READS_AT_ONCE = 500
"""Members asked for by one call: about a millisecond of Redis."""
ATTEMPTS = 50
"""Readings of a record that changes under the reader."""
WALKS = 3
"""Walks along a log from which records are being removed out of turn."""
SHORT_ENCODINGS = (b"listpack", b"ziplist", b"quicklist")
ANSWER_HEAD = 5
"""Bytes of a journalled answer before the decision: candidates, and its kind."""
Members = Sequence[tuple[bytes, float]]
"""The members of a bucket with their scores."""


def check(inside: Inside, on_progress: Callable[[Findings], None]) -> Findings:
    """All that is wrong with an index, and how much was looked at.

    Args:
        on_progress: is told now and then what was found so far.
    """
    return _Checker(inside, on_progress).run()


class _Checker:
    """One check: first along the log, then over all keys."""

    def __init__(self, inside: Inside, on_progress: Callable[[Findings], None]) -> None:
        self._progress = on_progress
        self.found = Findings()
        self._inside, self._layout, self._client = inside, inside.layout, inside.client
        self._logged = Numbers(0)
        self._met = Numbers(0)
        self._walked_to = 0

    def run(self) -> Findings:
        self._check_log()
        keys: list[bytes] = []
        starts = dict.fromkeys([self._layout.tag, self._layout.keys])
        patterns = [f"{literal(start)}:*" for start in starts]
        for key in chain.from_iterable(self._client.scan_iter(each, count=KEYS_AT_ONCE) for each in patterns):
            keys.append(key)
            if len(keys) >= KEYS_AT_ONCE:
                self._check_keys(keys)
                keys = []
        self._check_keys(keys)
        return self.found

    def _report(self, invariant: str, what: str) -> None:
        self.found.violations.append(Violation(invariant, what))

    # Log -------------------------------------------------------------------------------------------------------------

    def _check_log(self) -> None:
        for _ in range(WALKS):
            self.found.logged = 0
            gone = [int(member) for member, _ in self._client.zscan_iter(self._layout.tombstones, count=FIELDS_AT_ONCE)]
            removed, last, without = self._walk()
            expected = last.seq - last.first + 1 - last.documents
            gaps = sum(seq >= last.first for seq in without)
            if gaps == expected:
                for seq in gone:
                    if seq >= last.first and seq not in without:
                        self._report("log", f"number {seq} is said to be without a record, and has one")
                return
            if removed == last.removed:
                there = last.seq - last.first + 1 - gaps
                some = ", ".join(map(str, sorted(without)[:5]))
                self._report(
                    "documents",
                    f"the counter says {last.documents}, the log has {there} records"
                    + (f" (entries without one: {some}{', ...' if gaps > 5 else ''})" if some else ""),
                )
                return

    def _walk(self) -> tuple[int, Stretch, set[int]]:
        """Records ever removed when it began, the last stretch, and the numbers that have no record."""
        without: set[int] = set()
        removed: int | None = None
        for part in walk(self._inside):
            if removed is None:
                removed = part.removed
                self._logged, self._met = Numbers(part.first), Numbers(part.first)
            for entry in part.entries:
                self.found.logged += 1
                if entry.record:
                    self._logged.add(entry.seq)
                else:
                    without.add(entry.seq)
                if entry.name and not (self._layout.is_digest(entry.name) or self._layout.is_name(entry.name)):
                    self._report("log", f"the entry of number {entry.seq} is no name: {entry.name[:20].hex()}")
            self._walked_to = part.seq
            self._progress(self.found)
        return removed or 0, part, without

    def _check_logged(self, name: bytes, seq: int) -> None:
        """A record's number must be its entry's."""
        if seq > self._walked_to:
            return  # stored since; its neighbours say enough
        if seq in self._logged and self._met.add(seq):
            return
        with self._client.pipeline(transaction=True) as pipe:
            self._inside.run("walk", seq, 1, client=pipe)
            pipe.hget(self._layout.hash_of(name), name)
            answer, value = pipe.execute()
        found = parsed_stretch(self._inside, answer)
        record = self._readable(name, value)
        entry = next((entry for entry in found.entries if entry.seq == seq), None)
        if record and record.seq == seq and (entry is None or entry.name != name):
            self._report("log", f"record {seq} ({name.hex()}) is not in the log under its number")

    def _readable(self, name: bytes, value: bytes | None) -> Record | None:
        try:
            return record_of(self._inside, name, value) if value else None
        except UNREADABLE:
            return None  # reported where it lies

    # Keys ------------------------------------------------------------------------------------------------------------

    def _check_keys(self, keys: Sequence[bytes]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.object("encoding", key)
            encodings = pipe.execute(raise_on_error=False)
        buckets: list[tuple[str, KeyName]] = []
        for key, encoding in zip(keys, encodings, strict=True):
            self.found.keys += 1
            name = key_name(self._layout, key.decode(errors="replace"))
            if name is None:
                self._report("key", f"{key.decode(errors='replace')} is no key of an index")
                continue
            if name.kind in "tbrx" and isinstance(encoding, bytes):
                self.found.long_buckets += encoding not in SHORT_ENCODINGS
            if name.kind in "tb" and encoding in SHORT_ENCODINGS:
                buckets.append((key.decode(), name))
            else:
                self._check_key(key, name)
        self._check_buckets(buckets)
        self._progress(self.found)

    def _check_key(self, key: bytes, name: KeyName) -> None:
        match name.kind:
            case "r":
                self._check_records(key, self._fields(key))
            case "x":
                self._check_digests(key, self._fields(key))
            case "t" | "b":
                members = list(self._client.zscan_iter(key, count=FIELDS_AT_ONCE))
                self._check_members([(key.decode(), name, members)])
            case "j":
                self._check_entries(key)

    def _fields(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._client.hscan_iter(key, count=FIELDS_AT_ONCE))

    def _read(self, key: bytes, name: bytes, value: bytes) -> Record | None:
        """The record in a field; None, and a violation, when it cannot be read or lies elsewhere."""
        try:
            record = record_of(self._inside, name, value)
        except UNREADABLE as error:
            self._report("record", f"{name.hex()} in {key.decode()} cannot be read: {error!r:.80}")
            return None
        if self._layout.hash_of(name) != key.decode():
            self._report("record", f"{name.hex()} lies in {key.decode()}, not in {self._layout.hash_of(name)}")
        self.found.records += 1
        self._check_logged(name, record.seq)
        return record

    def _check_digests(self, key: bytes, fields: Iterator[tuple[bytes, bytes]]) -> None:
        own = len(CROWDED_TAG) + self._layout.fingerprint_bytes
        for name, value in fields:
            if self._layout.is_digest(name):
                self._read(key, name, value)
            elif name[:1] == CROWDED_TAG and len(name) > own:
                self._check_crowded(key, name, name[len(CROWDED_TAG) : own] + value[:SEQ_BYTES])
            else:
                self._report("record", f"{name.hex()} in {key.decode()} is no digest")

    def _check_crowded(self, key: bytes, noted: bytes, name: bytes) -> None:
        """What is noted of a record that does not stand everywhere, in one step with that record."""
        self.found.crowded += 1
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hget(key, noted)
            pipe.hget(self._layout.hash_of(name), name)
            value, found = pipe.execute()
        record = self._readable(name, found)
        places = len(self._layout.spec.relation.design.tables) + self._layout.spec.relation.bands
        whole = bool(value) and len(value) == SEQ_BYTES + places and name.endswith(value[:SEQ_BYTES])
        if value and not (whole and record and self._layout.crowd_field(name, record) == (key.decode(), noted)):
            self._report("crowded", f"{noted.hex()} in {key.decode()} is noted of no record")

    def _check_records(self, key: bytes, fields: Iterator[tuple[bytes, bytes]]) -> None:
        stored: dict[bytes, Record] = {}
        for name, value in fields:
            if not self._layout.is_name(name):
                self._report("record", f"{name.hex()} in {key.decode()} is no fingerprint")
                continue
            record = self._read(key, name, value)
            if record and not name.endswith(self._suffix(name, record)):
                self._report("record", f"{name.hex()} in {key.decode()} has number {record.seq}, not that of its name")
            if record:
                stored[name] = record
        wanted = [(name, spot) for name, record in stored.items() for spot in spots(self._layout, name, record) if spot]
        scores = self._reads("ZSCORE", [(spot.key, spot.member) for _, spot in wanted])
        suspects = dict.fromkeys(
            name
            for (name, spot), score in zip(wanted, scores, strict=True)
            if score is None or float(score) != spot.score
        )
        for name in suspects:
            self._check_record(name)

    def _suffix(self, name: bytes, record: Record) -> bytes:
        return record.seq.to_bytes(SEQ_BYTES) if len(name) > self._layout.fingerprint_bytes else b""

    def _reads(self, command: str, places: Sequence[tuple[str, bytes]]) -> list[Any]:
        """The answer of a command for each key and member."""
        answers: list[Any] = []
        for at in range(0, len(places), READS_AT_ONCE):
            some = [part for place in places[at : at + READS_AT_ONCE] for part in place]
            answers += self._inside.run("read", command, *some)
        return answers

    # Members ---------------------------------------------------------------------------------------------------------

    def _check_record(self, name: bytes) -> None:
        """All members of a record, at one moment."""
        for _ in range(ATTEMPTS):
            value = self._client.hget(self._layout.hash_of(name), name)
            record = self._readable(name, value)
            if record is None:
                return  # forgotten meanwhile, or reported as unreadable
            own = spots(self._layout, name, record)
            again, noted, scores = self._standing(name, record, [spot for spot in own if spot])
            if again == value:
                break
        else:
            return
        if noted and noted[:SEQ_BYTES] > record.seq.to_bytes(SEQ_BYTES):
            return  # by a page of the same text, stored when this one was over: retention removes it soon
        stands = self._noted(name, noted, len(own))
        coming = iter(scores)
        for number, spot in enumerate(own):
            if spot is None:
                continue
            score = next(coming)
            if (score == spot.score) != stands[number]:
                invariant = "member" if number < len(self._layout.spec.relation.design.tables) else "band"
                stands_there = "stands not" if stands[number] else "stands, though its place was full,"
                self._report(invariant, f"{name.hex()} {stands_there} in {spot.key} with score {spot.score}")

    def _noted(self, name: bytes, noted: bytes | None, places: int) -> list[bool]:
        """In which places a record stands, by what is noted of it."""
        if not noted or not name.endswith(noted[:SEQ_BYTES]) or len(name) == self._layout.fingerprint_bytes:
            return [True] * places
        return [flag == ord("1") for flag in noted[SEQ_BYTES:].ljust(places, b"1")]

    def _standing(
        self, name: bytes, record: Record, wanted: Sequence[Spot]
    ) -> tuple[bytes | None, bytes | None, list[float | None]]:
        """The record's field, what is noted of where it stands, and the score of each member, in one step."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hget(self._layout.hash_of(name), name)
            pipe.hget(*self._layout.crowd_field(name, record))
            for spot in wanted:
                pipe.zscore(spot.key, spot.member)
            value, noted, *scores = pipe.execute()
        return value, noted, scores

    def _check_buckets(self, buckets: Sequence[tuple[str, KeyName]]) -> None:
        """Buckets that are short enough to be read whole."""
        with self._client.pipeline(transaction=False) as pipe:
            for key, _ in buckets:
                pipe.zrange(key, 0, -1, withscores=True)
            found = pipe.execute()
        self._check_members([(key, name, members) for (key, name), members in zip(buckets, found, strict=True)])

    def _check_members(self, buckets: Sequence[tuple[str, KeyName, Members]]) -> None:
        owned = [
            [owner(self._layout, name, score, member) for member, score in members] for _, name, members in buckets
        ]
        values = self._values_of(chain.from_iterable(owned))
        for (key, name, members), owners in zip(buckets, owned, strict=True):
            self.found.members += len(members)
            for (member, score), own in zip(members, owners, strict=True):
                if own is None:
                    self._report("orphan", f"{member.hex()} in {key}, score {score:g}, is no member")
                elif not self._accounts_for(values[own], own, name, key, score):
                    self._check_orphan(key, name, member, score, own)

    def _values_of(self, names: Iterable[bytes | None]) -> dict[bytes, bytes | None]:
        """The record of each of these names, as it is stored."""
        wanted = [name for name in dict.fromkeys(names) if name is not None]
        return dict(zip(wanted, self._reads("HGET", [(self._layout.hash_of(n), n) for n in wanted]), strict=True))

    def _accounts_for(self, value: bytes | None, own: bytes, name: KeyName, key: str, score: float) -> bool:
        """Whether the record under a name is why a member stands there."""
        if not value:
            return False
        record = self._readable(own, value)
        if record is None or name.kind == "t":
            return True  # reported where it lies; `owner` has seen that it is its place
        return any(spot and spot.key == key and spot.score == score for spot in spots(self._layout, own, record))

    def _check_orphan(self, key: str, name: KeyName, member: bytes, score: float, own: bytes) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            pipe.zscore(key, member)
            pipe.hget(self._layout.hash_of(own), own)
            now, value = pipe.execute()
        if now == score and not self._accounts_for(value, own, name, key, score):
            self._report("orphan", f"{own.hex()} stands in {key} without a record that belongs there")

    # Journals --------------------------------------------------------------------------------------------------------

    def _check_entries(self, key: bytes) -> None:
        """A journal: each entry must be readable, and not below the mark, or below what is being trimmed."""
        for offset, value in self._fields(key):
            if offset in (b"mark", b"trimmed"):
                if not value.isdigit():
                    self._report("journal", f"the {offset.decode()} of {key.decode()} is {value!r:.40}")
                continue
            self.found.journalled += 1
            kind = value[OBSERVATION_BYTES + ANSWER_HEAD - 1 :][:1]
            if len(offset) != OFFSET_BYTES or kind not in (b"u", b"d"):
                self._report("journal", f"entry {offset.hex()} of {key.decode()} cannot be read")
                continue
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hmget(key, "mark", "trimmed")
                pipe.hexists(key, offset)
                (mark, trimmed), there = pipe.execute()
            kept = min(int(each) for each in (mark, trimmed, b"%d" % (1 << 48)) if each and each.isdigit())
            if there and int.from_bytes(offset) < (kept if mark else 0):
                number = int.from_bytes(offset)
                self._report("journal", f"{key.decode()} has offset {number}, below its mark {int(mark)}")
