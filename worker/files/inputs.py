"""Files as input: JSONL (plain, .gz, .zst), WARC, Parquet, CSV, HTML and directories of it, standard input; each a
stream of records.

A file's records are named by the digest of its path and content, and by their number: the same file read again gives
the same observations, so a second run over it with the same index gives the same verdicts.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from simhash.errors import PageError
from worker import compression
from worker.compression import COMPRESSED, decompressed
from worker.errors import InputError, SettingsError
from worker.files.captures import Capture, runs
from worker.files.csv_pages import header_of, pages_in_csv
from worker.files.locations import failing, identity, is_remote, named, opened, place, size_of, version_of
from worker.files.warc import MAX_HEAD_BYTES, WarcRecord, page_of, warc_records
from worker.judging.judge import Rejected, rejected
from worker.records.page import largest_record
from worker.records.passing import Page, RawRecord, Source

Record = RawRecord | Rejected
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
WARC_SUFFIXES = tuple(kind + packed for kind in (".warc", ".wet") for packed in ("", *COMPRESSED))
CSV_SUFFIXES = tuple(kind + packed for packed in ("", *COMPRESSED) for kind in (".csv", ".tsv"))
PARQUET = ".parquet"
LINES_SUFFIXES = (".jsonl", ".ndjson")
JSON = ".json"
IN_DIRECTORIES = (*WARC_SUFFIXES, *(lines + packed for lines in LINES_SUFFIXES for packed in ("", *COMPRESSED)))
BROKEN: tuple[type[Exception], ...] = (*compression.ERRORS, InputError)
"""What reading a broken file raises."""
CHUNK_BYTES = 1 << 20
STANDARD_INPUT = 0


@dataclass
class Input:
    """One input: where it is, how much of it there is, and its records.

    Attributes:
        total: bytes to read in all; None when that is not known (standard input).
        done: bytes read so far, in the same count.
        skipped: records of a WARC that are no pages (images, requests).
        columns: of a table: what its columns are, which those of another have to equal to be written beside them.
    """

    name: str
    total: int | None
    records: Callable[[], Iterator[Record]]
    done: Callable[[], int]
    skipped: int = 0
    columns: Any = None


def open_inputs(
    names: Sequence[str], largest_page: int, spool: bool, keep: bool = False
) -> tuple[list[Input], list[str]]:
    """The inputs of these names, each file once; and the names of what was given again, directly or in a directory.

    A directory is each of the inputs in it, by name, or its HTML. A file that is read again would be a replay of
    itself: its pages would get the verdicts that they have.

    Raises:
        InputError: as `open_input`.
    """
    taken = _Taken()
    files = [each for name in names for each in _meant(name) if each != "-" or taken.first(each)]
    return [open_input(each, largest_page, spool, taken, keep) for each in files], taken.again


def _meant(name: str) -> list[str]:
    """The inputs of a name: those in a directory, or itself."""
    if name == "-":
        return [name]
    path = place(name)
    with _reading(name), failing():
        is_directory = path.is_dir()
    found = files_in(path) if is_directory else []
    return [*map(str, found)] or [name]


def files_in(directory: Path) -> list[Path]:
    """The inputs in a directory: its Parquet files, else its JSONL and WARC files; none in a directory of HTML.

    Raises:
        InputError: it cannot be read, or a folder in it cannot.
    """
    with _reading(directory), failing():
        found = sorted(file for file in _below(directory) if _is_input(file, directory))
    return [file for file in found if file.name.lower().endswith(PARQUET)] or found


def _below(directory: Path) -> Iterator[Path]:
    """All files in it and in its folders. Raises OSError where one cannot be read, which `rglob` passes over."""
    if is_remote(directory):
        yield from directory.rglob("*")
        return
    for folder, _, names in os.walk(directory, onerror=_refuse_folder):
        yield from (Path(folder, name) for name in names)


def _refuse_folder(error: OSError) -> None:
    raise OSError(error.errno, f"{error.filename} cannot be read: {error.strerror}") from error


def _is_input(file: Path, directory: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(directory).parts)
    return not hidden and file.name.lower().endswith((PARQUET, *IN_DIRECTORIES)) and file.is_file()


class _Taken:
    """Which files are inputs by now."""

    def __init__(self) -> None:
        self.again: list[str] = []
        self._paths: set[str] = set()

    def first(self, name: str) -> bool:
        """Whether this file was not given before, under whatever name."""
        path = name if name == "-" else identity(place(name))
        if path in self._paths:
            self.again.append(name)
            return False
        self._paths.add(path)
        return True


def open_input(name: str, largest_page: int, spool: bool, taken: _Taken | None = None, keep: bool = False) -> Input:
    """The input called `name`: a path, or "-" for standard input.

    Args:
        largest_page: what is longer than a page of so many bytes can need is refused without being kept in memory.
        spool: copy standard input to a temporary file first, so that its content can name its records; needed when
            the index outlives the run.
        taken: the files of other inputs, which are left out of this one.
        keep: the records of a table have their rows with them, those of a WARC their captures.

    Raises:
        InputError: there is no such input, or it is of no kind that is known.
        SettingsError: what reads it is not installed.
    """
    if name == "-":
        return _standard_input(largest_record(largest_page), spool)
    taken = taken or _Taken()
    path = place(name)
    with _reading(name), failing():
        is_file, is_directory = path.is_file(), path.is_dir()
    if is_directory:
        return _directory(path, largest_page, taken)
    if not is_file and not path.exists():
        raise InputError(f"{name}: no such file or directory")
    if not is_file:
        raise InputError(f"{name} is no regular file: pipe it into standard input (-)")
    if not taken.first(name):
        return _pages(name, [], largest_page)
    if path.suffix.lower() in HTML_SUFFIXES:
        return _pages(name, [path], largest_page)
    if path.name.lower().endswith(WARC_SUFFIXES):
        return _warc(path, largest_page, keep)
    if path.suffix.lower() == PARQUET:
        return _parquet(path, keep)
    if path.name.lower().endswith(CSV_SUFFIXES):
        return _csv(path, largest_record(largest_page), keep)
    _check_kind(path)
    return _jsonl(path, largest_record(largest_page))


def _check_kind(path: Path) -> None:
    """A name that says nothing needs a content that does: a line of JSON to begin with."""
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    if suffix in LINES_SUFFIXES:
        return
    with _reading(path), opened(path) as file, decompressed(file, _promised(path)) as content:
        start = content.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
    if suffix == JSON and start.startswith(b"["):
        raise InputError(f"{path}: one array of JSON; pages are read one object a line, as jq -c '.[]' writes them")
    if start and not start.startswith(b"{") and suffix != JSON:
        known = ", ".join([*LINES_SUFFIXES, JSON, *WARC_SUFFIXES, PARQUET, *CSV_SUFFIXES[:2], *HTML_SUFFIXES])
        raise InputError(f"{path}: neither its name ({known}) nor its content says that it holds pages")


def _standard_input(line_limit: int, spool: bool) -> Input:
    # Not sys.stdin: its buffer is locked by a read under way, which must not keep a stopped run from ending.
    with _reading("standard input"):
        stream = _Counted(io.FileIO(STANDARD_INPUT, closefd=False))
    if not spool:
        topic = _topic("-", secrets.token_bytes(16))  # of itself it has no name: another one is another input

        def records() -> Iterator[Record]:
            with _reading("standard input"):
                yield from _lines(decompressed(stream), topic, line_limit)

        return Input("-", None, records, lambda: stream.count)
    with _reading("standard input"):
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - without a name, so gone with the process however that ends
        shutil.copyfileobj(stream, kept, CHUNK_BYTES)
        kept.flush()
        again = _Counted(io.FileIO(os.dup(kept.fileno())))
    return _jsonl_in(again, "-", "-", kept.tell(), line_limit)


def _jsonl(path: Path, line_limit: int) -> Input:
    return _jsonl_in(_counted(path), str(path), named(path), _total(path), line_limit)


def _jsonl_in(stream: _Counted, name: str, place: str, size: int | None, line_limit: int) -> Input:
    """A file that can be read twice: to name it by its content, and for its records."""

    def records() -> Iterator[Record]:
        with _reading(name):
            topic = _topic(place, stream.digest())
            yield from _lines(decompressed(stream, _promised(Path(name))), topic, line_limit)

    return Input(name, size, records, lambda: stream.count)


def _warc(path: Path, largest_page: int, keep: bool) -> Input:
    stream = _counted(path)
    largest = largest_page + MAX_HEAD_BYTES

    def records() -> Iterator[Record]:
        with _reading(path):
            topic = _topic(named(path), stream.digest())
            found = enumerate(warc_records(decompressed(stream, _promised(path)), largest))
            for capture in runs(found, largest) if keep else (Capture(None, [each]) for each in found):
                yield from pages(capture, topic)

    def pages(capture: Capture, topic: str) -> Iterator[Record]:
        for number, record in capture.records:
            found = _in_warc(record, Source(topic, 0, number, None), largest_page)
            if isinstance(found, RawRecord) and keep:
                found = found._replace(whole=capture)
            if found is None:
                made.skipped += 1
            else:
                yield found

    made = Input(str(path), _total(path), records, lambda: stream.count)
    return made


def _in_warc(record: WarcRecord, source: Source, largest_page: int) -> Record | None:
    try:
        page = page_of(record, largest_page)
    except PageError as error:
        return rejected(source, error)
    return None if page is None else RawRecord(source, None, page.content, page)


def _parquet(path: Path, keep: bool) -> Input:
    try:
        from worker.files import parquet
    except ImportError as error:
        raise SettingsError(f"{path}: {error.name} is not installed: pip install 'simhash-dedup[parquet]'") from error
    size, rows, read = _total(path) or 0, 0, 0

    def records() -> Iterator[Record]:
        nonlocal read
        with _reading(path, parquet.ERRORS):
            for position, record in parquet.pages_in_parquet(path, keep=keep):
                read = size * (position + 1) // rows
                yield record

    with _reading(path, parquet.ERRORS):
        columns, rows = parquet.schema_of(path), parquet.rows_in(path)
    return Input(str(path), size, records, lambda: read, columns=columns)


def _csv(path: Path, largest: int, keep: bool) -> Input:
    with _reading(path), opened(path) as beginning:
        columns = header_of(decompressed(beginning, _promised(path)), path.name)
    stream = _counted(path)

    def records() -> Iterator[Record]:
        with _reading(path):
            topic = _topic(named(path), stream.digest())
            yield from pages_in_csv(decompressed(stream, _promised(path)), path.name, topic, largest, keep)

    return Input(str(path), _total(path), records, lambda: stream.count, columns=columns)


def _directory(path: Path, largest_page: int, taken: _Taken) -> Input:
    with _reading(path):
        files = sorted(file for file in _below(path) if file.suffix.lower() in HTML_SUFFIXES and not file.is_dir())
    if not files:
        kinds = ", ".join((PARQUET, *IN_DIRECTORIES, *HTML_SUFFIXES))
        raise InputError(f"{path}: no file in this directory ends in {kinds}")
    return _pages(str(path), [file for file in files if taken.first(str(file))], largest_page)


def _pages(name: str, files: Sequence[Path], largest_page: int) -> Input:
    """Files that are a page each; one that cannot be read is rejected like a page that cannot be."""
    sizes = [_size(file) for file in files]
    read = 0

    def records() -> Iterator[Record]:
        nonlocal read
        for file, size in zip(files, sizes, strict=True):
            yield _page_in(file, largest_page)
            read += size

    return Input(name, sum(sizes), records, lambda: read)


def _page_in(file: Path, largest_page: int) -> Record:
    path = named(file)
    try:
        if not is_remote(file) and not stat.S_ISREG(file.stat().st_mode):
            raise OSError(f"{file} is no regular file")
        with opened(file) as content_of, io.BufferedReader(content_of) as buffered:
            content = buffered.read(largest_page + 1)
        size = size_of(file) or len(content)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        return rejected(Source(_topic(path, b""), 0, 0, None), PageError("decode", message))
    topic = _topic(path, xxhash.xxh3_128_digest(content))
    if len(content) > largest_page:
        message = f"{path} has {size:,} bytes, more than max_page_bytes = {largest_page:,}"
        return rejected(Source(topic, 0, 0, None), PageError("decode", message))
    url = path if is_remote(file) else Path(path).as_uri()
    return RawRecord(Source(topic, 0, 0, None), None, content, Page(url, content, is_html=True))


def _size(file: Path) -> int:
    try:
        return size_of(file) or 0
    except OSError:
        return 0


def _lines(stream: IO[bytes], topic: str, limit: int) -> Iterator[Record]:
    number = 0
    while line := stream.readline(limit + 1):
        source = Source(topic, 0, number, None)
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            size = len(line) + _skip_line(stream)
            message = f"the line has {size:,} bytes, more than {limit:,} (max_page_bytes and its escapes)"
            yield rejected(source, PageError("decode", message))
        elif line.strip():
            yield RawRecord(source, None, line)


def _skip_line(stream: IO[bytes]) -> int:
    skipped = 0
    while chunk := stream.readline(CHUNK_BYTES):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


def _promised(path: Path) -> str:
    """How a file of this name is compressed."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSED else ""


