"""A set of tables from a source of any size, in bounded memory: take in, sort each table in runs, merge, encode.

The order on disk is the order of safety: chunks of the input (`ingest`), sorted runs of a table, the table itself under
its name, at last the manifest. Each is whole when it has its name, so a build that was killed goes on where it was when
it is asked for the same again. All but the set is in `building/` and gone at the end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from simhash.archive.building.ingest import STATE, EntrySource, Holding, Ingest, job_of
from simhash.archive.building.sorting import KeyFile, merged
from simhash.archive.format import keys as arrays
from simhash.archive.format import manifest as manifests
from simhash.archive.format.blocks import gap_counts
from simhash.archive.format.keys import Keys
from simhash.archive.format.manifest import DIGESTS_FILE, RECORDS_FILE, FileEntry, Manifest, Part, identity, parts
from simhash.archive.format.record_file import BLOCK_RECORDS, DIGEST_BITS, RecordFile, write_records
from simhash.archive.format.table_file import BLOCK_KEYS, TableFile, TableWriter
from simhash.errors import TableMismatch
from simhash.index.interface import Relation

WORK = "building"
SLICE_KEYS = 1 << 20
"""Keys that are permuted, counted or encoded at a time."""
_SORT_COPIES, _MERGE_COPIES = 3, 8
"""How often a chunk, or the buffers of a merge, are in memory at once: measured, then rounded up."""

Progress = Callable[[str, int, int | None], None]
"""Told the stage, how much of it is done and how much there is (None: nobody knows). What it raises ends the build."""


@dataclass(frozen=True)
class Effort:
    """What a build may use.

    Attributes:
        memory: bytes, for the arrays and records held at a time; the interpreter comes on top.
        threads: tables made at the same time; they share the memory.
        block_keys: keys of a block.
    """

    memory: int = 1 << 30
    threads: int = 2
    block_keys: int = BLOCK_KEYS


@dataclass(frozen=True)
class BuildPlan:
    """What is to be built.

    Attributes:
        profile: the recipe of the fingerprints; None: unknown.
        holding: what the source gives.
        relation: the relation that the set is to answer for, once it is known how many fingerprints there are.
        job: names source and settings: an unfinished build goes on only for the same.
    """

    profile: Mapping[str, Any] | None
    holding: Holding
    relation: Callable[[int], Relation]
    job: str


def build(out: Path, source: EntrySource, plan: BuildPlan, effort: Effort, on_progress: Progress) -> Manifest:
    """Build a set in the directory `out`, which is made; or go on with a build that was begun there.

    Raises:
        TableMismatch: there is a set already, or an unfinished build of something else, or another program at work.
        OSError: what is needed cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        return _built(out, source, plan, effort, on_progress)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """A lock on the directory, which ends with this program however that ends."""
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise TableMismatch(f"another program builds in {out}") from error
    except OSError:
        pass  # there are no locks on this file system
    try:
        yield
    finally:
        os.close(descriptor)


def _built(out: Path, source: EntrySource, plan: BuildPlan, effort: Effort, on_progress: Progress) -> Manifest:
    if (out / manifests.NAME).exists():
        was_this = job_of(out / WORK) == plan.job
        _clear(out / WORK)  # all that a build which was killed at its very end has left to do
        if was_this:
            return manifests.read(out)
        raise TableMismatch(f"{out} holds a set of tables already: build into another directory")
    if any(out.iterdir()) and not (out / WORK).is_dir():
        raise TableMismatch(f"{out} is not empty: build into a directory of its own")
    return _Build(out, plan, effort, on_progress).run(source)


