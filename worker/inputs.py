"""Files as input: JSONL (plain, .gz, .zst), WARC, directories of HTML, standard input; each a stream of records.

A file's records are named by the digest of its path and content, and by their number: the same file read again gives
the same observations, so a second run over it with the same index gives the same verdicts.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import xxhash
import zstandard
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from simhash.errors import PageError
from worker.errors import InputError
from worker.judge import Rejected, rejected
from worker.records import Page, RawRecord, Source

Record = RawRecord | Rejected
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
PAGE_TYPES = ("text/html", "application/xhtml+xml", "text/plain")
CHUNK_BYTES = 1 << 20


@dataclass
class Input:
    """One input: where it is, how much of it there is, and its records.

    Attributes:
        total: bytes to read in all; None when that is not known (standard input).
        done: bytes read so far, in the same count.
        skipped: records of a WARC that are no pages (images, requests).
    """

    name: str
    total: int | None
    records: Callable[[], Iterator[Record]]
    done: Callable[[], int]
    skipped: int = 0


def open_input(name: str, line_limit: int, spool: bool) -> Input:
    """The input called `name`: a path, or "-" for standard input.

    Args:
        line_limit: a JSONL line longer than this many bytes is refused without being kept in memory.
        spool: copy standard input to a temporary file first, so that its content can name its records; needed when
            the index outlives the run.

    Raises:
        InputError: there is no such input.
    """
    if name == "-":
        return _standard_input(line_limit, spool)
    path = Path(name)
    if path.is_dir():
        return _directory(path)
    if not path.is_file():
        raise InputError(f"{name}: no such file or directory")
    if path.name.endswith((".warc", ".warc.gz")):
        return _warc(path)
    return _jsonl(path, line_limit)


def _standard_input(line_limit: int, spool: bool) -> Input:
    if spool:
        kept = tempfile.NamedTemporaryFile(prefix="simhash-dedup-", suffix=".stdin")
        shutil.copyfileobj(sys.stdin.buffer, kept, CHUNK_BYTES)
        kept.flush()
        # The temporary name must not be part of the digest: the same input is the same input.
        return _jsonl(Path(kept.name), line_limit, named="-", keep=kept)
    stream = _Counted(sys.stdin.buffer)
    topic = _topic("-", b"")
    return Input("-", None, lambda: _lines(_decompressed(stream), topic, line_limit), lambda: stream.count)


def _jsonl(path: Path, line_limit: int, named: str | None = None, keep: object = None) -> Input:
    stream = _Counted(_opened(path))

    def records() -> Iterator[Record]:
        topic = _topic(named or os.path.abspath(path), _digest(path))
        with _reading(path, keep):
            yield from _lines(_decompressed(stream), topic, line_limit)

    return Input(named or str(path), path.stat().st_size, records, lambda: stream.count)


def _warc(path: Path) -> Input:
    stream = _Counted(_opened(path))

    def records() -> Iterator[Record]:
        topic = _topic(os.path.abspath(path), _digest(path))
        with _reading(path):
            for number, record in enumerate(ArchiveIterator(cast(BinaryIO, stream), auto_decode="all")):
                page = _page_of(record)
                if page is None:
                    found.skipped += 1
                else:
                    yield RawRecord(Source(topic, 0, number, None), None, page.raw, page)

    found = Input(str(path), path.stat().st_size, records, lambda: stream.count)
    return found


def _page_of(record: WarcRecord) -> Page | None:
    """The page in a WARC record; None when it holds none."""
    if record.record_type not in (WarcRecordType.response, WarcRecordType.resource):
        return None
    kind = record.http_content_type or record.headers.get("Content-Type") or ""
    if record.http_headers is not None and record.http_headers.status_code not in (None, 200):
        return None
    if kind.partition(";")[0].strip().lower() not in PAGE_TYPES:
        return None
    url = (record.headers.get("WARC-Target-URI") or "").strip("<>")
    return Page(
        url=url,
        content=record.reader.read(),
        is_html=not kind.lower().startswith("text/plain"),
        charset=record.http_charset,
        id=record.headers.get("WARC-Record-ID"),
        fetched_at=record.headers.get("WARC-Date"),
    )


def _directory(path: Path) -> Input:
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in HTML_SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path}: no file in this directory ends in {', '.join(HTML_SUFFIXES)}")
    sizes = [file.stat().st_size for file in files]
    read = 0

    def records() -> Iterator[Record]:
        nonlocal read
        for file, size in zip(files, sizes, strict=True):
            with _reading(file):
                content = file.read_bytes()
            read += size
            topic = _topic(os.path.abspath(file), xxhash.xxh3_128_digest(content))
            page = Page(file.absolute().as_uri(), content, is_html=True)
            yield RawRecord(Source(topic, 0, 0, None), None, content, page)

    return Input(str(path), sum(sizes), records, lambda: read)


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


def _decompressed(stream: IO[bytes]) -> IO[bytes]:
    """The stream, through the decompressor that its first bytes ask for."""
    buffered = io.BufferedReader(cast(io.RawIOBase, stream), CHUNK_BYTES)
    magic = buffered.peek(4)[:4]
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
    if magic == b"\x28\xb5\x2f\xfd":
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(buffered, read_across_frames=True)
        return io.BufferedReader(cast(io.RawIOBase, reader), CHUNK_BYTES)
    return buffered


@contextmanager
def _reading(path: Path, keep: object = None) -> Iterator[None]:
    """Say of which file a read failed; `keep` lives as long."""
    try:
        yield
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise InputError(f"{path}: {error}") from error


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)  # type: ignore[return-value]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _digest(path: Path) -> bytes:
    digest = xxhash.xxh3_128()
    with _reading(path), path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()


def _topic(path: str, content: bytes) -> str:
    """What stands in place of a topic for a file."""
    return "file:" + xxhash.xxh3_128_hexdigest(path.encode("utf-8", "surrogateescape") + b"\0" + content)


class _Counted(io.RawIOBase):
    """A stream that knows how much of it was read, for the progress bar."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        # One read of the system: a slow pipe is passed on as it comes.
        data = getattr(self._stream, "read1", self._stream.read)(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)
