"""What an input is, and the slices that it is read by: one task's share each. Only names and sizes; nothing is read.

pages        JSONL, WARC, HTML: every slice reads the whole file and keeps every n-th run of its records, since a
             compressed file can only be read from its start, and reading costs a thirtieth of fingerprinting
verdicts     JSONL of verdicts: a range of bytes, if it is not compressed
parquet      pages or signatures: a range of row groups
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from simhash.archive.format.manifest import NAME as TABLES
from worker.batch.archive_records import Archive
from worker.batch.request import ANNOTATED_STEM, VERDICTS_PARQUET
from worker.compression import compression_of
from worker.errors import InputError
from worker.files.inputs import HTML_SUFFIXES, PARQUET, WARC_SUFFIXES, files_in, open_input
from worker.files.locations import is_remote
from worker.lines import opened
from worker.records.page import CONTENTS

Kind = Literal["pages", "verdicts", "parquet", "tables"]

MAX_SHARES = 8
"""Slices of one file of pages: beyond these, reading it so many times over would cost more than it spreads."""
SLICE_BYTES = 64 << 20
"""Of a file of verdicts, a slice."""
SLICE_ROWS = 1 << 20
"""Of a Parquet file, a slice has at least so many rows if there are, in whole row groups."""
LONGEST_FIRST_LINE = 1 << 20
SLICE_BLOCKS = 1 << 12
"""Of compressed tables, a slice: a quarter of a million records."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """One file, or one directory of HTML or of tables, and its place among all inputs of its side; named as given."""

    number: int
    name: str
    kind: Kind
    directory: Path = Path()

    @property
    def path(self) -> Path:
        """Where every machine finds it."""
        return self.directory / self.name


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a source: share `first` of `last` (pages), or bytes, row groups or blocks from `first` to `last`."""

    source: BatchInput
    first: int
    last: int


def sources(names: Sequence[str]) -> list[BatchInput]:
    """The sources that the names mean, in order; a directory of files is each of its files, by name.

    Raises:
        InputError: there is no such file, or it is of no kind that is known.
    """
    found = [(name, kind) for given in names for name, kind in _sources(given)]
    _refuse_repeated([name for name, _ in found])
    here = Path.cwd()  # a task may run in another
    return [BatchInput(number, name, kind, here) for number, (name, kind) in enumerate(found)]


def _refuse_repeated(names: Sequence[str]) -> None:
    """Directly or in a directory: the second reading of a page would be a replay of the first."""
    paths = [Path(name).resolve() for name in names]
    counts = Counter(paths)
    for name, path in zip(names, paths, strict=True):
        if counts[path] > 1 or any(parent in counts for parent in path.parents):
            raise InputError(f"{name} is given twice: the second reading would be a replay of the first")


def _sources(name: str) -> Iterator[tuple[str, Kind]]:
    path = Path(name)
    if name == "-":
        raise InputError("-: a batch reads files, each of them more than once; for standard input there is `file`")
    if is_remote(name):
        raise InputError(f"{name}: a batch reads paths that all its machines see (a mount); `file` reads addresses")
    if (path / TABLES).is_file():
        yield name, "tables"
    elif path.is_dir() and (files := [file for file in files_in(path) if not _repeats_verdicts(file)]):
        for file in files:
            yield from _sources(str(file))
    elif path.suffix.lower() == PARQUET and path.is_file():
        yield name, "parquet"
    else:
        open_input(name, largest_page=1, spool=False)  # says what is wrong with it
        yield name, "verdicts" if _holds_verdicts(path) else "pages"


def _repeats_verdicts(path: Path) -> bool:
    """Whether these are the annotated pages of a batch whose verdicts lie beside them: duplicates are among them."""
    return path.stem == ANNOTATED_STEM and path.with_name(VERDICTS_PARQUET).is_file()


def _holds_verdicts(path: Path) -> bool:
    """Whether the first line of a file is a verdict.

    Raises:
        InputError: it cannot be read; or holds a fingerprint and is neither a verdict nor a page.
    """
    if path.is_dir() or path.name.lower().endswith((*HTML_SUFFIXES, *WARC_SUFFIXES)):
        return False
    with opened(path) as content:
        line = content.readline(LONGEST_FIRST_LINE).removeprefix(BOM_UTF8)
    try:
        first = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    names = first.keys() if isinstance(first, dict) else set()
    if "fingerprint" in names and not names & {"verdict", *CONTENTS}:
        raise InputError(f"{path}: fingerprints as lines of JSON are not read: write them as Parquet, or as verdicts")
    return {"verdict", "observation", "fingerprint"} <= names


def is_compressed(path: Path) -> bool:
    """Whether a file begins as gzip or Zstandard does."""
    with path.open("rb") as file:
        return compression_of(file) != ""


def slices(found: Sequence[BatchInput], tasks: int) -> list[Slice]:
    """The slices of all sources, in order.

    Args:
        tasks: how many can run at once: so many slices at least, where that can be.

    Raises:
        InputError: a Parquet file's footer cannot be read.
    """
    wanted = -(-tasks // max(1, len(found)))
    return [part for source in found for part in _slices(source, wanted)]


def _slices(source: BatchInput, wanted: int) -> Iterator[Slice]:
    path = source.path
    if source.kind == "parquet":
        yield from (Slice(source, low, high) for low, high in _row_groups(path, wanted))
    elif source.kind == "tables":
        blocks = Archive(path).blocks
        step = max(1, min(SLICE_BLOCKS, -(-blocks // wanted)))
        yield from (Slice(source, low, min(blocks, low + step)) for low in range(0, blocks, step))
    elif source.kind == "verdicts" and not is_compressed(path):
        size = path.stat().st_size
        step = max(1, min(SLICE_BYTES, -(-size // wanted)))
        yield from (Slice(source, low, min(size, low + step)) for low in range(0, size, step))
    else:
        shares = 1 if source.kind == "verdicts" else min(MAX_SHARES, wanted)
        yield from (Slice(source, share, shares) for share in range(shares))


def _row_groups(path: Path, wanted: int) -> Iterator[tuple[int, int]]:
    metadata = footer(path)
    enough = min(SLICE_ROWS, -(-metadata.num_rows // wanted))
    low = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= enough or group == metadata.num_row_groups - 1:
            yield low, group + 1
            low, rows = group + 1, 0


def footer(path: Path) -> pq.FileMetaData:
    """A Parquet file's footer.

    Raises:
        InputError: it is none.
    """
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: {error}") from error
