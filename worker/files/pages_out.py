"""Pages that are written on, the unique ones or all of them annotated, in the form that their file's name asks for:
Parquet of Parquet, CSV of CSV, each with all columns of the input; WARC of WARC, with a revisit for an exact copy; and
lines of JSON of whatever is read.

An annotation says of a duplicate the URL of the page that it matches, and how similar they are; of a unique page
nothing. Where all is judged before anything is written it says too how many pages match this one.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
import zstandard

from worker.compression import GZIP, ZSTD
from worker.errors import InputError
from worker.files.captures import Payload, framed, payload_of, revisit_of
from worker.files.csv_pages import dialect_of
from worker.files.inputs import PARQUET, WARC_SUFFIXES, Input
from worker.files.warc import WarcRecord
from worker.judging.judge import utf8_of
from worker.records.passing import RawRecord
from worker.records.verdict import Verdict

CSV = (".csv", ".tsv")
PACKED: Mapping[str, Callable[[bytes], bytes]] = {GZIP: partial(gzip.compress, mtime=0), ZSTD: zstandard.compress}
ANNOTATION = ("dup_of", "similarity")
ANNOTATION_OF_ALL = (*ANNOTATION, "copies")
ROWS_AT_ONCE, BYTES_AT_ONCE = 8192, 64 << 20
"""Of a row group: it is held in memory until it is written. Its bytes are known batch by batch."""


class PagesOut(Protocol):
    """Where pages go. Raises (all methods): InputError: it cannot be written."""

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        """Take a page, which so many others match, and write of it what this file holds."""

    def finish(self) -> None:
        """Write what is left; nothing is added any more."""


def pages_out(
    path: Path, inputs: Sequence[Input], opened: Callable[[Path], Output], said: Sequence[str] = ()
) -> PagesOut:
    """What writes pages of these inputs to a file.

    Args:
        said: the names of an annotation, and all pages are written; or none, and the unique ones are.

    Raises:
        InputError: its name asks for a form, and an input is none of that kind, or has other columns; or it cannot be
            written.
    """
    if not is_of_inputs(path):
        return _AnnotatedLines(opened(path), said) if said else _Lines(opened(path), opened(index_of(path)))
    kind, suffixes = _kind_of(path)
    for each in inputs:
        bare = each.name.lower().removesuffix(".gz").removesuffix(".zst")
        if not bare.endswith(suffixes):
            raise InputError(f"{path}: {kind} is written of {kind}, and {each.name} is none: name a .jsonl file")
        if each.columns != inputs[0].columns:
            raise InputError(f"{path}: {each.name} has other columns than {inputs[0].name}: one file cannot hold both")
    if kind == "WARC":
        if said:
            raise InputError(f"{path}: records of a WARC are not annotated: name a .jsonl file")
        return _Warc(opened(path))
    columns = inputs[0].columns
    names = columns.names if kind == "Parquet" else columns
    if there := set(said) & set(names):
        raise InputError(f"{path}: {inputs[0].name} has a column {there.pop()} already")
    return (_Parquet if kind == "Parquet" else _Csv)(opened(path), columns, said)


def _kind_of(path: Path) -> tuple[str, tuple[str, ...]]:
    """The form that a file's name asks for, and how the names of inputs of that form end."""
    if path.name.lower().endswith(WARC_SUFFIXES):
        return "WARC", WARC_SUFFIXES
    suffix = path.suffix.lower()
    return ("Parquet" if suffix == PARQUET else suffix[1:].upper()), (suffix,)


def is_of_inputs(path: Path) -> bool:
    """Whether a file's name asks for pages as the inputs have them: rows with all columns, records of a WARC."""
    return path.name.lower().endswith((PARQUET, *CSV, *WARC_SUFFIXES))


def index_of(path: Path) -> Path:
    """What says where each line of a file is."""
    return path.with_name(path.name + ".index")


@dataclass(frozen=True)
class Output:
    name: str
    file: IO[bytes]

    def write(self, data: bytes) -> None:
        with writing(self.name):
            self.file.write(data)

    def flush(self) -> None:
        with writing(self.name):
            self.file.flush()

    def close(self) -> None:
        with writing(self.name):
            self.file.close()


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Say which file a failed write was for."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror or error}") from error


class _Lines:
    """Lines of JSON, and an index with a line for each page: its URL, its `seq`, the offset and length of its line."""

    def __init__(self, output: Output, index: Output) -> None:
        self._output, self._index = output, index
        self._offset = 0

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        if verdict.match:
            return
        line = _line(record)
        entry = {"url": verdict.url, "seq": verdict.seq, "offset": self._offset, "length": len(line)}
        self._output.write(line)
        self._index.write(msgspec.json.encode(entry) + b"\n")
        self._offset += len(line)

    def finish(self) -> None:
        self._output.flush()
        self._index.flush()


class _AnnotatedLines:
    """Lines of JSON with some more fields; the others are as they came, byte for byte."""

    def __init__(self, output: Output, said: Sequence[str]) -> None:
        self._output, self._said = output, said

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        said = msgspec.json.encode(dict(zip(self._said, _annotation(verdict, copies), strict=False)))
        self._output.write(_line(record).rstrip()[:-1] + b"," + said[1:] + b"\n")

    def finish(self) -> None:
        self._output.flush()


