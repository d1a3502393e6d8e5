"""Verdicts as NumPy columns, a row each: about 240 bytes a verdict, whatever its text was.

A record (topic, partition, offset) and a place (the same of where the verdict stands) are one number each: an interned
partition in the upper 16 bits, the offset in the lower 48. URLs are kept as hashes of this process: they are compared,
never shown; a place leads to the verdict that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.verifying.told import (
    Coordinates,
    ExportedRecord,
    Told,
    is_wrong_of_canonical,
    is_wrong_of_host,
    seconds_of,
)

OFFSET_BITS = 48
MOST_PARTITIONS = 1 << 15
CHUNK_ROWS = 1 << 15
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
        """The number of an offset; ValueError: there are more partitions than fit."""
        key = (topic, partition)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.names)
            self.names.append(key)
            if known >= MOST_PARTITIONS:
                raise ValueError(f"verdicts of more than {MOST_PARTITIONS:,} partitions and files")
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


@dataclass
class _Chunks:
    """Columns that grow: lists, turned into arrays now and then."""

    rows: list[tuple[int | bool, ...]] = field(default_factory=list)
    hexes: list[tuple[str | None, str | None, str]] = field(default_factory=list)
    parts: list[tuple[NDArray[np.int64], Words, Halves, Words]] = field(default_factory=list)
    fingerprint_digits: int = 0
    verifier_digits: int = 0

    def add(self, row: tuple[int | bool, ...], fingerprint: str | None, verifier: str | None, hexes: str) -> None:
        """One more; `hexes`: hexadecimal columns of a fixed width. ValueError: another width than before."""
        self._check("fingerprint", fingerprint)
        self._check("verifier", verifier)
        self.rows.append(row)
        self.hexes.append((fingerprint, verifier, hexes))
        if len(self.rows) == CHUNK_ROWS:
            self._pack()

    def _check(self, what: str, value: str | None) -> None:
        if value is None:
            return
        name = f"{what}_digits"
        if not getattr(self, name):
            self._pack()  # those before had none
            setattr(self, name, len(value))
        elif getattr(self, name) != len(value):
            raise ValueError(f"a {what} of {len(value)} digits, where all before had {getattr(self, name)}")

    def _pack(self) -> None:
        if not self.rows:
            return
        numbers = np.array(self.rows, dtype=np.int64)
        fingerprints, verifiers, rest = zip(*self.hexes, strict=True)
        words = unhex(fingerprints, 16 * -(-self.fingerprint_digits // 16)).astype(np.uint64)
        halves = unhex(verifiers, 8 * -(-self.verifier_digits // 8), ">u4").astype(np.uint32)
        self.parts.append((numbers, words, halves, unhex(rest, len(rest[0])).astype(np.uint64)))
        self.rows.clear()
        self.hexes.clear()

    def columns(self, count: int, hexes: int) -> tuple[NDArray[np.int64], Words, Halves, Words]:
        """All of them: `count` columns of numbers, fingerprints, verifiers, `hexes` words of the other digits."""
        self._pack()
        if not self.parts:
            empty = np.zeros((0, 1), np.uint64)
            return np.zeros((0, count), np.int64), empty, np.zeros((0, 0), np.uint32), np.zeros((0, hexes), np.uint64)
        numbers, words, halves, rest = zip(*self.parts, strict=True)
        self.parts.clear()
        return np.concatenate(numbers), _padded(words, 1), _padded(halves, 0), np.concatenate(rest)


def unhex(values: Sequence[str | None], digits: int, dtype: str = ">u8") -> NDArray[np.unsignedinteger]:
    """Numbers of `digits` hexadecimal digits, leading zeros filled in, none as 0: shape (n, numbers of that type)."""
    joined = "".join([(value or "").rjust(digits, "0") for value in values])
    return np.frombuffer(bytes.fromhex(joined), dtype).reshape(len(values), -1)


def _padded(parts: Sequence[NDArray[np.unsignedinteger]], least: int) -> NDArray[np.unsignedinteger]:
    """Parts below each other; those from before the width was known have no columns yet."""
    width = max(least, *(part.shape[1] for part in parts)) if len(parts) > 1 else max(least, parts[0].shape[1])
    blank = [part if part.shape[1] == width else np.zeros((len(part), width), part.dtype) for part in parts]
    return np.concatenate(blank)


# The numbers of a row, in the order in which `VerdictColumns.add` has them.
_COLUMNS = (
    *("place", "record", "unique", "seq", "has_fingerprint", "is_text", "page", "match_page", "url", "match_url"),
    *("distance", "exact", "same_url", "features", "match_size", "similarity", "containment", "better"),
    *("miscalled", "misplaced", "fetched", "previous_fetched", "previous_distance", "previous_similarity"),
    *("written_ms", "profile"),
)
_FLAGS = ("unique", "has_fingerprint", "is_text", "exact", "same_url", "miscalled", "misplaced")


class VerdictColumns:
    """Verdicts as they are read."""

    def __init__(self, spots: Spots) -> None:
        self._spots = spots
        self._chunks = _Chunks()
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
        digits = told.digest.partition(":")[2] + told.observation[:16]
        self._chunks.add(row, told.fingerprint, told.verifier, digits)
        self.count += 1

    def verdicts(self) -> Verdicts:
        """All of them; once, at the end."""
        numbers, fingerprint, verifier, hexes = self._chunks.columns(len(_COLUMNS), 3)
        columns: dict[str, Any] = {name: np.ascontiguousarray(numbers[:, at]) for at, name in enumerate(_COLUMNS)}
        return Verdicts(
            **columns | {name: columns[name].astype(np.bool_) for name in _FLAGS},
            spots=self._spots,
            fingerprint=fingerprint,
            verifier=verifier,
            digest=np.ascontiguousarray(hexes[:, :2]),
            observation=np.ascontiguousarray(hexes[:, 2]),
            profiles=list(self._profiles),
            fingerprint_bits=4 * self._chunks.fingerprint_digits,
            verifier_bits=4 * self._chunks.verifier_digits,
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
        self._chunks = _Chunks()
        self.count = 0

    def add(self, stored: ExportedRecord) -> None:
        """One more; ValueError: it cannot stand beside those before."""
        page = page_hash(stored.url, stored.id, stored.fetched_at)
        row = (stored.seq, page, stored.fingerprint is not None, stored.digest.startswith("text:"))
        digits = stored.digest.partition(":")[2][:16] + stored.observation[:16]
        self._chunks.add(row, stored.fingerprint, stored.verifier, digits)
        self.count += 1

    def held(self) -> Held:
        """All of them; once, at the end."""
        numbers, fingerprint, verifier, hexes = self._chunks.columns(4, 2)
        flags = numbers[:, 2:].astype(np.bool_)
        return Held(
            numbers[:, 0], numbers[:, 1], flags[:, 0], flags[:, 1], fingerprint, verifier, hexes[:, 0], hexes[:, 1]
        )


def distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
    """Bits in which rows of `a` differ from those of `b`, both (n, words); shape (n,)."""
    found: NDArray[np.int64] = np.bitwise_count(a ^ b).sum(axis=1, dtype=np.int64)
    return found


def halves_joined(halves: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """(n, m) numbers of 32 bits as half as many of 64, a zero in front where m is odd: distances stay the same."""
    if halves.shape[1] % 2:
        halves = np.concatenate([np.zeros((len(halves), 1), np.uint32), halves], axis=1)
    return np.ascontiguousarray(halves).view(np.uint64)
