"""WARC (ISO 28500) as a stream of records, and the page in each: framing, HTTP head, transfer and content encodings.

Own code, because the library tried (FastWARC 2.0.1) ends without a word where a file is cut off or a payload cannot be
decoded, and everything after that place would be missing from the verdicts. Here a file that is not whole is an error.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import brotli
import zstandard

from simhash.errors import PageError
from worker.compression import Zstandard
from worker.errors import InputError
from worker.records.page import charset_of
from worker.records.passing import Page

PAGE_TYPES = ("text/html", "application/xhtml+xml", "text/plain")
MAX_HEAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
LONGEST_LENGTH = 18
"""Digits of a Content-Length."""
_OK = "200"
_EMPTY_LINE = re.compile(rb"\n\r?\n")
HOLDING_PAGES = ("response", "resource", "conversion")
"""Types of records that may hold a page."""

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A record as framed: its headers by lower-case name, the begin of its block, the length of the whole block, and
    its head as it stands, without the empty line behind it."""

    headers: Headers
    block: bytes
    length: int
    head: bytes


def warc_records(stream: IO[bytes], largest: int) -> Iterator[WarcRecord]:
    """The records of a decompressed WARC; of a block, `largest` bytes at most are kept.

    Raises:
        InputError: what comes next is no record, or the file ends within one.
    """
    number = 0
    while version := _next_line(stream):
        if not version.startswith(b"WARC/"):
            raise InputError(f"record {number} is none of a WARC: it begins with {version[:40]!r}")
        lines = _head(stream, f"record {number}")
        headers = _fields(lines)
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= LONGEST_LENGTH):
            raise InputError(f"record {number} has no Content-Length but {length[:40]!r}")
        block = _block(stream, int(length), largest, f"record {number}")
        yield WarcRecord(headers, block, int(length), b"".join([version, *lines]))
        number += 1


def page_of(record: WarcRecord, largest: int) -> Page | None:
    """The page in a record, at most a byte longer than `largest`; None when it holds none.

    Pages are the responses with status 200, and the resources and conversions (the texts of a WET), of a text type.

    Raises:
        PageError: stage "decode": its content encoding cannot be undone.
    """
    kind = record.headers.get("warc-type")
    if kind not in HOLDING_PAGES:
        return None
    is_http = record.headers.get("content-type", "").lower().startswith("application/http")
    status, http, body = _http(record.block) if is_http else (_OK, record.headers, record.block)
    content_type = http.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if status != _OK or media_type not in PAGE_TYPES:
        return None
    if record.length > len(record.block):
        raise PageError("decode", f"the record has {record.length:,} bytes, more than {len(record.block):,}")
    return Page(
        url=record.headers.get("warc-target-uri", "").strip("<>"),
        content=_within(_decoded(body, http, largest), largest, len(body)),
        is_html=media_type != "text/plain",
        charset=charset_of(content_type),
        id=record.headers.get("warc-record-id"),
        fetched_at=record.headers.get("warc-date"),
    )


# Framing ---------------------------------------------------------------------------------------------------------


def _next_line(stream: IO[bytes]) -> bytes:
    """The next line that is not empty; b"" at the end."""
    while line := stream.readline(MAX_HEAD_BYTES):
        if line.strip():
            return line
    return b""


def _head(stream: IO[bytes], where: str) -> list[bytes]:
    """The lines up to an empty one."""
    lines: list[bytes] = []
    size = 0
    while line := stream.readline(MAX_HEAD_BYTES):
        size += len(line)
        if size > MAX_HEAD_BYTES:
            raise InputError(f"{where} has a head of more than {MAX_HEAD_BYTES:,} bytes")
        if not line.strip() and line.endswith(b"\n"):
            return lines
        lines.append(line)
    raise InputError(f"the file ends within the head of {where}")


def _fields(lines: list[bytes]) -> dict[str, str]:
    """Header fields by lower-case name, the first of each; a line that begins with a blank continues the one before."""
    fields: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        text = line.decode("utf-8", "replace").strip("\r\n")
        if text[:1] in (" ", "\t") and name:
            fields[name].append(text.strip())
            continue
        name, colon, value = text.partition(":")
        name = name.strip().lower() if colon else ""
        if name in fields:
            name = ""
        if name:
            fields[name] = [value.strip()]
    return {name: " ".join(filter(None, parts)) for name, parts in fields.items()}


def _block(stream: IO[bytes], length: int, largest: int, where: str) -> bytes:
    kept = bytearray()
    left = length
    while left:
        piece = stream.read(min(left, CHUNK_BYTES))
        if not piece:
            raise InputError(f"the file ends {left:,} bytes before the end of {where} ({length:,} bytes)")
        left -= len(piece)
        kept += piece[: largest - len(kept)]
    return bytes(kept)


