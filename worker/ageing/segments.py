"""The two steps by which an archive grows: the oldest pages become a segment; neighbouring segments become one."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simhash.archive import BuildPlan, Effort, EntrySource, Manifest, TableSet, build
from simhash.archive.building.builder import WORK
from simhash.archive.building.ingest import Holding
from simhash.archive.building.merging import Merged
from simhash.archive.format import manifest as manifests
from simhash.archive.format.durable import move_whole
from simhash.archive.format.manifest import identity
from simhash.archive.lookup.opened import verifier_bytes
from simhash.archive.segments import contents as moments
from simhash.archive.segments.contents import BUILDING, SEGMENT, Contents, Segment, to_merge
from simhash.errors import TableCorrupt, TableMismatch
from simhash.index import Retention
from simhash.index.redis.operators.retiring import Leaving, Retiring

MOST_AT_ONCE = 1_000_000
"""Pages of one new segment: some minutes' work, which is lost when it is killed."""
KEEP_SECONDS = 3600.0
"""How long files of a moment that is past stay: longer than a Redis can go back by a crash or a failover."""
BLOCK_KEYS = 128
"""Keys of a block of a segment, a quarter of what other tables have: each page is asked by itself or with a hundred
others, reads a block for each prefix, and half of its time was decoding; at .4 bytes more a fingerprint."""
EFFORT = Effort(memory=256 << 20, threads=2, block_keys=BLOCK_KEYS)


@dataclass(frozen=True)
class Ageing:
    """How an archive is to grow.

    Attributes:
        retention: what is to go.
        least: pages that go together.
        on_step: called after each step, by its name (tests kill the process there).
        on_progress: told the stage of a build, how much is done and how much there is (None: nobody knows). What it
            raises ends the build.
    """

    retiring: Retiring
    retention: Retention
    least: int
    on_step: Callable[[str], None] = lambda step: None
    on_progress: Callable[[str, int, int | None], None] = lambda stage, done, total: None

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self.retiring.directory

    def retire(self) -> Contents | None:
        """Move the oldest pages that are due into a segment of their own; None: none are."""
        due = self.retiring.due(self.retention, self.retiring.now_ms(), self.least)
        if due is None:
            return None
        leaving = Leaving(self.retiring, due, MOST_AT_ONCE)
        building = self._building("retire")
        shutil.rmtree(building, ignore_errors=True)
        made = self._built(building, leaving, f"from {due.first}")
        segment = self._placed(building, made, due.first, leaving.last)
        self.on_step("built")

        def edit(before: Contents) -> Contents | None:
            if before.archived != due.first - 1:
                return None  # somebody else was quicker
            gone = self.retiring.gone(due.first, leaving.last) - leaving.gaps
            self.on_step("looked")
            return before.with_segment(segment if leaving.pages else None, leaving.last, gone)

        return self._moved(edit)

    def merge(self) -> Contents | None:
        """Merge the neighbours that are of one level; None: there are none."""
        contents = self.retiring.contents()
        place = to_merge([segment.pages for segment in contents.segments])
        if place is None:
            return None
        old = contents.segments[place]
        gone = [n for n in contents.gone if old[0].first <= n <= old[-1].last]
        left_out = frozenset(gone)
        sets = [TableSet(self.directory / segment.name) for segment in old]
        design = self.retiring.index.spec.relation.design.describe()  # a migration changes it
        job = identity(([tables.generation for tables in sets], gone, design)).hex()
        building = self._building(job)
        made = self._built(building, Merged(sets, lambda record: record.seq not in left_out), job)
        segment = self._placed(building, made, old[0].first, old[-1].last)
        self.on_step("merged")
        return self._moved(lambda before: before.merged(old, segment if segment.pages else None, gone))

    def sweep(self) -> list[str]:
        """Remove what belongs to moments that are past for long; the names of what was removed."""
        return moments.sweep(self.directory, self.retiring.contents(), time.time() - KEEP_SECONDS)

    def _moved(self, edit: Callable[[Contents], Contents | None]) -> Contents | None:
        after = self.retiring.move(edit)
        self.on_step("moved")
        return after

    def _building(self, what: str) -> Path:
        """Where a segment is made: of this machine alone, for a lock may not reach another one."""
        return self.directory / f"{BUILDING}{socket.gethostname()}-{what}"

    def _built(self, building: Path, source: EntrySource, job: str) -> Manifest:
        spec = self.retiring.index.spec
        relation = spec.relation
        holding = Holding(relation.design.bits, True, verifier_bytes(relation), relation.bands)

        def tell(stage: str, done: int, total: int | None) -> None:
            os.utime(building)  # in use: not to be swept
            self.on_progress(stage, done, total)

        if (building / manifests.NAME).exists():  # killed before it had its name
            shutil.rmtree(building / WORK, ignore_errors=True)
            return manifests.read(building)
        plan = BuildPlan(spec.profile, holding, lambda _: relation, job)
        try:
            return build(building, source, plan, EFFORT, tell)
        except (TableCorrupt, ValueError) as error:  # what was begun there is of no use: the next one begins anew
            shutil.rmtree(building, ignore_errors=True)
            raise TableCorrupt(f"{building}: {error}") from error

    def _placed(self, building: Path, made: Manifest, first: int, last: int) -> Segment:
        """Give a segment that is whole its name."""
        name = f"{SEGMENT}{first}-{last}-{made.generation[:8]}"
        target = self.directory / name
        if target.exists():  # of a move that came to nothing
            if manifests.read(target).generation != made.generation:
                raise TableMismatch(f"{target} is not what its name says: remove it")
            os.utime(target)
            shutil.rmtree(building)
        else:
            move_whole(building, target)
        return Segment(name, made.generation, first, last, made.fingerprints + (made.digests or 0))
