"""Parquet files of pages: a row is a page, under the names of JSONL's fields; needs pyarrow.

`url` and one of `html`, `text` and `html_base64` are needed; `id`, `fetched_at`, `charset` and `content_type` are read
where they are there, and other columns are nothing to the judgement.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence, Set
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from worker.errors import InputError
from worker.files.locations import is_remote, named, opened
from worker.records.page import CONTENTS, charset_of
from worker.records.passing import Page, RawRecord, Source

ERRORS: tuple[type[Exception], ...] = (OSError, pa.ArrowException, UnicodeDecodeError, InputError)
"""What reading a broken file raises."""
UNKNOWN = (OverflowError, ValueError, LookupError)
"""What pyarrow raises for a value, or a zone, that Python has none for."""
PAGE_ROWS = 32
"""Pages read at once: of many MB each perhaps, though a dictionary has each of them once in the file."""
NAMES = ("url", "id", "fetched_at", "charset", "content_type")
AS_BYTES = ("html", "text")
"""The contents that need no decoding here."""


def schema_of(path: Path) -> pa.Schema:
    """The columns of a file of pages.

    Raises:
        InputError: they hold no pages; and what pyarrow raises for a file that is none.
    """
    schema = pq.read_schema(_source(path))
    if "url" not in schema.names or not set(CONTENTS) & set(schema.names):
        raise InputError(f"has no column url with one of {', '.join(CONTENTS)}, but {', '.join(schema.names)[:200]}")
    return schema


def _source(path: Path) -> Any:
    """What pyarrow reads: a path, or an open file."""
    return opened(path) if is_remote(path) else path


def rows_in(path: Path) -> int:
    """How many rows a file has; raises what pyarrow does for a file that is none."""
    return int(pq.read_metadata(_source(path)).num_rows)


def pages_in_parquet(
    path: Path, groups: Sequence[int] | None = None, keep: bool = False
) -> Iterator[tuple[int, RawRecord]]:
    """The pages of these row groups (None: all), each with the number of its row in the file.

    Args:
        keep: the records have their rows with them: a RecordBatch of all columns, and the row's place in it.
    """
    with pq.ParquetFile(_source(path)) as file:
        topic = topic_of_footer(path)
        groups = range(file.num_row_groups) if groups is None else groups
        position = rows_before(file, groups[0]) if groups else 0
        names = file.schema_arrow.names
        wanted = sorted({*NAMES, *CONTENTS} & set(names))  # in one order: the record's bytes name it
        if doubled := [name for name in wanted if names.count(name) > 1]:
            raise InputError(f"has more than one column {doubled[0]}")
        for batch in file.iter_batches(PAGE_ROWS, list(groups), None if keep else wanted):
            characters = {field.name for field in batch.schema if _is_string(field.type)}
            for at, row in enumerate(_rows_of(_representable(batch.select(wanted)))):
                whole = (batch, at) if keep else None
                yield position, _record_of_row(row, characters, Source(topic, 0, position, None), whole)
                position += 1


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _representable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times that Python has no type for, and numbers where a name is expected, in those that it has; and strings as the
    bytes that they are, which are not always UTF-8."""
    columns = []
    for field in batch.schema:
        column = batch[field.name]
        if pa.types.is_timestamp(field.type):
            column = pc.cast(column, pa.timestamp("us", _zone(field.type.tz)), safe=False)
        elif field.name == "id" and pa.types.is_integer(field.type):
            column = pc.cast(column, pa.string())
        elif _is_string(field.type):
            column = column.cast(pa.binary() if pa.types.is_string(field.type) else pa.large_binary())
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _zone(name: str | None) -> str | None:
    """A zone's name; where nobody knows it, UTC, for these are the same moments."""
    try:
        if name is not None:
            pa.lib.string_to_tzinfo(name)
    except UNKNOWN:
        return "UTC"
    return name


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return cast("list[dict[str, Any]]", batch.to_pylist())
    except UNKNOWN:
        columns = [map(_value, column) for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    """In Python; a time that Python has not (of the year 10,000, say) as the number that it is."""
    try:
        return scalar.as_py()
    except UNKNOWN:
        return str(scalar.value)


def without_views(table: pa.Table) -> pa.Table:
    """The same without views of strings and bytes, which other programs write and most of pyarrow does not know."""
    return table.cast(schema_without_views(table.schema))


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """With strings and bytes in their place."""
    return pa.schema([_field_without_views(field) for field in schema], schema.metadata)


def _field_without_views(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_field_without_views(each) for each in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_field_without_views(kind.value_field)))
    return field.with_type({pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind))


def _record_of_row(row: dict[str, Any], characters: Set[str], source: Source, whole: object) -> RawRecord:
    """A page of a Parquet file, from columns as they should be; from others the line of JSONL that they would be, which
    says what is wrong.

    Args:
        characters: the columns in UTF-8.
    """
    contents = [name for name in CONTENTS if row.get(name) is not None]
    given = {name: _plain(value) for name, value in row.items() if value is not None and name not in AS_BYTES}
    are_names = "url" in given and all(isinstance(given.get(name, ""), str) for name in NAMES)
    if are_names and len(contents) == 1 and (name := contents[0]) in AS_BYTES and isinstance(row[name], (bytes, str)):
        content = row[name].encode() if isinstance(row[name], str) else row[name]
        charset = given.get("charset") or charset_of(given.get("content_type"))
        is_utf8 = name == "text" or name in characters or content is not row[name]
        page = Page(given["url"], content, name == "html", charset, given.get("id"), given.get("fetched_at"), is_utf8)
        return RawRecord(source, None, content, page, whole)
    given |= {name: _plain(row[name]) for name in contents}
    try:
        value = msgspec.json.encode(given)
    except UnicodeEncodeError:  # bytes that are no UTF-8: written as surrogates, which are refused like any
        value = json.dumps(given, default=repr).encode()
    return RawRecord(source, None, value, None, whole)


def _plain(value: Any) -> Any:
    """What other programs write in place of a string: its bytes, a number, a time."""
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return value.isoformat() if isinstance(value, datetime) else value


def topic_of_footer(path: Path) -> str:
    """What stands in place of a topic: the footer, which describes every column chunk, stands for the content."""
    with opened(path) as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        content = file.read(length)
    name = named(path).encode("utf-8", "surrogateescape")
    return "file:" + xxhash.xxh3_128_hexdigest(name + b"\0" + xxhash.xxh3_128_digest(content))


def rows_before(file: pq.ParquetFile, group: int) -> int:
    """How many rows stand before a row group."""
    return sum(file.metadata.row_group(i).num_rows for i in range(group))
