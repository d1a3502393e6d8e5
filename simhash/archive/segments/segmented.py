"""An archive of segments, opened to be asked: one answer over all of them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from simhash.archive.format import keys as arrays
from simhash.archive.format.record_file import Body, read_run, write_run
from simhash.archive.lookup.opened import TableSet, matches
from simhash.archive.segments import contents as moments
from simhash.archive.segments.contents import Contents, Segment
from simhash.errors import TableMismatch
from simhash.index.interface import Entry, Neighbour, Record

NONE: Mapping[str, TableSet] = {}


class SegmentedArchive:
    """An archive at one moment. Any number of threads may ask it.

    Args:
        directory: where it lies.
        opened: segments that are open already, by their names: they are used again.

    Raises:
        TableMismatch: a segment is not what the contents say.
        TableCorrupt: a file is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, directory: Path, contents: Contents, opened: Mapping[str, TableSet] = NONE) -> None:
        self.directory = directory
        self.contents = contents
        self._gone = frozenset(contents.gone)
        self._sets = {each.name: opened.get(each.name) or _opened(directory, each) for each in contents.segments}

    @property
    def sets(self) -> list[TableSet]:
        """The segments, oldest first."""
        return list(self._sets.values())

    def at(self, generation: str, again: bool = False) -> SegmentedArchive:
        """The archive at another moment; segments of both are opened once.

        Args:
            again: open all files anew.

        Raises:
            TableFault, OSError: as above.
        """
        opened = NONE if again else self._sets
        return SegmentedArchive(self.directory, moments.read(self.directory, generation), opened)

    def matches(self, entries: Sequence[Entry]) -> list[list[tuple[int, Record]]]:
        """See `TableSet.matches`."""
        found: list[list[tuple[int, Record]]] = [[] for _ in entries]
        for of_segment in matches(self.sets, entries):  # ascending in their numbers, and so is what they find
            for all_found, some in zip(found, of_segment, strict=True):
                all_found += [match for match in some if match[1].seq not in self._gone]
        return found

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `TableSet.neighbours`."""
        found = [near for tables in self.sets for near in tables.neighbours(fingerprint) if self._is_here(near.record)]
        return sorted(found, key=lambda near: (near.distance, near.record.seq))

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Record]:
        """The records under a fingerprint, or under a digest where there is none, that have one of these URLs."""
        return [record for record in self._under(fingerprint, digest) if record.url in urls and self._is_here(record)]

    def _under(self, fingerprint: int | None, digest: str) -> Iterator[Record]:
        for tables in self.sets:
            if fingerprint is None:
                page = Entry(b"", None, None, None, digest, "")
                yield from (record for _, record in tables.matches([page])[0])
            else:
                key = arrays.from_ints([fingerprint], tables.relation.design.bits)
                yield from tables.records(key)[0]

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """Every record with its fingerprint (None: digest only), segment by segment."""
        for tables in self.sets:
            yield from ((fingerprint, record) for fingerprint, record in tables.scan() if self._is_here(record))

    def by_number(self, first: int, last: int) -> Iterator[tuple[int | None, Record]]:
        """Every record from number `first` to number `last`, in the order of numbers; see the function."""
        for segment, tables in zip(self.contents.segments, self.sets, strict=True):
            if first <= segment.last and segment.first <= last:
                yield from (
                    each for each in by_number(tables) if first <= each[1].seq <= last and self._is_here(each[1])
                )

    def _is_here(self, record: Record) -> bool:
        return record.seq not in self._gone

    def __len__(self) -> int:
        return self.contents.pages


def _opened(directory: Path, segment: Segment) -> TableSet:
    tables = TableSet(directory / segment.name)
    if tables.generation != segment.generation:
        raise TableMismatch(f"{tables.directory} has generation {tables.generation}, not {segment.generation}")
    return tables


# By number ------------------------------------------------------------------------------------------------------------
#
# The records of a set of tables lie by fingerprint; they are sorted on disk.

RUN_RECORDS = 250_000
"""Records sorted in memory at a time, about 100 MB; 100 million are 400 files, which are open together."""
SEQ_BITS = 64
_FINGERPRINT, _DIGEST = b"f", b"d"


def by_number(tables: TableSet) -> Iterator[tuple[int | None, Record]]:
    """Every record with its fingerprint (None: digest only), the lowest seq first.

    Takes as much of the directory for temporary files as the records are large, uncompressed.

    Raises:
        TableFault: see `TableSet.scan`.
        OSError: no room for the files.
    """
    coming = (_numbered(has_fingerprint, each) for has_fingerprint, each in tables.bodies())
    some = list(islice(coming, RUN_RECORDS))
    if len(some) < RUN_RECORDS:
        yield from (_restored(tables, each) for each in sorted(some))
        return
    with TemporaryDirectory(prefix="simhash-dedup-") as place:
        runs: list[Path] = []
        while some:
            runs.append(Path(place) / f"run-{len(runs)}")
            write_run(runs[-1], some)
            some = list(islice(coming, RUN_RECORDS))
        yield from (_restored(tables, each) for each in heapq.merge(*(read_run(run, SEQ_BITS) for run in runs)))


def _numbered(has_fingerprint: bool, each: Body) -> Body:
    """A body under its number, with its kind and key before it."""
    kind = _FINGERPRINT if has_fingerprint else _DIGEST
    return Body(each.body[: SEQ_BITS // 8], kind + bytes([len(each.key)]) + each.key + each.body)


def _restored(tables: TableSet, each: Body) -> tuple[int | None, Record]:
    size = each.body[1]
    return tables.stored(each.body[:1] == _FINGERPRINT, Body(each.body[2 : 2 + size], each.body[2 + size :]))