# HTTP ------------------------------------------------------------------------------------------------------------


def split_http(block: bytes) -> tuple[bytes, bytes]:
    """The head of an HTTP response, with the empty line at its end, and the body."""
    end = _EMPTY_LINE.search(block)
    return (block[: end.end()], block[end.end() :]) if end else (block, b"")


def _http(block: bytes) -> tuple[str, Headers, bytes]:
    """Status, header fields and body of an HTTP response."""
    head, body = split_http(block)
    first, *lines = head.split(b"\n")
    words = first.split(None, 2)
    status = words[1].decode("latin-1") if len(words) > 1 and words[0].startswith(b"HTTP/") else ""
    return status, _fields(lines), body


def _decoded(body: bytes, http: Headers, largest: int) -> bytes:
    """The body without its encodings. What does not look encoded as it is declared is taken as it is: crawlers often
    keep the header and store the page decoded."""
    if "chunked" in http.get("transfer-encoding", "").lower():
        body = _unchunked(body)
    for encoding in reversed(http.get("content-encoding", "").lower().split(",")):
        name = encoding.strip()
        if name in ("", "identity"):
            continue
        if name not in DECODERS:
            raise PageError("decode", f"content-encoding {name[:40]!r} is none of {', '.join(DECODERS)}")
        try:
            body = DECODERS[name](body, largest)
        except (zlib.error, zstandard.ZstdError, brotli.error, EOFError) as error:
            raise PageError("decode", f"content-encoding {name} of {len(body):,} bytes: {error}") from error
    return body


def _within(content: bytes, largest: int, encoded: int) -> bytes:
    if len(content) > largest > encoded:
        raise PageError("decode", f"{encoded:,} encoded bytes hold a page of more than max_page_bytes = {largest:,}")
    return content


def _unchunked(body: bytes) -> bytes:
    """A chunked body's content; the body itself when it is not chunked."""
    chunks: list[bytes] = []
    at = 0
    while at < len(body):
        line_end = body.find(b"\n", at, at + 1024)
        size = body[at:line_end].partition(b";")[0].strip() if line_end >= 0 else b""
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            if chunks and body[at:].strip():
                raise PageError("decode", f"chunked, but at byte {at:,} of {len(body):,} no chunk begins")
            return b"".join(chunks) if chunks else body
        length = int(size, 16)
        if length == 0:
            break
        chunks.append(body[line_end + 1 : line_end + 1 + length])
        at = line_end + 1 + length
        at += 2 if body[at : at + 2] == b"\r\n" else 1
    return b"".join(chunks)


def _gunzipped(body: bytes, largest: int) -> bytes:
    """All members, as one may follow another (RFC 1952, 2.2); what follows them and is none is not looked at."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    content = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
        try:
            while more := stream.read1(largest + 1 - len(content)):
                content += more
        except gzip.BadGzipFile as error:
            if not content or not str(error).startswith("Not a gzipped file"):
                raise zlib.error(str(error)) from error
        except EOFError as error:
            raise EOFError("it ends before its stream does") from error
    return bytes(content)


def _deflated(body: bytes, largest: int) -> bytes:
    """ "deflate" is zlib's format by the standard and raw deflate in much practice."""
    try:
        return _inflated(body, largest, zlib.MAX_WBITS)
    except zlib.error:
        return _inflated(body, largest, -zlib.MAX_WBITS)


def _inflated(body: bytes, largest: int, window: int) -> bytes:
    inflater = zlib.decompressobj(window)
    content = inflater.decompress(body, largest + 1)
    if not inflater.eof and len(content) <= largest:
        raise EOFError("it ends before its stream does")
    return content


def _unzstd(body: bytes, largest: int) -> bytes:
    if not body.startswith(b"\x28\xb5\x2f\xfd"):
        return body
    return io.BufferedReader(Zstandard(io.BytesIO(body))).read(largest + 1)


def _unbrotlied(body: bytes, largest: int) -> bytes:
    """Brotli has no magic: a body that cannot be decoded, and begins as markup does, was stored decoded."""
    decompressor = brotli.Decompressor()
    content = bytearray()
    try:
        piece = decompressor.process(body, output_buffer_limit=largest + 1)
        while piece and len(content) <= largest:
            content += piece
            piece = decompressor.process(b"", output_buffer_limit=largest + 1)
    except brotli.error:
        if body.lstrip().startswith(b"<"):
            return body
        raise
    if not decompressor.is_finished() and len(content) <= largest:
        raise EOFError("it ends before its stream does")
    return bytes(content)


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "deflate": _deflated,
    "zstd": _unzstd,
    "br": _unbrotlied,
}
"""By the name of a Content-Encoding: a body's bytes; of one that has more than so many, little more than these."""
