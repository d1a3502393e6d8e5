"""The archive of earlier crawls as a base of the index: compressed tables in a directory, watched for newer ones.

New tables are picked up while the worker runs: build them elsewhere, then let the directory's name (a symbolic link)
point at them. Nothing is read from a directory that is being written: its manifest comes last.

Tables that were opened stay open, so a directory that is removed or renamed is told in the log and no more. Tables that
cannot be read any more (damaged, cut off, a disk that fails) are to the worker as an index that cannot be reached:
nothing is judged until they, or others, can be read again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from simhash.archive import TableSet
from simhash.errors import IndexMismatch, IndexUnreachable, TableFault, TableMismatch
from simhash.index import Duplicate, Entry, Record, Relation, Unique
from simhash.index.interface import STORED_BYTES

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often it is looked for newer tables."""
MANIFEST = "manifest.json"


class TableBase:
    """See `simhash.index.base.Base`.

    Args:
        place: the directory.
        profile, relation: those of the index. The tables must have the same, but for the permutation design: which
            pairs beyond k are found depends on that of the tables.

    Raises:
        TableFault: there are no tables, or they cannot be read.
        IndexMismatch: they are of another profile or relation, or know no pages but fingerprints alone.
    """

    def __init__(self, place: Path, profile: Mapping[str, object], relation: Relation) -> None:
        self._directory = place
        self._profile = profile
        self._relation = relation
        self._stamp = _stamp(place)
        self._tables = TableSet(place.resolve())
        self._looked_at = time.monotonic()
        self._is_broken = False
        self._told = ""
        refuse_differences(self._tables, profile, relation)

    @property
    def place(self) -> str:
        """The directory."""
        return str(self._directory)

    @property
    def generation(self) -> str:
        """That of the tables."""
        return self._tables.generation

    @property
    def archived(self) -> None:
        """These are pages of other crawls."""
        return None

    def decisions(self, entries: Sequence[Entry]) -> list[Unique | Duplicate | None]:
        """See `Base.decisions`.

        Raises:
            IndexUnreachable: the tables cannot be read.
        """
        try:
            if self._is_broken:
                self._open_again()
            matches = self._tables.matches(entries)
        except (TableFault, OSError) as error:
            self._is_broken = True
            raise IndexUnreachable(f"base {self.place} cannot be read: {error}") from error
        return [decision(entry, found) for entry, found in zip(entries, matches, strict=True)]

    def _open_again(self) -> None:
        """Open what lies there now, if it is the same set, mended."""
        tables = TableSet(self._directory.resolve())
        if tables.generation != self.generation:
            raise TableMismatch(f"it has generation {tables.generation}, the index is judged beside {self.generation}")
        self._tables, self._is_broken = tables, False

    def renewed(self) -> Self | None:
        """See `Base.renewed`; tables that cannot be used are told in the log and passed over."""
        if time.monotonic() < self._looked_at + LOOK_SECONDS:
            return None
        self._looked_at = time.monotonic()
        stamp = _stamp(self._directory)
        if stamp is None:
            self._tell(
                f"there are no tables in {self.place} any more; those that are open, {self.generation}, stay in use"
            )
        if stamp in (None, self._stamp):
            return None
        try:
            newer = type(self)(self._directory, self._profile, self._relation)
        except (TableFault, IndexMismatch, OSError) as error:
            self._tell(f"the new base cannot be used: {error}")
            return None
        self._told = ""
        if newer.generation == self.generation:
            self._stamp = stamp
            return None
        log.info("a new base lies in %s: %s pages, generation %s", self.place, f"{len(newer):,}", newer.generation)
        return newer

    def at(self, generation: str) -> Self:
        """See `Base.at`."""
        here = self.renewed() or self
        if here.generation != generation:
            raise IndexUnreachable(
                f"the index is judged beside base {generation} now; {self.place} holds {here.generation}: "
                "waiting for it. If no worker has that base any more, announce what lies here: "
                f"simhash-dedup index base {self.place}"
            )
        return here

    def _tell(self, what: str) -> None:
        """Warn of something once, as long as it stays the same."""
        if what != self._told:
            log.warning("%s", what)
            self._told = what

    def __len__(self) -> int:
        return len(self._tables)


def decision(entry: Entry, matches: Sequence[tuple[int, Record]]) -> Unique | Duplicate | None:
    """By the rules of judging: itself first, then the oldest that it matches."""
    observation = entry.observation[:STORED_BYTES]
    own = next((record for _, record in matches if record.observation[:STORED_BYTES] == observation), None)
    if own is not None:
        return Unique(own.seq)
    return Duplicate(*matches[0]) if matches else None


def _stamp(place: Path) -> tuple[int, int, int] | None:
    """What changes when other tables come; None: there are none."""
    try:
        found = os.stat(place / MANIFEST)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def refuse_differences(tables: TableSet, profile: Mapping[str, object], relation: Relation) -> None:
    """Raise IndexMismatch unless pages can be held against these tables as against an index of this make."""
    if not tables.has_records:
        raise IndexMismatch(
            f"base {tables.directory} holds fingerprints alone: nobody knows whose they are. A base has records: build"
            " it from verdicts or from an index's export"
        )
    own = tables.relation
    differing = [
        name
        for name in ("reach", "verifier_reach", "verifier_bits", "bands")
        if getattr(own, name) != getattr(relation, name)
    ]
    if tables.profile != msgspec.json.decode(msgspec.json.encode(profile)):
        differing.append("profile")
    if own.design.bits != relation.design.bits or own.design.k < relation.design.k:
        differing.append("design (its k is smaller)")
    if differing:
        raise IndexMismatch(f"base {tables.directory} was made with another {', '.join(differing)} than the index")
