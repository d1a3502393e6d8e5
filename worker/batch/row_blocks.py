"""Slices read as blocks of columns; runs in the tasks.

A block has its rows' places at hand and reads other columns when they are asked for: of an archive in Parquet the
fingerprints are read whole and the URLs only where something matched.
"""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from worker import compression
from worker.batch.archive_records import OF_A_BARE_SET, OF_A_RECORD, Archive
from worker.batch.columns import PAGES, Row, place, row_of_verdict, table_of
from worker.batch.made import NEEDED, Made
from worker.batch.preference import COLUMN, number_in, number_in_text, number_of
from worker.batch.signing import Signing, signed_pages
from worker.batch.slices import BatchInput, Slice, footer, is_compressed
from worker.compression import decompressed
from worker.errors import InputError
from worker.files.inputs import CSV_SUFFIXES, open_input
from worker.files.parquet import pages_in_parquet, rows_before, topic_of_footer, without_views
from worker.lines import next_line
from worker.records.page import CONTENTS
from worker.records.passing import RawRecord
from worker.records.verdict import Verdict, decode_told

Rows = NDArray[np.int64]
"""Numbers of rows within a block, shape (n,)."""

VERDICT_ROWS = 1 << 14
"""Lines of verdicts in a block."""
ARCHIVE_BLOCKS = 256
"""Blocks of compressed tables read at once: of 64 records or 512 fingerprints each."""
OF_A_PAGE = frozenset(PAGES.names) - {"seq"}
OF_A_VERDICT = frozenset(PAGES.names)


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a slice.

    Attributes:
        at: their places, ascending, shape (n,).
        names: the columns that the input itself has; others are made up, or null.
        read: reads columns of `PAGES` by name, of these rows, ascending, or of all.
    """

    at: NDArray[np.int64]
    names: frozenset[str]
    read: Callable[[Sequence[str], Rows | None], pa.Table]

    def columns(self, names: Sequence[str], rows: Rows | None = None) -> pa.Table:
        """Some columns."""
        return self.read(names, rows)


@dataclass
class Counted:
    """What a task tells of the slice that it read."""

    rows: int = 0
    skipped: int = 0


def blocks(part: Slice, signing: Signing, counted: Counted) -> Iterator[RowBlock]:
    """All rows of a slice.

    Raises:
        InputError: it cannot be read to its end.
    """
    with _reading(part.source):
        for block in _blocks(part, signing, counted):
            counted.rows += len(block.at)
            yield block


def _blocks(part: Slice, signing: Signing, counted: Counted) -> Iterator[RowBlock]:
    if part.source.kind == "verdicts":
        return _verdicts(part, signing)
    if part.source.kind == "tables":
        return _tables(part, signing)
    if part.source.kind == "parquet":
        names = set(footer(part.source.path).schema.to_arrow_schema().names)
        if "fingerprint" in names:
            return _signatures(part, signing)
        if "url" in names and names & set(CONTENTS):
            return _pages_in_parquet(part, signing)
        raise InputError(f"has neither a column fingerprint nor url with one of {', '.join(CONTENTS)}")
    return _pages(part, signing, counted)


@contextmanager
def _reading(source: BatchInput) -> Iterator[None]:
    """Say of which input a read failed."""
    try:
        yield
    except (*compression.ERRORS, pa.ArrowException, InputError) as error:
        text = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{source.name}: {text.removeprefix(f'{source.path}: ')}") from error


def _whole(table: pa.Table, names: frozenset[str]) -> RowBlock:
    def read(wanted: Sequence[str], rows: Rows | None) -> pa.Table:
        found = table.select(wanted)
        return found if rows is None else found.take(pa.array(rows))

    return RowBlock(np.asarray(table["at"].to_numpy(), np.int64), names, read)


def _check_profile(given: object, label: str) -> None:
    """Fingerprints of two recipes cannot be compared."""
    if given != label:
        raise InputError(
            f"holds signatures of profile {given}, and this batch compares those of {label}: give --profile"
        )


def _tables(part: Slice, signing: Signing) -> Iterator[RowBlock]:
    archive = Archive(part.source.path)
    _check_profile(archive.profile or signing.label, signing.label)
    number = part.source.number
    for low in range(part.first, part.last, ARCHIVE_BLOCKS):
        high = min(part.last, low + ARCHIVE_BLOCKS)
        if archive.is_bare:
            made = archive.fingerprints(number, low, high)
            yield RowBlock(made.at, OF_A_BARE_SET, partial(_columns_of, made))
        else:
            yield _whole(archive.records(number, low, high), OF_A_RECORD)


def _columns_of(made: Made, names: Sequence[str], rows: Rows | None) -> pa.Table:
    return (made if rows is None else made.take(rows)).columns(names)


# Pages -----------------------------------------------------------------------------------------------------------


def _pages(part: Slice, signing: Signing, counted: Counted) -> Iterator[RowBlock]:
    path, is_table = str(part.source.path), part.source.name.lower().endswith(CSV_SUFFIXES)
    opened = open_input(path, signing.recipe.limits.page, spool=False, keep=is_table and signing.field is not None)
    number = _number_in_row(opened.columns, signing.field) if is_table else _number_in_line(signing.field)
    own = (
        (position, record._replace(whole=None), number(record))
        if isinstance(record, RawRecord)
        else (position, record, None)
        for position, record in enumerate(opened.records())
        if position // signing.run_records % part.last == part.first
    )
    for table in signed_pages(part.source, own, signing):
        yield _whole(table, OF_A_PAGE)
    counted.skipped = opened.skipped if part.first == 0 else 0


def _number_in_line(field: str | None) -> Callable[[RawRecord], float | None]:
    return lambda record: number_in(record.value, field)


def _number_in_row(columns: Sequence[str], field: str | None) -> Callable[[RawRecord], float | None]:
    if field is None or field not in columns:
        return lambda _: None
    column = columns.index(field)
    return lambda record: number_in_text(record.whole[column])


def _pages_in_parquet(part: Slice, signing: Signing) -> Iterator[RowBlock]:
    path, groups = part.source.path, range(part.first, part.last)
    preferred = zip(pages_in_parquet(path, groups), _preferences(path, groups, signing.field), strict=False)
    for table in signed_pages(part.source, ((*page, preference) for page, preference in preferred), signing):
        yield _whole(table, OF_A_PAGE)


def _preferences(path: Path, groups: Sequence[int], field: str | None) -> Iterator[float | None]:
    """The numbers in a column of these row groups, row by row; None for ever where there is no such column."""
    with pq.ParquetFile(path) as file:
        if field not in file.schema_arrow.names:
            yield from repeat(None)
        for batch in file.iter_batches(columns=[field], row_groups=groups):
            yield from map(number_of, batch.column(0).to_pylist())


# Verdicts --------------------------------------------------------------------------------------------------------


def _verdicts(part: Slice, signing: Signing) -> Iterator[RowBlock]:
    """Verdicts of a range of bytes, or of a whole compressed file; their place is where their line begins."""
    path = part.source.path
    with path.open("rb", buffering=0) as file, decompressed(file) as content:
        first, last = (0, sys.maxsize) if is_compressed(path) else (part.first, part.last)
        lines = _lines_in(content, first, last)
        while batch := list(islice(lines, VERDICT_ROWS)):
            number = part.source.number
            yield _whole(
                table_of([_row(place(number, offset), offset, line, signing) for offset, line in batch]), OF_A_VERDICT
            )


def _row(at: int, offset: int, line: bytes, signing: Signing) -> Row:
    told = row_of_verdict(at, _verdict(line, offset, signing.label))
    return {**told, COLUMN: number_in(line, signing.field)}


def _verdict(line: bytes, offset: int, label: str) -> Verdict:
    try:
        verdict = decode_told(line)
        _check_profile(verdict.profile, label)
        return verdict
    except msgspec.DecodeError as error:
        raise InputError(f"the line at byte {offset:,} is no verdict: {error}") from error


def _lines_in(content: IO[bytes], first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin from `first` on and before `last`."""
    offset = max(0, first - 1)
    if first:
        content.seek(offset)
        offset += len(next_line(content))  # ends with the byte before `first`, or belongs to the range before
    while offset < last and (line := next_line(content)):
        if line.strip():
            yield offset, line if offset else line.removeprefix(BOM_UTF8)
        offset += len(line)


