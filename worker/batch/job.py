"""A batch from its inputs to its files, stage by stage.

sign       every slice of the new pages becomes a file of signed rows
group      the driver reads the signatures, and takes pages of one signature together
scan       tables of the groups are broadcast, and every slice of the existing pages is looked up in them
pair       ranges of the groups that may be unique are looked up among these themselves, for the oldest that match
decide     greedy, in order of preference, from sorted pairs; what these are too few for is paired again
link       only for clusters: what is connected
write      the signed rows once more, each with its verdict
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simhash.index.interface import Relation
from simhash.signature.profiles import Profile
from worker.batch import deciding, probing
from worker.batch.clusters import Clusters
from worker.batch.columns import Row
from worker.batch.deciding import Existing
from worker.batch.engine import Engine, StageStopped
from worker.batch.existing import existing_of
from worker.batch.pairing import EDGES, PAIRS, Link, Pair, Range
from worker.batch.request import Watch
from worker.batch.results import Annotated, BatchSummary, Judgement, Results, rows_in_order
from worker.batch.signature_groups import Groups, load
from worker.batch.signing import Signing
from worker.batch.slices import BatchInput, Slice, slices
from worker.batch.tasks import Done, Scan, Sign, new_pages, part_file
from worker.errors import InputError, TooFewJudged

TABLE_ENTRIES = 1 << 22
"""Groups that are compared at once; their tables take about 160 bytes each in every Python process of an executor."""
PAIR_RANGE = 1 << 16
"""Most groups that a task pairs."""
FEWEST, MOST, MOST_PAIRS = 16, 1 << 12, 1 << 24
"""Pairs that are listed of an undecided group, at first and at most, and of all of them at a time."""
TASKS_A_CORE = 4
LAST_WRITE_SECONDS = 20.0

Relate = Callable[[int], Relation]
"""The relation for so many entries in a table."""


@dataclass(frozen=True)
class BatchJob:
    """What a batch was asked to do.

    Attributes:
        relation_for: the relation; its design may depend on the number of groups where the relation itself does not.
        clusters: whether to report clusters, which takes pairs that the verdicts do not need.
        max_rejected: of existing records; None: any.
        keep: which of the new pages that match each other.
        annotate: in which form the new pages are written once more, annotated; None: they are not.
    """

    new: Sequence[BatchInput]
    existing: Sequence[BatchInput]
    out: Path
    profile: Profile
    signing: Signing
    relation_for: Relate
    clusters: bool = False
    max_rejected: int | None = None
    keep: str = "oldest"
    annotate: str | None = None


def run_batch(batch: BatchJob, engine: Engine, watch: Watch, scratch: Path) -> BatchSummary:
    """Do it all; nothing is written unless all is.

    Args:
        scratch: a directory for what lies between the stages, that all tasks see (see `scratch_in`).

    Raises:
        InputError: an input cannot be read, or an output written.
        Stopped: `watch.stopping` was set.
        TaskFailed: a task failed every time.
    """
    start = time.monotonic()
    summary = _BatchRun(batch, engine, watch, scratch).done()
    summary.seconds = time.monotonic() - start
    summary.complete = True
    return summary


@contextmanager
def scratch_in(out: Path) -> Iterator[Path]:
    """A new directory in `out`, which is made; gone with the context.

    Raises:
        InputError: it cannot be made, or filled.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".batch-", dir=out.absolute()))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from error
    try:
        yield scratch
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        _remove(scratch)


