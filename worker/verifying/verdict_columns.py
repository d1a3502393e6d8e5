"""Verdicts as NumPy columns, a row each: 210 bytes a verdict, whatever its text was.

A record (topic, partition, offset) and a place (the same of where the verdict stands) are one number each: an interned
partition in the upper 24 bits, the offset in the lower 40. URLs are kept as hashes of this process: they are compared,
never shown; a place leads to the verdict that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.errors import InputError
from worker.verifying.told import (
    MOST_OFFSET,
    Coordinates,
    ExportedRecord,
    Told,
    is_wrong_of_canonical,
    is_wrong_of_host,
    seconds_of,
)

OFFSET_BITS = MOST_OFFSET.bit_length() - 1
MOST_PARTITIONS = 1 << (63 - OFFSET_BITS)
CHUNK_ROWS = 1 << 14
GROWS_BY = 16
"""A column that is full gets a sixteenth more."""
UNTOLD = -1

Words = NDArray[np.uint64]
Halves = NDArray[np.uint32]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Spots:
    """Records and places as numbers, and back."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int], int] = {}
        self.names: list[tuple[str, int]] = []

    def number(self, topic: str, partition: int, offset: int) -> int:
        """The number of an offset. InputError: there are more partitions and files than fit."""
        key = (topic, partition)
        known = self._ids.get(key)
        if known is None:
            if len(self.names) == MOST_PARTITIONS:
                raise InputError(f"more than {MOST_PARTITIONS:,} partitions and files: verify them in several parts")
            known = self._ids[key] = len(self.names)
            self.names.append(key)
        return known << OFFSET_BITS | offset

    def record(self, number: int) -> Coordinates:
        """The record, or place, of a number."""
        return Coordinates(*self.names[number >> OFFSET_BITS], number & ((1 << OFFSET_BITS) - 1))

    def show(self, number: int) -> str:
        """As people read it."""
        return str(self.record(number))


@dataclass(frozen=True)
class Verdicts:
    """All verdicts that were read.

    Attributes:
        place, record: see the module; where the verdict stands, and what it answers.
        seq: a unique page's number; of a duplicate, its match's.
        has_fingerprint: the others are matched by their digests alone.
        fingerprint: (n, words), most significant first; verifier: (n, halves) of 32 bits, band keys last.
        digest, is_text: the 128 bits of the digest, and whether it is one of normalised text.
        observation: its first 64 bits.
        page, match_page: hashes of (url, id, fetched_at), the page's own and as the match states it; url, match_url.
        distance, exact, same_url: what a duplicate says; of unique pages 0 and false.
        features: how many a page has; match_size: those of its match, as a duplicate says.
        similarity, containment: in thousandths; better: 0 or 1. As match_size, UNTOLD where a verdict says nothing.
        miscalled: whether it is wrong of its match being its canonical URL; misplaced: of its being on the same host.
        fetched: in seconds since 1970, 0: nobody knows.
        previous_fetched, previous_distance, previous_similarity: of its URL's last version; UNTOLD: nothing is said.
        written_ms: when the verdict was written; 0: nobody knows.
        profiles: names of all profiles, the first the first that was met; profile: an index into it.
    """

    spots: Spots
    place: Numbers
    record: Numbers
    unique: Flags
    seq: Numbers
    has_fingerprint: Flags
    fingerprint: Words
    verifier: Halves
    digest: Words
    is_text: Flags
    observation: Words
    page: Numbers
    match_page: Numbers
    url: Numbers
    match_url: Numbers
    distance: Numbers
    exact: Flags
    same_url: Flags
    features: Numbers
    match_size: Numbers
    similarity: Numbers
    containment: Numbers
    better: Numbers
    miscalled: Flags
    misplaced: Flags
    fetched: Numbers
    previous_fetched: Numbers
    previous_distance: Numbers
    previous_similarity: Numbers
    written_ms: Numbers
    profile: Numbers
    profiles: Sequence[str]
    fingerprint_bits: int
    verifier_bits: int

    def __len__(self) -> int:
        return len(self.seq)

    def at(self, row: int) -> str:
        """Where a verdict stands."""
        return self.spots.show(int(self.place[row]))


def _thousandths(share: float | None) -> int:
    return UNTOLD if share is None else round(1000 * share)


