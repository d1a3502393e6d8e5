"""What is to be stored again, out of what was told: the unique pages, and how far each partition is answered.

Only `unique` verdicts are stored, under their numbers, at the time at which they were written. Left out are pages that
were taken down, and verdicts of another profile, which another index gave. A page that was told unique again after an
announced rewind has the same number and observation, and is stored once. A number that was given twice to different
pages (after Redis had lost the first one) is the earlier page's; the later ones get new numbers, behind all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from simhash.index import Partition, Retention
from simhash.index.interface import STORED_BYTES, shortened
from simhash.index.rows import RecordRow
from worker.rebuilding.order import Sorted
from worker.rebuilding.sources import Answered, Settled, Told
from worker.verdict import Verdict

OBSERVATION_DIGITS = 2 * STORED_BYTES


@dataclass
class Counts:
    """What was read.

    Attributes:
        verdicts, dead_letters: all of them.
        other_profile: verdicts that are of no use, because another profile made their fingerprints.
        renumbered: pages whose number another one had before.
    """

    verdicts: int = 0
    dead_letters: int = 0
    other_profile: int = 0
    renumbered: int = 0


@dataclass
class Collected:
    """See the module.

    Attributes:
        profile: name and version, as in verdicts.
        takedowns: the observations, 16 hex digits each, of the pages that were taken down.
        marks: of each partition that pages came from, the offset before which all are answered.
        last_seq: the largest number that was told.
        taken_down: the unique pages that are left out.
    """

    profile: str
    takedowns: Collection[str]
    unique: Sorted
    marks: dict[Partition, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    last_seq: int = 0
    taken_down: list[RecordRow] = field(default_factory=list)

    def add_all(self, answered: Iterable[Answered]) -> Iterator[Counts]:
        """Take verdicts and dead letters in; the counts so far after each."""
        for each in answered:
            if isinstance(each, Settled):
                self.counts.dead_letters += 1
                self._answered(Partition(each.topic, each.partition), each.offset)
            else:
                self.counts.verdicts += 1
                self._add(each)
            yield self.counts

    def _add(self, told: Told) -> None:
        verdict = told.verdict
        self._answered(Partition(verdict.source.topic, verdict.source.partition), verdict.source.offset)
        if verdict.profile != self.profile:
            self.counts.other_profile += 1
        elif verdict.seq is not None:
            self.last_seq = max(self.last_seq, verdict.seq)
            row = _row(verdict, verdict.seq, told.written_ms)
            if row.observation in self.takedowns:
                self.taken_down.append(row)
            else:
                self.unique.add(row)

    def _answered(self, partition: Partition, offset: int) -> None:
        if not partition.topic.startswith("file:"):  # a file has no committed offsets
            self.marks[partition] = max(self.marks.get(partition, 0), offset + 1)

    def numbered(self) -> Iterator[RecordRow]:
        """The rows to store, each number once, in rising order; may be asked for again."""
        late: dict[str, RecordRow] = {}
        last: RecordRow | None = None
        for row in self.unique.rows():
            if last is None or row.seq > last.seq:
                yield row
                last = row
            elif row.observation != last.observation:
                late.setdefault(row.observation, row)
        self.counts.renumbered = len(late)
        for number, row in enumerate(late.values(), self.last_seq + 1):
            yield msgspec.structs.replace(row, seq=number)


def kept(rows: Iterable[RecordRow], count: int, retention: Retention, now_ms: int) -> Iterator[RecordRow]:
    """What retention leaves of `count` rows."""
    skipped = 0 if retention.max_documents is None else max(0, count - retention.max_documents)
    oldest = None if retention.max_age_ms is None else now_ms - retention.max_age_ms
    for number, row in enumerate(rows):
        if number >= skipped and (oldest is None or row.inserted_ms >= oldest):
            yield row


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
    )
