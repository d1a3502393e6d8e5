"""Into the index: what was collected, through the same door as `index import`, and the marks behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from simhash.archive.segments import contents as moments
from simhash.archive.segments.contents import Contents
from simhash.archive.segments.segmented import SegmentedArchive
from simhash.index import IndexSpec, Retention
from simhash.index.redis.operators.filling import Store, entry_of
from simhash.index.redis.operators.transfer import index_row, loaded
from simhash.index.redis.spec import fields_of
from simhash.index.rows import AnyRow, EndRow, IndexRow, MarkRow
from worker.errors import InputError
from worker.index.ageing import ArchiveBase, begin
from worker.rebuilding.collected import CollectedVerdicts, forgotten
from worker.stream.kafka.replay import FOR_EVER_MS


@dataclass(frozen=True)
class Needs:
    """Which numbers some verdict must have, of those that the index would remember.

    Attributes:
        from_first: only those behind the first that is there.
        whole_from_ms: none that was written from then on was deleted. What is missing there was never told: numbers of
            batches that were under way when their worker was killed and the index lost. Their pages come again.
    """

    from_first: bool = False
    whole_from_ms: int = FOR_EVER_MS


@dataclass(frozen=True)
class Target:
    """Where an index is to be made.

    Attributes:
        opened: gives it, empty or with a part of this very rebuild in it.
        source: what the verdicts come from. A rebuild from something else, or with other retention, is another one: it
            must not go on where this was ended, for the pages before that are already chosen.
        archive: where the index's archive lies: what is in it stays there; None: it has none.
        versions: keeps the last versions of URLs in the index, none from before a time; None: they are not kept.
        needs: refuse the verdicts where others are missing; None: make it of what there is.
    """

    opened: Callable[[IndexRow], Store]
    spec: IndexSpec
    retention: Retention
    source: str = ""
    archive: Path | None = None
    versions: Callable[[Store, int], object] | None = None
    needs: Needs | None = Needs()


def build(target: Target, collected: CollectedVerdicts, on_record: Callable[[int, int], None]) -> int:
    """Store what was collected; returns how many pages. A build that was ended goes on where it was.

    Args:
        on_record: is told, now and then, the last number stored and the last one of all.

    Raises:
        InputError: verdicts are missing, or are those of two indexes.
        IndexMismatch: there is another index of that name.
        IndexFault: Redis refuses or does not answer.
    """
    generation = str(fields_of(target.spec)["generation"])
    head = _head(target, generation)
    now_ms = int(time.time() * 1000)
    max_age_ms = target.retention.max_age_ms
    oldest_ms = 0 if max_age_ms is None else now_ms - max_age_ms
    skipped = forgotten(collected.numbered(), collected.takedowns, target.retention.max_documents)
    if target.needs is not None:
        _refuse_mixed(collected)
        _refuse_missing(target.needs, collected, skipped, oldest_ms)
    last = collected.last_seq + collected.counts.renumbered
    count = sum(1 for _ in collected.kept(skipped, oldest_ms))
    marks = [MarkRow(*partition, offset) for partition, offset in sorted(collected.marks.items())]
    store = target.opened(head)
    whole: Iterator[AnyRow] = chain[AnyRow](collected.kept(skipped, oldest_ms), marks, [EndRow(count, len(marks), 0)])
    loaded(store, msgspec.structs.replace(head, seq=last), whole, lambda seq: on_record(seq, last))
    _take_down(store, collected)
    if target.archive is not None:
        contents = _without(target.archive, [row.seq for row in collected.taken_down])
        store.judge_beside(contents.generation, contents.archived)
    if target.versions is not None:
        target.versions(store, oldest_ms)
    # Watermarks from before are held against what the verdicts said.
    store.believe_earlier(now_ms, last)
    return store.release(generation)


def _refuse_mixed(collected: CollectedVerdicts) -> None:
    if alike := collected.numbered_alike():
        count = collected.counts.renumbered
        raise InputError(
            f"pages of {' and '.join(alike)} have been given the same numbers ({count:,} of them), as by two indexes "
            "that write to one verdict topic. Give each a verdict_topic and a dead_letter_topic of its own; for this "
            "rebuild write the verdicts of its input topic (source.topic) to a file (--from). With --partial all are "
            "made one index"
        )


def _refuse_missing(needs: Needs, collected: CollectedVerdicts, skipped: int, oldest_ms: int) -> None:
    missing = list(collected.missing(skipped, oldest_ms, needs.from_first, needs.whole_from_ms))
    if missing:
        count, first = sum(map(len, missing)), missing[0]
        raise InputError(
            f"{count:,} of {collected.last_seq:,} numbers are in no verdict, the first {first[0]:,} to {first[-1]:,}: "
            "verdicts were deleted (retention.ms of the topic), or are elsewhere (files). Pages like the missing ones "
            "would be unique a second time; --partial makes the index all the same"
        )


def _take_down(store: Store, collected: CollectedVerdicts) -> None:
    """Remove what was stored by an earlier run, before it was taken down."""
    for row in collected.taken_down:
        entry = entry_of(row)
        found = store.under(entry.fingerprint, entry.digest, {row.url})
        store.take_down([each for each in found if each.record.seq == row.seq])


def archived_up_to(directory: Path, spec: IndexSpec) -> int:
    """The number up to which all pages lie in an archive; 0: there is none yet.

    Raises:
        IndexMismatch: no worker judges by this spec beside what lies there.
    """
    newest = moments.newest(directory)
    if newest is None:
        return 0
    return ArchiveBase(SegmentedArchive(directory, newest), spec.profile, spec.relation).archived


def _without(directory: Path, taken_down: Sequence[int]) -> Contents:
    """The archive's newest contents, without what was taken down."""
    newest = moments.newest(directory) or begin(directory)
    contents = newest.without(taken_down) or newest
    moments.write(directory, contents)
    return contents


def _head(target: Target, generation: str) -> IndexRow:
    """The same for each run of one rebuild, however much more was told meanwhile: so they know each other."""
    source = f"{target.source} {target.retention.max_age_ms} {target.retention.max_documents}"
    if target.archive is not None:
        source += f" {target.archive}"
    return msgspec.structs.replace(index_row(target.spec, generation, seq=0, documents=0), source=source)
