"""CSV and TSV files of pages: the first line names the columns, under the names of JSONL's fields; a row is a page.

An empty field stands for none, except that a page may be empty. Bytes that are no UTF-8 are carried along unchanged;
where they stand in what is read of a page, that page is refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from simhash.errors import PageError
from worker.errors import InputError
from worker.judging.judge import Rejected, rejected
from worker.records.page import CONTENTS
from worker.records.passing import RawRecord, Source

MOST_IN_HEADER = 1 << 20
"""Characters of the first line."""
READ = ("url", "id", "fetched_at", "charset", "content_type")


def dialect_of(name: str) -> dict[str, Any]:
    """How a file of this name separates its columns."""
    return {"delimiter": "\t" if ".tsv" in name.lower() else ",", "lineterminator": "\n"}


def _lines(text: io.TextIOWrapper, most: int) -> Iterator[str]:
    """The lines of a file; InputError: one has more characters, and may have gigabytes."""
    number = 0
    while line := text.readline(most + 1):
        number += 1
        if len(line) > most:
            raise InputError(f"line {number:,} has more than {most:,} characters")
        yield line


def text_of(stream: IO[bytes]) -> io.TextIOWrapper:
    """A stream's text, in which every byte can be found again."""
    return io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")


def header_of(stream: IO[bytes], name: str) -> list[str]:
    """The columns of a file of pages.

    Raises:
        InputError: they hold no pages.
    """
    found = next(csv.reader(_lines(text_of(stream), MOST_IN_HEADER), **dialect_of(name)), [])
    if "url" not in found or not set(CONTENTS) & set(found):
        said = ", ".join(found)[:200] or "is empty"
        raise InputError(f"its first line names no column url with one of {', '.join(CONTENTS)}, but {said!r}")
    if len(set(found)) < len(found):
        raise InputError("its first line names a column twice")
    return found


def pages_in_csv(
    stream: IO[bytes], name: str, topic: str, largest: int, keep: bool = False
) -> Iterator[RawRecord | Rejected]:
    """The pages of a file, named by the numbers of their rows, the first line aside.

    Args:
        largest: characters of a field beyond which the file is taken to be none.
        keep: the records have their rows with them, all columns.

    Raises:
        InputError: a field is longer, or a line than two such, or its quotes are none of CSV.
    """
    csv.field_size_limit(largest)
    # Strictly: a quote that is not closed would swallow all that follows, without a word.
    reader = csv.reader(_lines(text_of(stream), 2 * largest), **dialect_of(name), strict=True)
    header = next(reader, [])
    try:
        for number, row in enumerate(reader):
            source = Source(topic, 0, number, None)
            if len(row) == len(header):
                yield RawRecord(source, None, _value(header, row), None, row if keep else None)
            elif row:
                fields = f"{len(row)} fields, and the first line {len(header)}"
                message = f"the row that ends in line {reader.line_num:,} has {fields}"
                yield rejected(source, PageError("decode", message))
    except csv.Error as error:
        raise InputError(f"line {reader.line_num:,}: {error}; is a quote not closed?") from error


def _value(header: Sequence[str], row: Sequence[str]) -> bytes:
    """The row as the line of JSONL that it would be."""
    given = {name: value for name, value in zip(header, row, strict=True) if name in (*READ, *CONTENTS)}
    page = {name: value for name, value in given.items() if value or name == "url"}
    if not any(name in page for name in CONTENTS):
        page |= {next(name for name in CONTENTS if name in given): ""}
    try:
        return msgspec.json.encode(page)
    except UnicodeEncodeError:  # bytes that are no UTF-8, as surrogates: they are refused like any
        return json.dumps(page).encode()
