"""Whether a live index in Redis is whole: every record in all its places, and everything else there with a reason.

Workers go on meanwhile. What looks wrong is read again, all of it in one step, before it is reported: a record that was
stored or forgotten between two readings is no fault. Every command is short. The invariants, by the names under which
violations are reported:

    documents   the log has as many records as the counter says, and not more entries than numbers were given
    log         an entry of the log is a name; a record's entry stands at its number
    record      a record can be read and lies where it belongs; those of one fingerprint are in order of seq
    member      a fingerprint that has a record stands in each table, once
    band        it stands in the bucket of each band key of its records
    orphan      what stands in a table or band has a record
    journal     an entry of a journal can be read, and is not below the mark
    key         a key is one that an index has
    claim       on a cluster: a claim is found under all its keys, and nothing else is there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from simhash.index.findings import Checker, Findings, Numbers
from simhash.index.inside import Inside
from simhash.index.interface import Record
from simhash.index.spots import KeyName, Spot, band_spots, key_name, owner, table_spots
from simhash.index.walking import DIGEST_BYTES, UNREADABLE, Stretch, parsed_stretch, records_of, walk

KEYS_AT_ONCE = 100
FIELDS_AT_ONCE = 100
READS_AT_ONCE = 500
"""Members asked for by one call: about a millisecond of Redis."""
ATTEMPTS = 50
"""Readings of a record that changes under the reader."""
WALKS = 3
"""Walks along a log from which records are being removed out of turn."""
SHORT_ENCODINGS = (b"listpack", b"ziplist", b"quicklist")
Members = Sequence[tuple[bytes, float]]
"""The members of a bucket with their scores."""


def check(inside: Inside, on_progress: Callable[[Findings], None]) -> Findings:
    """All that is wrong with an index, and how much was looked at.

    Args:
        on_progress: is told now and then what was found so far.
    """
    return _Checker(inside, on_progress).run()


class _Checker(Checker):
    """One check: first along the log, then over all keys."""

    def __init__(self, inside: Inside, on_progress: Callable[[Findings], None]) -> None:
        super().__init__(on_progress)
        self._inside, self._layout, self._client = inside, inside.layout, inside.client
        self._logged = Numbers(0)
        self._met = Numbers(0)
        self._walked_to = 0

    def run(self) -> Findings:
        self._check_log()
        keys: list[bytes] = []
        starts = dict.fromkeys([self._layout.name, self._layout.keys])
        for key in chain.from_iterable(self._client.scan_iter(f"{s}:*", count=KEYS_AT_ONCE) for s in starts):
            keys.append(key)
            if len(keys) >= KEYS_AT_ONCE:
                self._check_keys(keys)
                keys = []
        self._check_keys(keys)
        return self.found

    # Log -------------------------------------------------------------------------------------------------------------

    def _check_log(self) -> None:
        for _ in range(WALKS):
            self.found.logged = 0
            gone = [int(member) for member, _ in self._client.zscan_iter(self._layout.gone, count=FIELDS_AT_ONCE)]
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
                if len(entry.name) not in (0, DIGEST_BYTES, self._layout.fingerprint_bytes):
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
            self._inside.run(("walking",), seq, 1, client=pipe)
            pipe.hget(self._hash_of(name), name)
            answer, value = pipe.execute()
        found = parsed_stretch(self._inside, answer)
        there = seq in self._numbers_in(name, value or b"")
        entry = next((entry for entry in found.entries if entry.seq == seq), None)
        if there and (entry is None or entry.name != name):
            self._report("log", f"record {seq} ({name.hex()}) is not in the log under its number")

    def _numbers_in(self, name: bytes, value: bytes) -> set[int]:
        try:
            return {record.seq for record in records_of(self._inside, name, value)}
        except UNREADABLE:
            return set()  # reported where it lies

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

    def _hash_of(self, name: bytes) -> str:
        if len(name) == DIGEST_BYTES:
            return self._layout.digests(name)
        return self._layout.records(int.from_bytes(name))

    def _read(self, key: bytes, name: bytes, value: bytes) -> list[Record]:
        """The records in a field; none, and a violation, when it cannot be read or lies elsewhere."""
        try:
            records = records_of(self._inside, name, value)
        except UNREADABLE as error:
            self._report("record", f"{name.hex()} in {key.decode()} cannot be read: {error!r:.80}")
            return []
        if self._hash_of(name) != key.decode():
            self._report("record", f"{name.hex()} lies in {key.decode()}, not in {self._hash_of(name)}")
        numbers = [record.seq for record in records]
        if not numbers or sorted(set(numbers)) != numbers:
            self._report("record", f"{name.hex()}: its records have the numbers {numbers}")
        self.found.records += len(records)
        for number in numbers:
            self._check_logged(name, number)
        return records

    def _check_digests(self, key: bytes, fields: Iterator[tuple[bytes, bytes]]) -> None:
        for name, value in fields:
            if len(name) != DIGEST_BYTES or name[:1] not in (b"t", b"r"):
                self._report("record", f"{name.hex()} in {key.decode()} is no digest")
                continue
            self._read(key, name, value)

    def _check_records(self, key: bytes, fields: Iterator[tuple[bytes, bytes]]) -> None:
        spots: list[tuple[int, Spot]] = []
        for name, value in fields:
            if len(name) != self._layout.fingerprint_bytes:
                self._report("record", f"{name.hex()} in {key.decode()} is no fingerprint")
                continue
            fingerprint = int.from_bytes(name)
            records = self._read(key, name, value)
            if records:
                own = [*table_spots(self._layout, fingerprint), *band_spots(self._layout, fingerprint, records)]
                spots += [(fingerprint, spot) for spot in own]
        scores = self._reads("ZSCORE", [(spot.key, spot.member) for _, spot in spots])
        suspects = dict.fromkeys(
            fingerprint
            for (fingerprint, spot), score in zip(spots, scores, strict=True)
            if score is None or float(score) != spot.score
        )
        for fingerprint in suspects:
            self._check_fingerprint(fingerprint)

    def _reads(self, command: str, places: Sequence[tuple[str, bytes]]) -> list[Any]:
        """The answer of a command for each key and member."""
        answers: list[Any] = []
        for at in range(0, len(places), READS_AT_ONCE):
            some = [part for place in places[at : at + READS_AT_ONCE] for part in place]
            answers += self._inside.run(("reading",), command, *some)
        return answers

    # Members ---------------------------------------------------------------------------------------------------------

    def _check_fingerprint(self, fingerprint: int) -> None:
        """All members of a fingerprint, at one moment."""
        name = self._layout.key_of(fingerprint)
        tables = table_spots(self._layout, fingerprint)
        for _ in range(ATTEMPTS):
            value = self._client.hget(self._hash_of(name), name)
            if not self._numbers_in(name, value or b""):
                return  # forgotten meanwhile, or reported as unreadable
            spots = [*tables, *band_spots(self._layout, fingerprint, self._layout.records_in(value))]
            again, standing = self._standing(name, spots)
            if again == value:
                break
        else:
            return
        for spot, times in zip(spots, standing, strict=True):
            invariant = "member" if spot in tables else "band"
            if times != 1:
                where = f"{spot.key} with score {spot.score}"
                self._report(invariant, f"{name.hex()} stands {'twice' if times else 'not'} in {where}")

    def _standing(self, name: bytes, spots: Sequence[Spot]) -> tuple[bytes | None, list[int]]:
        """The records' field, and how often each spot is taken, in one step."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hget(self._hash_of(name), name)
            for spot in spots:
                for form in spot.forms:
                    pipe.zscore(spot.key, form)
            value, *scores = pipe.execute()
        pairs = zip(scores[::2], scores[1::2], strict=True)
        return value, [(a == s.score) + (b == s.score) for s, (a, b) in zip(spots, pairs, strict=True)]

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
        of_kinds: dict[str, dict[int, bytes | int | None]] = {}
        for kind, command in (("t", "HSTRLEN"), ("b", "HGET")):
            of_kind = [owners for (_, name, _), owners in zip(buckets, owned, strict=True) if name.kind == kind]
            of_kinds[kind] = self._fields_of(command, chain.from_iterable(of_kind))
        for (key, name, members), owners in zip(buckets, owned, strict=True):
            self._check_bucket(key, name, members, owners, of_kinds[name.kind])

    def _fields_of(self, command: str, owners: Iterable[int | None]) -> dict[int, bytes | int | None]:
        """What a command says of the records of each of these fingerprints."""
        wanted = [fingerprint for fingerprint in dict.fromkeys(owners) if fingerprint is not None]
        places = [(self._layout.records(fingerprint), self._layout.key_of(fingerprint)) for fingerprint in wanted]
        return dict(zip(wanted, self._reads(command, places), strict=True))

    def _check_bucket(
        self,
        key: str,
        name: KeyName,
        members: Members,
        owners: Sequence[int | None],
        fields: Mapping[int, bytes | int | None],
    ) -> None:
        self.found.members += len(members)
        for (member, score), fingerprint in zip(members, owners, strict=True):
            if fingerprint is None:
                self._report("orphan", f"{member.hex()} in {key}, score {score:g}, is no member")
            elif not self._accounts_for(fields[fingerprint], fingerprint, name, key, score):
                self._check_orphan(key, name, member, score, fingerprint)
        times = Counter(zip(owners, (score for _, score in members), strict=True))
        for (fingerprint, _), count in times.items():
            if count > 1 and fingerprint is not None:
                self._check_fingerprint(fingerprint)

    def _accounts_for(self, value: bytes | int | None, fingerprint: int, name: KeyName, key: str, score: float) -> bool:
        """Whether the records in a field are why this fingerprint stands there; for a table its length says enough."""
        if not value or isinstance(value, int) or name.kind == "t":
            return bool(value)
        try:
            spots = band_spots(self._layout, fingerprint, self._layout.records_in(value))
        except UNREADABLE:
            return True  # reported where the record lies
        return any(spot.key == key and spot.score == score for spot in spots)

    def _check_orphan(self, key: str, name: KeyName, member: bytes, score: float, fingerprint: int) -> None:
        own = self._layout.key_of(fingerprint)
        with self._client.pipeline(transaction=True) as pipe:
            pipe.zscore(key, member)
            pipe.hget(self._layout.records(fingerprint), own)
            now, value = pipe.execute()
        if now == score and not self._accounts_for(value, fingerprint, name, key, score):
            self._report("orphan", f"{own.hex()} stands in {key} without a record that belongs there")

    # Journals --------------------------------------------------------------------------------------------------------

    def _check_entries(self, key: bytes) -> None:
        def again(offset: bytes) -> tuple[bytes | None, bool]:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hget(key, "mark")
                pipe.hexists(key, offset)
                mark, there = pipe.execute()
            return mark, bool(there)

        self._check_journal(key.decode(), self._fields(key), again)
