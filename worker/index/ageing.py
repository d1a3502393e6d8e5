"""The index's own archive, into which its oldest pages go, as the base beside which it is judged.

Which moment of the archive is the present one, the index says: whoever has another one is refused by the script, looks
at what the index names, and opens that. Segments that both have stay open. So nothing is looked for on the disk while
pages are judged, and a file that is removed while it is in use stays in use.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from simhash.archive.segments import contents as moments
from simhash.archive.segments.contents import Contents
from simhash.archive.segments.segmented import SegmentedArchive
from simhash.errors import IndexMismatch, IndexUnreachable, TableFault
from simhash.index import Duplicate, Entry, Relation, Unique
from worker.index.archive import decision, refuse_differences

log = logging.getLogger(__name__)


class ArchiveBase:
    """See `simhash.index.base.Base`.

    Args:
        archive: at the moment that the index names.
        profile, relation: those of the index.

    Raises:
        IndexMismatch: a segment is of another profile or relation.
    """

    def __init__(self, archive: SegmentedArchive, profile: Mapping[str, object], relation: Relation) -> None:
        self._archive = archive
        self._profile = profile
        self._relation = relation
        self._is_broken = False
        for tables in archive.sets:
            refuse_differences(tables, profile, relation)

    @property
    def place(self) -> str:
        """The directory."""
        return str(self._archive.directory)

    @property
    def generation(self) -> str:
        """That of the moment."""
        return self._archive.contents.generation

    @property
    def archived(self) -> int:
        """See `Base.archived`."""
        return self._archive.contents.archived

    def decisions(self, entries: Sequence[Entry]) -> list[Unique | Duplicate | None]:
        """See `Base.decisions`.

        Raises:
            IndexUnreachable: a segment cannot be read.
        """
        try:
            matches = self._archive.matches(entries)
        except (TableFault, OSError) as error:
            self._is_broken = True
            raise IndexUnreachable(f"archive {self.place} cannot be read: {error}") from error
        return [decision(entry, found) for entry, found in zip(entries, matches, strict=True)]

    def renewed(self) -> None:
        """The index says when there is another one: the script refuses whoever has not that."""
        return

    def at(self, generation: str) -> Self:
        """See `Base.at`."""
        try:
            archive = self._archive.at(generation, again=self._is_broken)
        except (TableFault, OSError) as error:
            raise IndexUnreachable(f"archive {self.place}: {error}") from error
        pages, segments = len(archive), len(archive.sets)
        log.info("archive %s: %s pages in %d segments, generation %s", self.place, f"{pages:,}", segments, generation)
        return type(self)(archive, self._profile, self._relation)


def begin(directory: Path) -> Contents:
    """The first moment of an archive, which holds nothing: of an index that has none yet.

    Raises:
        IndexMismatch: there is an archive already, of an index that was lost, or is another one.
    """
    if there := moments.newest(directory):
        raise IndexMismatch(
            f"{directory} holds an archive up to number {there.archived:,}, but the index knows nothing of it: Redis "
            "was emptied, or it is another index's. Make the index again (simhash-dedup rebuild), or if it is to begin "
            f"behind these pages, stop all workers and announce it: simhash-dedup index base {directory}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    empty = moments.first()
    moments.write(directory, empty)
    return empty