# Signatures in Parquet -------------------------------------------------------------------------------------------


def _signatures(part: Slice, signing: Signing) -> Iterator[RowBlock]:
    file = pq.ParquetFile(part.source.path)
    topic = topic_of_footer(part.source.path)
    position = rows_before(file, part.first)
    names = frozenset(file.schema_arrow.names)
    if doubled := sorted(name for name in names & {*PAGES.names} if file.schema_arrow.names.count(name) > 1):
        raise InputError(f"has more than one column {doubled[0]}")
    for group in range(part.first, part.last):
        offsets = np.arange(position, position + file.metadata.row_group(group).num_rows)
        at = offsets + place(part.source.number, 0)
        if "profile" in names:
            for profile in pc.unique(_read(file, group, ["profile"])["profile"]).to_pylist():
                _check_profile(profile, signing.label)
        made_up = names if _all_have_fingerprints(file, group) else names | {"rejection"}
        yield RowBlock(at, made_up, _RowGroup(part.source, file, group, at, offsets, topic, signing.field))
        position += len(at)


def _read(file: pq.ParquetFile, group: int, names: Sequence[str | None]) -> pa.Table:
    return without_views(file.read_row_group(group, names))


def _all_have_fingerprints(file: pq.ParquetFile, group: int) -> bool:
    """Whether the footer says so."""
    metadata = file.metadata.row_group(group)
    said = [metadata.column(number) for number in range(metadata.num_columns)]
    known = [each.statistics for each in said if each.path_in_schema == "fingerprint" and each.statistics]
    return bool(known) and all(each.has_null_count and not each.null_count for each in known)


@dataclass(frozen=True)
class _RowGroup:
    """Reads columns of one row group; what the file has not is made up for the rows asked for."""

    source: BatchInput
    file: pq.ParquetFile
    group: int
    at: Rows
    offsets: Rows
    topic: str
    field: str | None

    def __call__(self, names: Sequence[str], rows: Rows | None) -> pa.Table:
        known = set(self.file.schema_arrow.names)
        wanted = {*names, *NEEDED} if {*names} - known or "digest" in names else {*names}
        with _reading(self.source):
            read = _read(self.file, self.group, sorted(wanted & known))
            if COLUMN in names and self.field in known:
                read = self._preferred(read.drop_columns([COLUMN]) if COLUMN in known else read)
            return _columns_of(Made(read, self.at, self.offsets, self.topic, self.source.name), names, rows)

    def _preferred(self, read: pa.Table) -> pa.Table:
        """With the column that pages are preferred by."""
        column = _read(self.file, self.group, [self.field])[self.field]
        try:
            return read.append_column(COLUMN, pc.cast(column, pa.float64(), safe=False))
        except pa.ArrowException as error:
            raise InputError(f"column {self.field} of type {column.type} holds no numbers") from error