@contextmanager
def _reading(name: object, broken: tuple[type[Exception], ...] = BROKEN) -> Iterator[None]:
    """Say of which file a read failed."""
    try:
        yield
    except broken as error:
        raise InputError(f"{name}: {getattr(error, 'strerror', None) or error}") from error


def _counted(path: Path) -> _Counted:
    with _reading(path):
        return _Counted(opened(path), version_of(path))


def _total(path: Path) -> int | None:
    with _reading(path):
        return size_of(path)


def _topic(path: str, content: bytes) -> str:
    """What stands in place of a topic for a file."""
    return "file:" + xxhash.xxh3_128_hexdigest(path.encode("utf-8", "surrogateescape") + b"\0" + content)


class _Counted(io.RawIOBase):
    """A file that knows how much of it was read, for the progress bar; a slow pipe is passed on as it comes."""

    def __init__(self, stream: io.RawIOBase, version: bytes | None = None) -> None:
        self._stream = stream
        self._version = version
        self.count = 0

    def readable(self) -> bool:
        return True

    def digest(self) -> bytes:
        """Of all that is in it, for a file that can be read again, and before it is read; of a remote file what its
        server says of it, for its bytes should travel once."""
        if self._version is not None:
            return self._version
        digest = xxhash.xxh3_128()
        self._stream.seek(0)
        while chunk := self._stream.read(CHUNK_BYTES):
            digest.update(chunk)
        self._stream.seek(0)
        return digest.digest()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        read = self._stream.readinto(buffer) or 0
        self.count += read
        return read
