"""What an archive holds at one moment: its segments, up to which number, and what was taken down. One file each.

    <archive>/contents-<generation>.json     a moment: written once, never changed
    <archive>/segment-<first>-<last>-<id>/   a set of tables: the records of these numbers
    <archive>/building-…/                    a segment that is being made

The files do not say which moment is the present one: the index does, which names a generation. So two programs that
write at the same time spoil nothing: both files are there, and the index moves to one of them. A moment that is past
stays for a while, and all its segments with it: a Redis that lost its last seconds names it again. Moments of another
index, whose archive was begun here by mistake, are told by their lineage and left alone.

Segments hold ascending, disjoint stretches of numbers. All records with a number up to `archived` lie in them, but for
those that were taken down. The number of one that was taken down after it had come here stands in `gone`: lookups pass
over it, and the next merge leaves it out.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import xxhash

from simhash.archive.format.container import PARTIAL
from simhash.archive.format.durable import whole
from simhash.errors import TableCorrupt, TableFault, TableMismatch

FORMAT = 1
_START, _END = "contents-", ".json"
SEGMENT, BUILDING = "segment-", "building-"


class Segment(msgspec.Struct, frozen=True):
    """A set of tables of the archive.

    Attributes:
        name: its directory.
        generation: of its tables.
        first, last: the numbers that it holds lie between, inclusive; none of another segment does.
        pages: how many records it holds, those in `gone` included.
    """

    name: str
    generation: str
    first: int
    last: int
    pages: int


class Contents(msgspec.Struct, frozen=True):
    """See the module.

    Attributes:
        number: how many moments came before.
        archived: all records with a number up to this one lie here.
        segments: ascending.
        gone: ascending.
        lineage: a word that all moments of one archive have; none in archives that were begun before there was one.
    """

    format: int = FORMAT
    number: int = 0
    archived: int = 0
    segments: tuple[Segment, ...] = ()
    gone: tuple[int, ...] = ()
    lineage: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def generation(self) -> str:
        """Names it: 32 hex digits."""
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(self))

    @property
    def pages(self) -> int:
        """How many records are found; fewer by those of `gone` that were taken down before they could come here."""
        return max(0, sum(segment.pages for segment in self.segments) - len(self.gone))

    def with_segment(self, segment: Segment | None, archived: int, gone: Iterable[int]) -> Contents:
        """The next moment: the records up to number `archived` have come, of which some are gone already."""
        segments = self.segments if segment is None else (*self.segments, segment)
        return self._next(archived, segments, {*self.gone, *gone})

    def merged(self, old: Iterable[Segment], new: Segment | None, left_out: Iterable[int]) -> Contents | None:
        """The next moment: one segment (None: nothing was left) in place of neighbours, without those numbers.

        None: they are not all here any more.
        """
        names = {segment.name for segment in old}
        at = [place for place, segment in enumerate(self.segments) if segment.name in names]
        if len(at) < len(names):
            return None
        segments = (*self.segments[: at[0]], *([new] if new else []), *self.segments[at[-1] + 1 :])
        return self._next(self.archived, segments, {*self.gone} - {*left_out})

    def without(self, numbers: Iterable[int]) -> Contents | None:
        """The next moment: these were taken down. None: none of them is here."""
        here = {n for n in numbers if any(each.first <= n <= each.last for each in self.segments)}
        return self._next(self.archived, self.segments, {*self.gone, *here}) if here - {*self.gone} else None

    def _next(self, archived: int, segments: tuple[Segment, ...], gone: set[int]) -> Contents:
        return Contents(FORMAT, self.number + 1, archived, segments, tuple(sorted(gone)), self.lineage)


def first() -> Contents:
    """The first moment of an archive, which holds nothing."""
    return Contents(lineage=secrets.token_hex(8))


def path_of(directory: Path, generation: str) -> Path:
    """The file of a moment."""
    return directory / f"{_START}{generation}{_END}"


def write(directory: Path, contents: Contents) -> None:
    """Keep a moment. Its segments are there."""
    with whole(path_of(directory, contents.generation)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(contents)) + b"\n")


def touch(directory: Path, contents: Contents) -> None:
    """This moment is about to be past: from now on it stays for as long as `sweep` lets it."""
    with suppress(FileNotFoundError):
        os.utime(path_of(directory, contents.generation))


def read(directory: Path, generation: str) -> Contents:
    """The moment of that generation.

    Raises:
        TableMismatch: it does not lie here.
        TableCorrupt: its file is damaged.
    """
    path = path_of(directory, generation)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Contents)
    except FileNotFoundError as error:
        raise TableMismatch(f"{directory} holds no archive of generation {generation}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TableCorrupt(f"{path} is damaged: {error}") from error
    if found.format != FORMAT:
        raise TableMismatch(f"{path} has format {found.format}, {FORMAT} can be read here")
    if found.generation != generation:
        raise TableCorrupt(f"{path} is damaged: it does not say what its name is the digest of")
    return found


def newest(directory: Path) -> Contents | None:
    """The moment that was written last of those that hold something; None: there is none.

    Which one is the present one the index says; this is for an index that is made afresh.

    Raises:
        TableFault: a file cannot be used.
        TableMismatch: there are those of several indexes.
    """
    found = [(each, path) for path in _paths(directory) if (each := read(directory, _generation(path))).archived]
    if not found:
        return None
    if (several := len({each.lineage for each, _ in found})) > 1:
        raise TableMismatch(f"{directory} holds the archives of {several} indexes, and does not say which is whose")
    return max(found, key=lambda each: (each[0].number, each[1].stat().st_mtime_ns))[0]


def is_shared(directory: Path, contents: Contents) -> bool:
    """Whether another index than that of `contents` keeps its archive here too."""
    others = (path for path in _paths(directory) if not _is_of(contents, path))
    return any(read(directory, _generation(path)).archived for path in others)


def _is_of(contents: Contents, path: Path) -> bool:
    """Whether a moment is of the same archive; one that is damaged may be taken for that, for nobody can use it."""
    try:
        return read(path.parent, _generation(path)).lineage == contents.lineage
    except TableFault:
        return True


def _generation(path: Path) -> str:
    return path.name[len(_START) : -len(_END)]


def _paths(directory: Path) -> Iterator[Path]:
    return directory.glob(f"{_START}*{_END}")


def sweep(directory: Path, present: Contents, before: float) -> list[str]:
    """Remove what nobody needs: moments but the present one, damaged ones too, that were touched last before that time
    (as files have it), and what no moment that is left names. Returns the names of what was removed."""
    past = [path for path in _paths(directory) if path != path_of(directory, present.generation)]
    over = [path for path in past if _older(path, before) and _is_of(present, path)]
    for path in over:
        path.unlink(missing_ok=True)
    kept = [read(directory, _generation(path)) for path in _paths(directory)]
    used = {segment.name for contents in kept for segment in contents.segments}
    unused = [
        path
        for start in (SEGMENT, BUILDING)
        for path in directory.glob(f"{start}*")
        if path.name not in used and _older(path, before)
    ]
    for path in unused:
        shutil.rmtree(path, ignore_errors=True)
    torn = [path for path in directory.glob(f"{_START}*{_END}{PARTIAL}") if _older(path, before)]
    for path in torn:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in (*over, *unused, *torn))


def _older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False


# Levels ---------------------------------------------------------------------------------------------------------------
#
# Segments are merged as in log-structured merge trees: one of n pages is of level log4(n), and four of one level become
# one of the next. So an archive of n pages that come m at a time has at most three segments for each of log4(n / m)
# levels, and each page is written once a level. O'Neil, Cheng, Gawlick, O'Neil: The log-structured merge-tree (Acta
# Informatica 33, 1996); tiered as in Cassandra.

FANOUT = 4
"""Fewer would be asked faster and written oftener: with 2, twice as often."""


def to_merge(pages: Sequence[int]) -> slice | None:
    """Which neighbours become one; None: none need to.

    Args:
        pages: of each segment, oldest first. Younger ones are smaller, as a rule.
    """
    levels = [_level(count) for count in pages]
    for level in sorted(set(levels)):
        start = len(levels)
        while start and levels[start - 1] <= level:
            start -= 1
        if levels[start:].count(level) >= FANOUT:
            return slice(start, len(levels))
    return None


def _level(pages: int) -> int:
    return (max(pages, 1).bit_length() - 1) // 2
