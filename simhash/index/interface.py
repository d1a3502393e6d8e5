"""What an index is: the values that go in and come out, the relation it answers for, and the calls both backends have.

Only plain frozen data and one Protocol live here; no storage. The rules that every backend keeps (design: "a page is
judged once"):

1. a page whose decision is journalled gets that decision again;
2. a page below the committed mark of its partition is refused (`StaleObservation`), with nothing changed;
3. a page that is itself a stored representative (same observation) is unique, with its first `seq`;
4. otherwise the *oldest* stored page that it matches makes it a duplicate;
5. otherwise it is stored and becomes a representative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from simhash.errors import DesignError, WidthError
from simhash.index.urls import UrlDictionary, shipped
from simhash.relation.overlap import rounded
from simhash.relation.tables import Design
from simhash.signature.minhash import BAND_BITS

FORMAT = 5
"""Version of the stored layout; an index of another format is refused."""
MOST_COMPARED = 2304
"""Stored pages that one page is compared with at most, unless its design has very many tables or probes: so that it
keeps the server for less than 10 ms, whatever is stored (see docs/quality.md)."""
LEAST_IN_PLACE = 8
MOST_NAME_BYTES = 65_000
"""A record has a page's URL, id and time if they are no longer together, in UTF-8."""
STORED_BYTES = 8
"""How much of an observation, and of a matched text's digest, a record keeps (see `Record`)."""


DAY_MS = 86_400_000
FIRST_DAY = 18_262
"""2020 began so many days after 1970: of versions the day is kept, in two bytes."""