class _Build:
    def __init__(self, out: Path, plan: BuildPlan, effort: Effort, on_progress: Progress) -> None:
        self._out = out
        self._plan = plan
        self._effort = effort
        self._widest = 8 * arrays.words(plan.holding.bits + (32 if plan.holding.bands else 0))
        share = effort.memory // effort.threads
        chunk = max(1, share // (self._widest * _SORT_COPIES))
        self._merge_keys = max(1, share // (self._widest * _MERGE_COPIES))
        self._ingest = Ingest(out / WORK, plan.job, plan.holding, chunk, effort.memory // 2)
        self._on_progress = on_progress
        self._lock = Lock()
        self._done = 0

    def run(self, source: EntrySource) -> Manifest:
        self._done = self._ingest.items
        self._ingest.run(source, lambda items: self._tell("reading", items, None))
        chunks = self._ingest.state.chunks
        count = sum(chunk.fingerprints for chunk in chunks)
        relation = self._plan.relation(count)
        if self._plan.holding.records:
            self._records()
        made = list(parts(relation))
        self._done, total = 0, 3 * sum(self._held(part) for part in made)
        with ThreadPoolExecutor(self._effort.threads) as threads:
            jobs = [threads.submit(self._table, part, total) for part in made]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                for job in jobs:
                    job.cancel()
                raise
        return self._finished(relation)

    def _tell(self, stage: str, more: int, total: int | None) -> None:
        with self._lock:
            self._done += more
            self._on_progress(stage, self._done, total)

    # Tables --------------------------------------------------------------------------------------------------------

    def _held(self, part: Part) -> int:
        chunks = self._ingest.state.chunks
        return sum(chunk.fingerprints if part.band is None else chunk.bands[part.band] for chunk in chunks)

    def _table(self, part: Part, total: int) -> None:
        path, items = self._out / part.name, self._held(part)
        if path.exists():
            self._tell("sorting", 3 * items, total)
            return
        runs = []
        for chunk in range(len(self._ingest.state.chunks)):
            run = self._run(part, chunk)
            runs.append(run)
            self._tell("sorting", len(run), total)
        gaps = np.zeros(part.width + 1, np.int64)
        before = np.zeros((0, arrays.words(part.width)), np.uint64)
        for keys in self._merged(runs):
            gaps += gap_counts(np.concatenate((before, keys)), part.width)
            before = keys[-1:]
            self._tell("sorting", len(keys), total)
        writer = TableWriter(path, part.identity, part.width, items, gaps.tolist(), self._effort.block_keys)
        try:
            for keys in self._merged(runs):
                writer.add(keys)
                self._tell("sorting", len(keys), total)
            writer.close()
        except BaseException:
            writer.discard()
            raise
        for run in runs:
            run.path.unlink()

    def _merged(self, runs: list[KeyFile]) -> Iterator[Keys]:
        for keys in merged(runs, self._merge_keys):
            for start in range(0, len(keys), SLICE_KEYS):
                yield keys[start : start + SLICE_KEYS]

    def _run(self, part: Part, chunk: int) -> KeyFile:
        """A sorted run: a chunk's keys as the part has them."""
        found = KeyFile(self._ingest.directory / f"{part.name}-{chunk:04}", arrays.words(part.width))
        if found.path.exists():
            return found
        raw = self._ingest.fingerprints(chunk) if part.band is None else self._ingest.band(part.band, chunk)
        keys = np.empty((len(raw), raw.size), np.uint64)
        at = 0
        for some in raw.chunks(SLICE_KEYS):
            keys[at : at + len(some)] = some if part.table is None else arrays.permuted(some, part.table)
            at += len(some)
        if raw.size == 1:
            keys[:, 0].sort()
        found.write([keys if raw.size == 1 else arrays.in_order(keys)])
        return found

    # Records and the end -------------------------------------------------------------------------------------------

    def _records(self) -> None:
        for kind, name, width in (
            ("records", RECORDS_FILE, self._plan.holding.bits),
            ("digests", DIGESTS_FILE, DIGEST_BITS),
        ):
            if (self._out / name).exists():
                continue
            chunks = self._ingest.state.chunks
            items = sum(chunk.records if kind == "records" else chunk.digests for chunk in chunks)
            self._done = 0
            runs = self._ingest.body_runs(kind)
            for written in write_records(self._out / name, identity(kind), width, items, runs, BLOCK_RECORDS):
                self._tell("records", written, items)

    def _finished(self, relation: Relation) -> Manifest:
        """Everything is whole: say so, and clear up."""
        files, held = [], {part.name: part for part in parts(relation)}
        counts: dict[str, int] = {}
        for name, part in held.items():
            counts[name] = len(TableFile(self._out / name, part.identity))
        if self._plan.holding.records:
            counts[RECORDS_FILE] = len(RecordFile(self._out / RECORDS_FILE, identity("records")))
            counts[DIGESTS_FILE] = len(RecordFile(self._out / DIGESTS_FILE, identity("digests")))
        self._done = 0
        for name, items in counts.items():
            path = self._out / name
            files.append(FileEntry(name, path.stat().st_size, items, manifests.checksum(path)))
            self._tell("checking", 1, len(counts))
        made = Manifest(
            self._plan.profile,
            relation,
            sum(chunk.fingerprints for chunk in self._ingest.state.chunks),
            counts.get(RECORDS_FILE),
            counts.get(DIGESTS_FILE),
            tuple(files),
        )
        manifests.write(self._out, made)
        _clear(self._out / WORK)
        return made


def _clear(directory: Path) -> None:
    """Remove what a build that is done has worked with; what says which build it was, at last."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.name != STATE:
            path.unlink()
    shutil.rmtree(directory, ignore_errors=True)