def page_hash(url: str, id_: str | None, fetched_at: str | None) -> int:
    """What two equal pages have in common, in this process."""
    return hash((url, id_, fetched_at))


class _Column:
    """A column that grows; of each row a number, or `width` of them."""

    def __init__(self, kind: type, *width: int) -> None:
        self._rows: NDArray[Any] = np.zeros((0, *width), kind)
        self._count = 0

    def extend(self, values: NDArray[Any]) -> None:
        """More rows; where they are wider than all before, those were zeros."""
        end = self._count + len(values)
        if values.shape[1:] != self._rows.shape[1:]:
            self._rows = np.zeros((end, *values.shape[1:]), self._rows.dtype)
        if end > len(self._rows):
            # In place, and by little: nearly all memory of this program is such columns.
            self._rows.resize((end + end // GROWS_BY, *values.shape[1:]), refcheck=False)
        self._rows[self._count : end] = values
        self._count = end

    def whole(self) -> NDArray[Any]:
        """All of them."""
        self._rows.resize((self._count, *self._rows.shape[1:]), refcheck=False)
        return self._rows


class _Columns:
    """Columns that grow together: rows are kept as they come, and put into arrays some thousands at a time.

    Args:
        kinds: the columns of numbers in the order of a row, and their types.
    """

    def __init__(self, kinds: Mapping[str, type]) -> None:
        self._numbers = {name: _Column(kind) for name, kind in kinds.items()}
        self._fingerprint, self._verifier = _Column(np.uint64, 1), _Column(np.uint32, 0)
        self._digest, self._observation = _Column(np.uint64, 1), _Column(np.uint64)
        self._rows: list[tuple[int | bool, ...]] = []
        self._hexes: list[tuple[str | None, str | None, str, str]] = []
        self.fingerprint_digits = 0
        self.verifier_digits = 0

    def add(
        self, row: tuple[int | bool, ...], fingerprint: str | None, verifier: str | None, digest: str, observation: str
    ) -> None:
        """One more; all digests have as many digits, and all observations 16. ValueError: another width than before."""
        self._check("fingerprint", fingerprint)
        self._check("verifier", verifier)
        self._rows.append(row)
        self._hexes.append((fingerprint, verifier, digest, observation))
        if len(self._rows) == CHUNK_ROWS:
            self._pack()

    def _check(self, what: str, value: str | None) -> None:
        if value is None:
            return
        name = f"{what}_digits"
        if not getattr(self, name):
            setattr(self, name, len(value))
        elif getattr(self, name) != len(value):
            raise ValueError(f"a {what} of {len(value)} digits, where all before had {getattr(self, name)}")

    def _pack(self) -> None:
        if not self._rows:
            return
        for column, values in zip(self._numbers.values(), zip(*self._rows, strict=True), strict=True):
            column.extend(np.array(values))
        fingerprints, verifiers, digests, observations = zip(*self._hexes, strict=True)
        self._fingerprint.extend(unhex(fingerprints, 16 * max(1, -(-self.fingerprint_digits // 16))))
        self._verifier.extend(unhex(verifiers, 8 * -(-self.verifier_digits // 8), ">u4"))
        self._digest.extend(unhex(digests, len(digests[0])))
        self._observation.extend(unhex(observations, 16)[:, 0])
        self._rows.clear()
        self._hexes.clear()

    def columns(self) -> dict[str, NDArray[Any]]:
        """All of them by their names: the numbers, `fingerprint`, `verifier`, `digest` and `observation`."""
        self._pack()
        hexes = {
            "fingerprint": self._fingerprint,
            "verifier": self._verifier,
            "digest": self._digest,
            "observation": self._observation,
        }
        return {name: column.whole() for name, column in (self._numbers | hexes).items()}


def unhex(values: Sequence[str | None], digits: int, dtype: str = ">u8") -> NDArray[np.unsignedinteger]:
    """Numbers of `digits` hexadecimal digits, leading zeros filled in, none as 0: shape (n, numbers of that type)."""
    joined = "".join([(value or "").rjust(digits, "0") for value in values])
    return np.frombuffer(bytes.fromhex(joined), dtype).reshape(len(values), -1)


# The numbers of a row, in the order in which `VerdictColumns.add` has them.
_OF_VERDICT = {
    "place": np.int64,
    "record": np.int64,
    "unique": np.bool_,
    "seq": np.int64,
    "has_fingerprint": np.bool_,
    "is_text": np.bool_,
    "page": np.int64,
    "match_page": np.int64,
    "url": np.int64,
    "match_url": np.int64,
    "distance": np.int16,
    "exact": np.bool_,
    "same_url": np.bool_,
    "features": np.int32,
    "match_size": np.int32,
    "similarity": np.int16,
    "containment": np.int16,
    "better": np.int8,
    "miscalled": np.bool_,
    "misplaced": np.bool_,
    "fetched": np.int64,
    "previous_fetched": np.int64,
    "previous_distance": np.int16,
    "previous_similarity": np.int16,
    "written_ms": np.int64,
    "profile": np.int32,
}
_OF_RECORD = {"seq": np.int64, "page": np.int64, "has_fingerprint": np.bool_, "is_text": np.bool_}


class VerdictColumns:
    """Verdicts as they are read."""

    def __init__(self, spots: Spots) -> None:
        self._spots = spots
        self._columns = _Columns(_OF_VERDICT)
        self._profiles: dict[str, int] = {}
        self.count = 0

    def add(self, told: Told, place: int, written_ms: int) -> None:
        """One more; ValueError: it cannot stand beside those before."""
        match, source, previous = told.match, told.source, told.previous
        row = (
            place,
            self._spots.number(source.topic, source.partition, source.offset),
            match is None,
            (told.seq or 0) if match is None else match.seq,
            told.fingerprint is not None,
            told.digest.startswith("text:"),
            page_hash(told.url, told.id, told.fetched_at),
            page_hash(match.url, match.id, match.fetched_at) if match else 0,
            hash(told.url),
            hash(match.url) if match else 0,
            match.distance if match else 0,
            match is not None and match.kind == "exact",
            match is not None and match.same_url,
            told.features,
            UNTOLD if match is None or match.size is None else match.size,
            _thousandths(match.similarity if match else None),
            _thousandths(match.containment if match else None),
            UNTOLD if told.better is None else told.better,
            is_wrong_of_canonical(told),
            is_wrong_of_host(told),
            seconds_of(told.fetched_at),
            UNTOLD if previous is None else seconds_of(previous.fetched_at),
            UNTOLD if previous is None or previous.distance is None else previous.distance,
            _thousandths(previous.similarity if previous else None),
            written_ms,
            self._profiles.setdefault(told.profile, len(self._profiles)),
        )
        digest = told.digest.partition(":")[2]
        self._columns.add(row, told.fingerprint, told.verifier, digest, told.observation[:16])
        self.count += 1

    def verdicts(self) -> Verdicts:
        """All of them; once, at the end."""
        return Verdicts(
            **self._columns.columns(),
            spots=self._spots,
            profiles=list(self._profiles),
            fingerprint_bits=4 * self._columns.fingerprint_digits,
            verifier_bits=4 * self._columns.verifier_digits,
        )


@dataclass(frozen=True)
class Held:
    """All records of an export; columns as those of `Verdicts`, `digest` the 64 bits that every record keeps."""

    seq: Numbers
    page: Numbers
    has_fingerprint: Flags
    is_text: Flags
    fingerprint: Words
    verifier: Halves
    digest: Words
    observation: Words


class HeldColumns:
    """Records of an export as they are read."""

    def __init__(self) -> None:
        self._columns = _Columns(_OF_RECORD)
        self.count = 0

    def add(self, stored: ExportedRecord) -> None:
        """One more; ValueError: it cannot stand beside those before."""
        page = page_hash(stored.url, stored.id, stored.fetched_at)
        row = (stored.seq, page, stored.fingerprint is not None, stored.digest.startswith("text:"))
        digest = stored.digest.partition(":")[2][:16]
        self._columns.add(row, stored.fingerprint, stored.verifier, digest, stored.observation[:16])
        self.count += 1

    def held(self) -> Held:
        """All of them; once, at the end."""
        columns = self._columns.columns()
        return Held(**columns | {"digest": columns["digest"][:, 0]})


def distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
    """Bits in which rows of `a` differ from those of `b`, both (n, words); shape (n,)."""
    found: NDArray[np.int64] = np.bitwise_count(a ^ b).sum(axis=1, dtype=np.int64)
    return found