def day_of(now_ms: int) -> int:
    """The day of a time, as versions keep it."""
    return max(0, min((1 << 16) - 1, now_ms // DAY_MS - FIRST_DAY))


class Partition(NamedTuple):
    """A partition of an input topic: what a journal and a committed mark belong to."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page stands in its partition: its journal and its offset there."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One page as the index sees it.

    Attributes:
        observation: 16 bytes that name this delivery of this page: two equal ones are the same record, read twice.
        position: where to journal the decision; None for inputs that have no committed offsets (files).
        fingerprint: the gate; None when the page has too little text for near matching.
        verifier: what tells strangers from neighbours, and behind it the band keys (see `Relation`); None exactly
            when `fingerprint` is, or when the profile has none.
        digest: "text:" or "raw:" and 32 hex digits.
        features: how many the page has, which says how long it is; None: nobody knows.
        version: what to keep of the page as the last one of its URL (`simhash.index.versions`); None: nothing.
            Of a batch all pages have one, or none.
    """

    observation: bytes
    position: Position | None
    fingerprint: int | None
    verifier: int | None
    digest: str
    url: str
    id: str | None = None
    fetched_at: str | None = None
    features: int | None = None
    version: bytes | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A stored page, called unique once: a representative.

    Two of its values, observation and digest, are shortened, and cannot be copied into an `Entry`. They are compared
    only with those of pages that match the record already, so 64 bits are enough: one such comparison in 1.8e19 is
    mistaken. The verdict of the page has both in full.

    Attributes:
        observation: the first `STORED_BYTES` of the entry's.
        digest: the entry's; where the page has a fingerprint, only the first `STORED_BYTES` of it (16 hex digits).
        features: the entry's, to within 3.5 % (see `simhash.relation.overlap`); None: nobody knows.
    """

    seq: int
    inserted_ms: int
    observation: bytes
    verifier: int | None
    digest: str
    url: str
    id: str | None
    fetched_at: str | None
    features: int | None = None

    @classmethod
    def of(cls, entry: Entry, seq: int, inserted_ms: int) -> Self:
        """What is stored of `entry`."""
        digest = entry.digest if entry.fingerprint is None else shortened(entry.digest)
        observation = entry.observation[:STORED_BYTES]
        features = None if entry.features is None else rounded(entry.features)
        of_page = (entry.url, entry.id, entry.fetched_at, features)
        return cls(seq, inserted_ms, observation, entry.verifier, digest, *of_page)

    def has_text_of(self, digest: str) -> bool:
        """Whether the record's page has the normalised text (or raw bytes) of this full digest."""
        return digest.startswith(self.digest)


def shortened(digest: str) -> str:
    """The digest as records of pages with a fingerprint keep it."""
    kind, _, digits = digest.partition(":")
    return f"{kind}:{digits[: 2 * STORED_BYTES]}"


@dataclass(frozen=True, slots=True)
class Unique:
    """The page is a representative, number `seq` of the index (from 1)."""

    seq: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The page matches `match` at `distance` bits (0 for pages matched on their digest alone)."""

    distance: int
    match: Record


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision, and what it took when it was first made.

    Attributes:
        candidates: how many stored fingerprints were compared. In Redis one counts for each table that brings it in.
        crowded: one of the page's places was full (see `Relation.place_limit`).
        previous: the version of the page before it with the same URL; None: there was none, or nothing is kept.
    """

    decision: Unique | Duplicate
    candidates: int
    crowded: bool = False
    previous: bytes | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored page within reach of a fingerprint, verifier or not."""

    fingerprint: int | None
    distance: int
    record: Record


@dataclass(frozen=True)
class Relation:
    """Which two pages match: a deterministic and symmetric function of the two alone.

    They must meet in the index (share a prefix of some permutation table, or a band key), their fingerprints must be
    within `reach`, and their verifiers within `verifier_reach`. Within the design's k bits every pair meets.

    Attributes:
        design: the permutation tables over the fingerprint.
        reach: the largest gate distance, in bits, inclusive.
        verifier_reach: the largest verifier distance, in bits, inclusive; None: no verifier.
        verifier_bits: width of the verifier proper.
        bands: how many keys of `BAND_BITS` follow it in the same number, each the key of one more table, over minima
            of the text's shingles: what the gate's prefixes miss beyond k, these find. A key of 0 is no key.
    """

    design: Design
    reach: int
    verifier_reach: int | None
    verifier_bits: int = 64
    bands: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.reach < min(self.design.bits, 256):
            raise DesignError(f"a reach of {self.reach} bits is none for {self.design.bits}-bit fingerprints")
        if self.verifier_reach is None and self.bands:
            raise DesignError("band keys come with a verifier")
        if self.verifier_bits % 8:
            raise DesignError(f"a verifier is whole bytes, not {self.verifier_bits} bits")

    @property
    def probes(self) -> int:
        """In how many places a page is looked up: the prefixes that it probes, and its band keys."""
        return sum(table.probes for table in self.design.tables) + self.bands

    @property
    def place_limit(self) -> int:
        """How many stored pages one place takes: the oldest. Later ones do not stand there, and are met elsewhere.

        A place is a prefix of a table, or the leading bits of a band key (`simhash.index.redis.layout`). Each table and
        each band has the same share of `MOST_COMPARED`, a table that is probed at distance 1 a second one for what
        stands one bit away: 230 with 3 tables, one of them probed, and 6 bands.
        """
        probed = sum(table.radius for table in self.design.tables)
        return max(LEAST_IN_PLACE, MOST_COMPARED // (len(self.design.tables) + probed + self.bands))

    @property
    def neighbour_limits(self) -> list[int]:
        """Of each table with how many of each place one bit away a page is compared: the oldest.

        So it is where more than `place_limit` stand one bit away; else it is compared with all of these.
        """
        return [max(LEAST_IN_PLACE, self.place_limit // max(1, table.probes - 1)) for table in self.design.tables]

    def band_keys(self, verifier: int | None) -> list[int]:
        """The band keys behind a verifier, first to last; 0 where there is none."""
        if verifier is None:
            return [0] * self.bands
        mask = (1 << BAND_BITS) - 1
        return [(verifier >> (BAND_BITS * i)) & mask for i in reversed(range(self.bands))]

    def verified(self, a: int | None, b: int | None) -> bool:
        """Whether two verifiers agree."""
        if self.verifier_reach is None:
            return True
        if a is None or b is None:
            return False
        return ((a ^ b) >> (BAND_BITS * self.bands)).bit_count() <= self.verifier_reach

    def shares_band(self, a: int | None, b: int | None) -> bool:
        """Whether two verifiers have a band key in common."""
        return any(x == y != 0 for x, y in zip(self.band_keys(a), self.band_keys(b), strict=True))

    def matches(self, a: Entry, b: Entry) -> bool:
        """The relation itself, as brute force would compute it.

        Raises:
            WidthError: a fingerprint is wider than the design.
        """
        if a.fingerprint is None or b.fingerprint is None:
            return a.fingerprint is b.fingerprint and a.digest == b.digest
        difference = a.fingerprint ^ b.fingerprint
        if difference >> self.design.bits:
            raise WidthError(f"a fingerprint is wider than {self.design.bits} bits")
        meet = self.design.shares_prefix(a.fingerprint, b.fingerprint) or self.shares_band(a.verifier, b.verifier)
        return meet and difference.bit_count() <= self.reach and self.verified(a.verifier, b.verifier)


@dataclass(frozen=True)
class IndexSpec:
    """All that two users of one index must agree on: its *generation*.

    Attributes:
        profile: the recipe of the fingerprints, JSON-able.
        bucket_bits: b, how many leading bits of a permuted fingerprint choose its bucket.
        capacity: the number of documents the layout was chosen for (no limit).
        urls: by which URLs are compressed.
    """

    profile: Mapping[str, object]
    relation: Relation
    bucket_bits: int
    capacity: int
    urls: UrlDictionary = field(default_factory=shipped)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a representative is kept; None: for ever.

    Raises:
        ValueError: a number that is none, or below 0.
    """

    max_age_ms: int | None = None
    max_documents: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_age_ms", self.max_age_ms), ("max_documents", self.max_documents)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"{name} is a whole number from 0 on, or None: not {value!r:.40}")


class Index(Protocol):
    """The calls that every backend has. Those of the loop (positions, marks, watermarks) are one thread's at a time;
    any number of threads may judge pages without a position (see `simhash.index.texts`)."""

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """Judge `entries` in order, storing the unique ones; one answer each.

        Args:
            entries: pages, in the order in which they are to be judged; without any the marks are moved.
            committed: for partitions the caller reads, the offset before which all verdicts are committed: it moves
                the mark, and the journal below it is forgotten.

        Raises:
            StaleObservation: an entry is below its partition's mark; no entry of that call was stored.
            IndexUnreachable: the backend does not answer; what was stored is journalled, so hand the same again.
            IndexMismatch: the index has changed its generation.
        """

    def mark(self, partition: Partition) -> int | None:
        """The committed mark of a partition; None when the index has never seen it."""

    def rewind(self, partition: Partition, offset: int) -> None:
        """Lower (or raise) a partition's mark to `offset`: the operator announces a replay."""

    def journalled(self, observations: Mapping[Position, bytes | None]) -> list[Position]:
        """At which of these positions the journal holds a decision for the page of that observation; None: for any."""

    def look_at_base(self) -> None:
        """Move to newer tables that lie in the base's place, if there is a base, as each call with pages does.

        For a caller that has no pages: others may wait for somebody to move (see `simhash.index.base`).
        """

    def documents(self) -> int:
        """How many representatives are stored."""

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """All stored pages that share a table's prefix with `fingerprint` and are within reach, nearest first."""

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """Every stored record with its fingerprint (None: digest only), in no order; slow on large indexes."""

    def watermark(self) -> str:
        """What this index attests to have stored, for all that was told so far: kept beside a commit."""

    def present(self, watermarks: Iterable[str], others: Callable[[], Iterable[str]] = tuple) -> None:
        """Hold watermarks that were kept beside commits against the index; needed after each `IndexUnreachable`.

        Args:
            others: gives those of all who use the index. Asked where its server is another one than before, or this is
                the first look at it: what it lacks may be known to nobody who is still there.

        Raises:
            IndexLost: it does not have all that they attest.
            IndexMisconfigured: its server, which may be another one now, would lose keys.
        """

    def unchanged(self) -> None:
        """Make sure that the server is still the one that the last `check_and_insert` was answered by.

        Raises:
            IndexServerChanged: it is not; another may lack what was stored.
        """

    def replicated(self) -> None:
        """Wait until what the last `check_and_insert` stored is where it must be before verdicts count.

        Raises:
            IndexUnreplicated: it is not; hand the same pages in again.
        """
