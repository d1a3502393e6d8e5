"""What is to be stored again, out of what was told: the unique pages, and how far each partition is answered.

Only `unique` verdicts are stored, under their numbers, at the time at which they were written. Left out are pages that
were taken down, unless they were told unique again since then, and verdicts of another profile, which another index
gave. A page that was told unique again after an announced rewind has the same number and observation, and is stored
once. A number that was given twice to different pages (after Redis had lost the first one) is the earlier page's; the
later ones get new numbers, behind all others.

Of a bounded number of pages those are left that the index had: what it forgot before a page behind it was taken down
stays forgotten.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from simhash.index import Partition
from simhash.index.interface import DAY_MS, STORED_BYTES, day_of, shortened
from simhash.index.redis.layout import DAY_BYTES
from simhash.index.redis.operators.filling import Store
from simhash.index.redis.operators.kept_versions import Kept, first_bits
from simhash.index.rows import RecordRow, Takedown
from simhash.index.versions import packed, url_hash
from simhash.signature.profiles import Profile, Signature
from worker.rebuilding.order import Sorted
from worker.rebuilding.verdict_sources import Answered, CommittedVerdict, Settled
from worker.records.passing import runs
from worker.records.verdict import Verdict

OBSERVATION_DIGITS = 2 * STORED_BYTES
UNDER_WAY = 50_000
"""More numbers than pages are under way at a time: three batches of each worker."""


@dataclass
class RebuildCounts:
    """What was read.

    Attributes:
        verdicts, dead_letters: all of them.
        other_profile: verdicts that are of no use, because another profile made their fingerprints.
        renumbered: pages whose number another one had before.
        only_named: pages that a duplicate names and no verdict tells of; found_again: those of them that the input has.
    """

    verdicts: int = 0
    dead_letters: int = 0
    other_profile: int = 0
    renumbered: int = 0
    only_named: int = 0
    found_again: int = 0


@dataclass
class CollectedVerdicts:
    """See the module.

    Attributes:
        profile: name and version, as in verdicts.
        takedowns: what operators removed, in any order.
        marks: of each partition that pages came from, the offset before which all are answered.
        other_profile: what the last verdict of another profile says, "" without one.
        last_seq: the largest number that was told.
        archived: what has a number up to this one lies in the index's archive, and is not stored again; but for numbers
            that were given twice: nobody knows which of the pages the archive has, so all get new ones.
        taken_down: the unique pages that are left out, under the numbers that they would have; see `numbered`.
    """

    profile: str
    takedowns: Sequence[Takedown]
    unique: Sorted
    marks: dict[Partition, int] = field(default_factory=dict)
    counts: RebuildCounts = field(default_factory=RebuildCounts)
    other_profile: str = ""
    last_seq: int = 0
    archived: int = 0
    taken_down: list[RecordRow] = field(default_factory=list)
    _first_answered: dict[Partition, int] = field(default_factory=dict)
    _numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _named: dict[int, CommittedVerdict] = field(default_factory=dict)
    _unique_of_late: set[int] = field(default_factory=set)
    _gone: dict[str, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        """Of each observation the last number and the last time at which it was taken down."""
        self._gone = {}
        for each in self.takedowns:
            seq, at = self._gone.get(each.observation, (0, -1))
            self._gone[each.observation] = max(seq, each.seq), max(at, each.at)

    def add_all(self, answered: Iterable[Answered]) -> Iterator[RebuildCounts]:
        """Take verdicts and dead letters in; the counts so far after each."""
        for each in answered:
            if isinstance(each, Settled):
                self.counts.dead_letters += 1
                self._answered(Partition(each.topic, each.partition), each.offset)
            else:
                self.counts.verdicts += 1
                self._add(each)
            yield self.counts

    def _add(self, told: CommittedVerdict) -> None:
        verdict = told.verdict
        self._answered(Partition(verdict.source.topic, verdict.source.partition), verdict.source.offset)
        if verdict.profile != self.profile:
            self.counts.other_profile += 1
            self.other_profile = verdict.profile
        elif verdict.seq is not None:
            self.add_unique(told, verdict.seq)
        elif verdict.match is not None and verdict.match.seq > self.last_seq - UNDER_WAY:
            self._named[verdict.match.seq] = told
        if max(len(self._named), len(self._unique_of_late)) > 2 * UNDER_WAY:
            self._forget_earlier()

    def add_unique(self, told: CommittedVerdict, seq: int) -> None:
        """Take a unique page in; nothing is said of its place in the input."""
        verdict = told.verdict
        self.last_seq = max(self.last_seq, seq)
        least, most = self._numbers.get(verdict.source.topic, (seq, seq))
        self._numbers[verdict.source.topic] = min(least, seq), max(most, seq)
        self.unique.add(_row(verdict, seq, told.written_ms))
        self._unique_of_late.add(seq)

    def only_named(self) -> dict[int, CommittedVerdict]:
        """Numbers that no unique page has, of the last ones, and a duplicate that names each as its match."""
        self._forget_earlier()
        lacking = self._named.keys() - self._unique_of_late
        return {seq: self._named[seq] for seq in sorted(lacking) if seq > self.archived}

    def _forget_earlier(self) -> None:
        earliest = self.last_seq - UNDER_WAY
        self._named = {seq: told for seq, told in self._named.items() if seq > earliest}
        self._unique_of_late = {seq for seq in self._unique_of_late if seq > earliest}

    def _answered(self, partition: Partition, offset: int) -> None:
        if not partition.topic.startswith("file:"):  # a file has no committed offsets
            self.marks[partition] = max(self.marks.get(partition, 0), offset + 1)
            self._first_answered[partition] = min(self._first_answered.get(partition, offset), offset)

    def numbered(self) -> Iterator[tuple[RecordRow, bool]]:
        """The rows that were told, each number once, in rising order, and whether each was taken down.

        May be asked for again. At its end `taken_down` and `counts.renumbered` are known.
        """
        taken_down: list[RecordRow] = []
        for row, gone in self._renumbered():
            if gone:
                taken_down.append(row)
            yield row, gone
        self.taken_down = taken_down

    def missing(self, skipped: int, oldest_ms: int, from_first: bool, whole_from_ms: int) -> Iterator[range]:
        """The stretches of numbers that no verdict has, between two rows that `kept` would take, and before the first.

        Beside a row that is forgotten already, what is missing may be forgotten too; and of the archive nothing is.

        Args:
            from_first: nothing is missing before the first row that there is.
            whole_from_ms: behind a row that was written from then on nothing is missing; 0: nor before the first, if
                the answers begin where the pages do. (Those of a topic that was made anew do not.)
        """
        remembered, last = not from_first, self.archived
        in_doubt = whole_from_ms > 0 or any(self._first_answered.values())
        for place, (row, _) in enumerate(self.numbered()):
            if row.seq > self.archived:
                before, remembered = remembered, place >= skipped and row.inserted_ms >= oldest_ms
                if before and remembered and in_doubt and row.seq > last + 1:
                    yield range(last + 1, row.seq)
                last = row.seq
            in_doubt = row.inserted_ms < whole_from_ms

    def numbered_alike(self) -> list[str]:
        """Input topics whose pages have been given the same numbers, as by two indexes; once `numbered` has ended.

        One index that reads another topic from some day on goes on counting.
        """
        if not self.counts.renumbered:
            return []
        spans = sorted((span, topic) for topic, span in self._numbers.items() if not topic.startswith("file:"))
        return sorted(
            {topic for one, other in pairwise(spans) if other[0][0] <= one[0][1] for topic in (one[1], other[1])}
        )

    def _renumbered(self) -> Iterator[tuple[RecordRow, bool]]:
        late: dict[str, RecordRow] = {}
        last: RecordRow | None = None
        for row in self.unique.rows():
            if last is None or row.seq > last.seq:
                yield row, self._is_gone(row)
                last = row
            elif row.observation != last.observation:
                if row.seq <= self.archived:
                    late.setdefault(last.observation, last)
                late.setdefault(row.observation, row)
        self.last_seq = max(self.last_seq, self.archived)
        self.counts.renumbered = len(late)
        for number, row in enumerate(late.values(), self.last_seq + 1):
            yield msgspec.structs.replace(row, seq=number), self._is_gone(row)

    def _is_gone(self, row: RecordRow) -> bool:
        """Whether a row, with the number that was told, was taken down, and not told unique again since then."""
        seq, at = self._gone.get(row.observation, (0, -1))
        return row.seq <= seq or row.inserted_ms <= at

    def kept(self, skipped: int, oldest_ms: int) -> Iterator[RecordRow]:
        """The rows to store: not the first `skipped` ones, none from before a time, nor what was taken down."""
        for place, (row, gone) in enumerate(self.numbered()):
            if row.seq > self.archived and place >= skipped and row.inserted_ms >= oldest_ms and not gone:
                yield row


def forgotten(rows: Iterable[tuple[RecordRow, bool]], takedowns: Iterable[Takedown], most: int | None) -> int:
    """How many of these rows, the first ones, an index has forgotten that keeps the `most` newest pages (None: all).

    It forgets when a page is stored, and what it has forgotten does not come back when a page behind it is taken down:
    so it matters which rows were stored before each takedown. That is told by their times.
    """
    coming = deque(sorted(takedowns, key=lambda each: each.at))
    removed_later = {(each.seq, each.observation) for each in coming}
    places: dict[tuple[int, str], int] = {}
    removed: list[int] = []
    first = 0
    for place, (row, _) in enumerate(rows):
        while coming and coming[0].at < row.inserted_ms:
            takedown = coming.popleft()
            gone = places.pop((takedown.seq, takedown.observation), -1)  # once: a delete that was ended is told twice
            if gone >= first:
                insort(removed, gone)
        if (row.seq, row.observation) in removed_later:
            places[row.seq, row.observation] = place
        while most is not None and place + 1 - first - len(removed) > most:
            if removed and removed[0] == first:
                removed.pop(0)
            first += 1
    return first


def _row(verdict: Verdict, seq: int, inserted_ms: int) -> RecordRow:
    return RecordRow(
        seq=seq,
        inserted_ms=inserted_ms,
        fingerprint=verdict.fingerprint,
        verifier=verdict.verifier,
        digest=verdict.digest if verdict.fingerprint is None else shortened(verdict.digest),
        observation=verdict.observation[:OBSERVATION_DIGITS],
        url=verdict.url,
        id=verdict.id,
        fetched_at=verdict.fetched_at,
        features=verdict.features,
    )


# Last versions --------------------------------------------------------------------------------------------------------
#
# From the verdicts read once more: each takes the place of the one before it. A URL's pages come from one partition,
# where its key decides, and so in their order. Left out are verdicts of another profile, what is beyond its age, and
# what was written before its URL was taken down.

VERSIONS_AT_ONCE = 500


def keep_versions(
    store: Store, answered: Iterable[Answered], profile: Profile, takedowns: Sequence[Takedown], oldest_ms: int
) -> int:
    """Keep, in an index being filled, what verdicts say of each URL's last page; how many verdicts that took."""
    bits = first_bits(store.layout.spec)
    store.keep_versions(bits)
    gone: dict[str, int] = {}
    for each in takedowns:
        gone[each.url] = max(each.at, gone.get(each.url, -1))
    told = (
        each
        for each in answered
        if isinstance(each, CommittedVerdict)
        and each.verdict.profile == profile.label
        and each.written_ms >= oldest_ms - DAY_MS
        and each.written_ms > gone.get(each.verdict.url, -1)
    )
    count = 0
    for some in runs(_kept(store, told, profile, bits), lambda _: 1, VERSIONS_AT_ONCE):
        store.set_versions(some)
        count += len(some)
    return count


def _kept(store: Store, told: Iterable[CommittedVerdict], profile: Profile, bits: int) -> Iterator[Kept]:
    start = store.layout.versions_start
    for verdict, written_ms in told:
        key, field = store.layout.version(url_hash(verdict.url), bits)
        version = packed(_signature(verdict), bytes.fromhex(verdict.observation), verdict.fetched_at, profile)
        yield Kept(key.removeprefix(start), field, day_of(written_ms).to_bytes(DAY_BYTES) + version)


def _signature(verdict: Verdict) -> Signature:
    fingerprint, verifier = (None if d is None else int(d, 16) for d in (verdict.fingerprint, verdict.verifier))
    return Signature(fingerprint, verifier, verdict.digest, verdict.features)