def _remove(directory: Path) -> None:
    """Remove it although tasks that were cancelled may write into it a moment longer."""
    end = time.monotonic() + LAST_WRITE_SECONDS
    shutil.rmtree(directory, ignore_errors=True)
    while directory.exists() and time.monotonic() < end:
        time.sleep(0.05)
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class _BatchRun:
    batch: BatchJob
    engine: Engine
    watch: Watch
    scratch: Path
    seconds: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    rejections: list[Path] = field(default_factory=list)
    """Files of what cannot be read of the existing records."""

    def done(self) -> BatchSummary:
        batch = self.batch
        summary = BatchSummary(inputs=len(batch.new) + len(batch.existing))
        annotated = self._annotated()  # now: what cannot be written is said before the pages are judged
        parts = self._slices(batch.new)
        signed = self._stage("signing", Sign(self.scratch, batch.signing, batch.relation_for(0)), parts)
        summary.skipped = sum(done.skipped for done in signed)
        files = [part_file(self.scratch, "new", number) for number, _ in parts]
        with self._timed("grouping"):
            groups = load(files, batch.relation_for(0), batch.keep)
        relation = batch.relation_for(groups.signed)
        existing = self._scanned(groups, relation)
        summary.existing = existing.pages
        self._check_existing(summary)
        kept = self._chosen(groups, relation, deciding.open_groups(groups, existing))
        clusters = Clusters(groups, existing, self._linked(groups, relation)) if batch.clusters else None
        decisions = deciding.decide(groups, existing, kept)
        judgement = Judgement(batch.profile, decisions, existing, groups.at, files)
        with self._timed("writing"):
            results = Results(batch.out, self.scratch, annotated)
            self._write(judgement, rows_in_order([piece for _, piece in parts], files), results, clusters, summary)
        summary.stage_seconds, summary.task_seconds = _rounded(self.seconds), _rounded(self.processor)
        return summary

    def _slices(self, inputs: Sequence[BatchInput]) -> list[tuple[int, Slice]]:
        return list(enumerate(slices(inputs, self.engine.cores)))

    def _stage(self, name: str, function: Callable[[Any], Done], tasks: Sequence[Any]) -> list[Done]:
        with self._timed(name):
            done = self.engine.run(
                function, tasks, self.watch.stopping, lambda count: self.watch.on_progress(name, count, len(tasks))
            )
        self.processor[name] = self.processor.get(name, 0.0) + sum(each.cpu for each in done)
        broken = [each.broken for each in done if each.broken]
        if broken:
            raise InputError(broken[0])
        return done

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    # Comparing ---------------------------------------------------------------------------------------------------

    def _scanned(self, groups: Groups, relation: Relation) -> Existing:
        """All existing pages looked up among the new ones, which are taken some at a time."""
        parts = self._slices(self.batch.existing)
        scans: list[list[Done]] = []
        files: list[Path] = []
        for number, (low, high) in enumerate(_ranges(groups.signed, TABLE_ENTRIES) or [(0, 0)]):
            if not parts:
                break
            directory = self.scratch / f"scan-{number}"
            directory.mkdir()
            shared = self.engine.broadcast(new_pages(groups, relation, low, high))
            scan = Scan(directory, self.batch.signing, relation, shared)
            scans.append(self._stage("scanning", scan, parts))
            shared.unpersist()
            files += [part_file(directory, "matches", part) for part, _ in parts]
            self.rejections = self.rejections or [part_file(directory, "rejections", part) for part, _ in parts]
        return existing_of(groups, [piece for _, piece in parts], scans, files)

    def _check_existing(self, summary: BatchSummary) -> None:
        """Count what cannot be read; refuse an archive of which that is too much, or all.

        Raises:
            TooFewJudged: so it is; the new pages would be called unique for want of anything to hold them against.
        """
        for line in _rejected_in(self.rejections):
            summary.existing_rejected += 1
            summary.explain(_existing_reason(line))
        count, most = summary.existing_rejected, self.batch.max_rejected
        if count and (not summary.existing or (most is not None and count > most)):
            told = "and there are no others" if not summary.existing else f"more than {most:,}"
            why = summary.reasons()[0].example
            raise TooFewJudged(f"{count:,} existing records cannot be read, {told}, mostly: {why:.300}")

    def _chosen(self, groups: Groups, relation: Relation, is_open: np.ndarray[Any, Any]) -> deciding.Greedy:
        """The greedy choice among the new ones; nearly always after one round."""
        chosen = deciding.Greedy(is_open)
        signatures = self.engine.broadcast(groups.signatures)
        for turn in itertools.count():
            left = int(chosen.undecided.sum())
            if not left:
                break
            most = min(MOST, FEWEST << 3 * turn, max(FEWEST, MOST_PAIRS // left))
            files = self._paired(groups, relation, chosen, (f"pairs-{turn}", most, signatures))
            with self._timed("deciding"):
                chosen.settle(self._sorted(files, PAIRS))
        signatures.unpersist()
        return chosen

    def _paired(
        self, groups: Groups, relation: Relation, chosen: deciding.Greedy, given: tuple[str, int, Any]
    ) -> list[list[Path]]:
        """The files of pairs: for each range of groups, in order, one for each set of tables."""
        name, most, signatures = given
        undecided = chosen.undecided
        shared = self.engine.broadcast(undecided)
        candidates = np.flatnonzero(chosen.candidates)
        ranges = self._group_ranges(groups)
        files: list[list[Path]] = [[] for _ in ranges]
        for low, high in _ranges(len(candidates), TABLE_ENTRIES):
            some, stage = candidates[low:high], f"{name}-{low}"
            tables = self.engine.broadcast(probing.build(relation, groups.signatures.take(some), some))
            later = [each for each in ranges if each[2] > some[0] and undecided[each[1] : each[2]].any()]
            self._stage("pairing", Pair(self.scratch, stage, most, tables, signatures, shared), later)
            tables.unpersist()
            for number, _, _ in later:
                files[number].append(part_file(self.scratch, stage, number))
        shared.unpersist()
        return files

    def _linked(self, groups: Groups, relation: Relation) -> Iterator[pa.Table]:
        """What connects the groups."""
        signatures = self.engine.broadcast(groups.signatures)
        for low, high in _ranges(groups.signed, TABLE_ENTRIES):
            some, stage = np.arange(low, high), f"links-{low}"
            tables = self.engine.broadcast(probing.build(relation, groups.signatures.take(slice(low, high)), some))
            later = [each for each in self._group_ranges(groups) if each[2] > low]
            self._stage("linking", Link(self.scratch, stage, tables, signatures), later)
            tables.unpersist()
            yield from self._sorted([[part_file(self.scratch, stage, number)] for number, _, _ in later], EDGES)
        signatures.unpersist()

    def _group_ranges(self, groups: Groups) -> list[Range]:
        """The groups that a task takes."""
        size = max(1, min(PAIR_RANGE, -(-groups.signed // (self.engine.cores * TASKS_A_CORE))))
        return [(number, low, high) for number, (low, high) in enumerate(_ranges(groups.signed, size))]

    def _sorted(self, files: list[list[Path]], schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows of files that follow one another, each of several that are merged."""
        for parts in files:
            if self.watch.stopping.is_set():
                raise StageStopped
            if len(parts) == 1:
                for batch in pq.ParquetFile(parts[0]).iter_batches():
                    yield pa.Table.from_batches([batch])
            elif parts:
                merged = pa.concat_tables([pq.read_table(part, schema=schema) for part in parts])
                yield merged.sort_by([("later", "ascending"), ("earlier", "ascending")])

    # Writing -----------------------------------------------------------------------------------------------------

    def _write(
        self,
        judgement: Judgement,
        rows: Iterator[Row],
        results: Results,
        clusters: Clusters | None,
        summary: BatchSummary,
    ) -> None:
        total = len(judgement.decisions.seq)
        copies = judgement.decisions.copies()
        try:
            for row, number, verdict, known in judgement.verdicts(rows):
                if verdict is None:
                    said = msgspec.json.decode(row["rejection"])
                    summary.reject(said["stage"], said["message"])
                    results.rejection(row["rejection"])
                    continue
                if clusters:
                    clusters.add(number, verdict)
                summary.count(verdict)
                summary.duplicates_of_existing += known and verdict.match is not None
                results.verdict(row, verdict, int(copies[number]))
                if summary.pages % 1024 == 0:
                    self._tell(summary.pages, total)
            for line in _rejected_in(self.rejections):
                results.rejection(line)
            if clusters:
                results.clusters(clusters.lines())
            results.finish()
        finally:
            results.close()

    def _annotated(self) -> Annotated | None:
        batch = self.batch
        if batch.annotate is None:
            return None
        return Annotated(batch.new, batch.annotate, self.scratch, batch.signing.recipe.limits.page)

    def _tell(self, done: int, total: int) -> None:
        if self.watch.stopping.is_set():
            raise StageStopped
        self.watch.on_progress("writing", done, total)


def _rejected_in(files: Sequence[Path]) -> Iterator[bytes]:
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches():
            yield from batch["rejection"].to_pylist()


def _existing_reason(line: bytes) -> str:
    said = msgspec.json.decode(line)
    return f"existing, {said['input']}: {said['stage']}: {said['message']}"


def _ranges(count: int, size: int) -> list[tuple[int, int]]:
    """0 to `count` in ranges of at most `size`."""
    return [(low, min(count, low + size)) for low in range(0, count, size)]


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