def _annotation(verdict: Verdict, copies: int) -> tuple[str | None, float | None, int]:
    """What `ANNOTATION_OF_ALL` names; `ANNOTATION` names the first of these."""
    match = verdict.match
    return (match.url, match.similarity, copies) if match else (None, None, copies)


class _Csv:
    """Rows under the header of the input, their bytes as they were but for quotes that were not needed."""

    def __init__(self, output: Output, header: Sequence[str], said: Sequence[str]) -> None:
        self._said = len(said)
        self._output = output
        self._text = io.TextIOWrapper(output.file, "utf-8", "surrogateescape", newline="")
        self._writer = csv.writer(self._text, **dialect_of(Path(output.name).name))
        self._write([*header, *said])

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        if verdict.match is None or self._said:
            self._write([*record.whole, *_annotation(verdict, copies)[: self._said]])

    def _write(self, row: Sequence[object]) -> None:
        with writing(self._output.name):
            self._writer.writerow(row)

    def finish(self) -> None:
        with writing(self._output.name):
            self._text.flush()


class _Parquet:
    """Rows in the schema of the input, with its metadata."""

    def __init__(self, output: Output, schema: Any, said: Sequence[str]) -> None:
        import pyarrow as pa  # there, for an input was read by it
        import pyarrow.parquet as pq

        from worker.files.parquet import schema_without_views

        schema = self._read = schema_without_views(schema)
        kinds = (pa.string(), pa.float64(), pa.int64())
        self._said = kinds[: len(said)]
        if said:
            fields = [pa.field(name, kind) for name, kind in zip(said, kinds, strict=False)]
            # Without what other programs say there of all columns: it would be wrong of these.
            schema = pa.schema([*schema, *fields])
        self._output, self._schema = output, schema
        self._batch: Any = None
        self._chosen: list[int] = []
        self._told: list[tuple[Any, ...]] = []
        self._taken: list[Any] = []
        self._rows = self._bytes = 0
        with writing(output.name):
            self._writer = pq.ParquetWriter(output.file, schema)

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        if verdict.match and not self._said:
            return
        batch, place = record.whole
        if batch is not self._batch:
            self._take()
            if self._bytes >= BYTES_AT_ONCE:
                self._flush()
            self._batch = batch
        self._chosen.append(place)
        self._told.append(_annotation(verdict, copies))
        self._rows += 1
        if self._rows == ROWS_AT_ONCE:
            self._flush()

    def _take(self) -> None:
        """Copy the chosen rows of a batch, all at once: the batch keeps all that was read with them in memory."""
        import pyarrow as pa

        if self._chosen:
            taken = pa.Table.from_batches([self._batch]).cast(self._read).take(pa.array(self._chosen))
            said = [
                pa.array(every, kind) for every, kind in zip(zip(*self._told, strict=True), self._said, strict=False)
            ]
            self._taken.append(pa.Table.from_arrays([*taken.columns, *said], schema=self._schema))
            self._bytes += self._taken[-1].nbytes
        self._batch, self._chosen, self._told = None, [], []

    def _flush(self) -> None:
        import pyarrow as pa

        self._take()
        if self._taken:
            with writing(self._output.name):
                self._writer.write_table(pa.concat_tables(self._taken))
        self._taken, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        self._flush()
        with writing(self._output.name):
            self._writer.close()
            self._output.file.flush()


class _Warc:
    """Captures of unique pages, as they came; of a copy whose payload has the same bytes, with a revisit as response.

    A `.gz` has a member for each record, a `.zst` a frame: a replay reads one alone. Of unique pages the payload's
    digest is kept, about 200 bytes. Of what was judged in another run there is none, so its copies are left out like
    other duplicates.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._packed = PACKED.get(Path(output.name).suffix.lower(), bytes)
        self._info: WarcRecord | None = None
        self._payloads: dict[int, Payload] = {}

    def write(self, record: RawRecord, verdict: Verdict, copies: int = 0) -> None:
        response = next(each for number, each in record.whole.records if number == record.source.offset)
        payload = payload_of(response)
        written = response
        if verdict.match:
            original = self._payloads.get(verdict.match.seq)
            if payload is None or original is None or original.digest != payload.digest:
                return
            written = revisit_of(response, original, verdict.match)
        elif payload and verdict.seq is not None:
            self._payloads[verdict.seq] = payload
        self._tell(record.whole.info)
        for _, each in record.whole.records:
            self._write(written if each is response else each)

    def _tell(self, info: WarcRecord | None) -> None:
        """The `warcinfo` that the next records stand under, if it is not the last one."""
        if info is not None and info is not self._info:
            self._info = info
            self._write(info)

    def _write(self, record: WarcRecord) -> None:
        if (data := framed(record)) is not None:
            self._output.write(self._packed(data))

    def finish(self) -> None:
        self._output.flush()


def _line(record: RawRecord) -> bytes:
    """A page as a line of JSONL: its own line, or one made for a page that came in another container."""
    page = record.page
    if page is None:
        return (record.value or b"").removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n") + b"\n"
    fields: dict[str, str | None] = {"url": page.url, "id": page.id, "fetched_at": page.fetched_at}
    if page.is_html:
        fields |= {"html_base64": base64.b64encode(page.content).decode(), "charset": page.charset}
    else:
        fields["text"] = utf8_of(page).decode()
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None}) + b"\n"
