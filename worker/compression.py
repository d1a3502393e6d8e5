"""Compressed input, recognised by its first bytes; a file that is cut off is an error, never a quiet end.

Memory stays bounded whatever the ratio: pages are wanted a piece at a time.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, cast

import zstandard

GZIP, ZSTD = ".gz", ".zst"
COMPRESSED = (GZIP, ZSTD)
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"
"""Behind a first byte 0x50 to 0x5F the begin of a frame that readers skip, as pzstd puts before each of its own."""
_DICTIONARY = b"\x5d" + _SKIPPED
"""One that holds the dictionary of all others ("Zstandard compressed WARC", IIPC)."""
_MAGIC_BYTES = 4
LARGEST_DICTIONARY_BYTES = 64 << 20
BUFFER_BYTES = 1 << 20
ZSTD_PIECE_BYTES = 1 << 10
"""Compressed bytes taken at once: a block of 4 bytes can stand for 128 KiB, so these can for 32 MiB."""
LARGEST_WINDOW_BYTES = 1 << 31
"""What `zstd --long=31` makes; the program's own default would be 128 MiB."""

ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""What reading a broken stream raises."""


def compression_of(stream: io.BufferedReader) -> str:
    """What the next bytes of a stream begin, one of COMPRESSED; "" where neither."""
    start = stream.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    if start.startswith(_GZIP_MAGIC):
        return GZIP
    is_skipped = start[1:] == _SKIPPED and start[0] >> 4 == 5
    return ZSTD if start == _ZSTD_MAGIC or is_skipped else ""


def decompressed(stream: io.RawIOBase, expected: str = "") -> IO[bytes]:
    """The stream, through the decompressor that its first bytes ask for.

    Args:
        expected: what the file's name promises, one of COMPRESSED; "" where nothing.

    Raises:
        EOFError, OSError: the stream is not what is `expected`.
    """
    buffered: io.BufferedReader = io.BufferedReader(stream, BUFFER_BYTES)
    found = compression_of(buffered)
    if expected and found != expected:
        start = buffered.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
        raise OSError(f"begins with {start!r}, which is no {expected} as its name says")
    if found == GZIP:
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
    if found == ZSTD:
        return io.BufferedReader(Zstandard(buffered, _dictionary(buffered)), BUFFER_BYTES)
    return buffered


def _dictionary(stream: io.BufferedReader) -> zstandard.ZstdCompressionDict | None:
    """That of a stream which begins with it."""
    if stream.peek(_MAGIC_BYTES)[:_MAGIC_BYTES] != _DICTIONARY:
        return None
    size = int.from_bytes(stream.read(2 * _MAGIC_BYTES)[_MAGIC_BYTES:], "little")
    _refuse_large(size)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("it ends within its dictionary: the file was cut off")
    if data.startswith(_ZSTD_MAGIC):
        data = io.BufferedReader(Zstandard(io.BytesIO(data))).read(LARGEST_DICTIONARY_BYTES + 1)
        _refuse_large(len(data))
    return zstandard.ZstdCompressionDict(data)


def _refuse_large(size: int) -> None:
    if size > LARGEST_DICTIONARY_BYTES:
        raise OSError(f"begins with a dictionary of {size:,} bytes or more, above {LARGEST_DICTIONARY_BYTES:,}")


class Zstandard(io.RawIOBase):
    """All frames of a Zstandard stream; zstandard's own reader takes a file cut off within a frame for its end."""

    def __init__(self, stream: IO[bytes], dictionary: zstandard.ZstdCompressionDict | None = None) -> None:
        self._stream = stream
        self._decompressor = zstandard.ZstdDecompressor(dictionary, max_window_size=LARGEST_WINDOW_BYTES)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            compressed = self._frame.unused_data if self._frame and self._frame.eof else b""
            compressed = compressed or self._stream.read(ZSTD_PIECE_BYTES)
            if not compressed:
                return self._end()
            if self._frame is None or self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._ready = memoryview(self._frame.decompress(compressed))
        taken = self._ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self._ready = self._ready[len(taken) :]
        return len(taken)

    def _end(self) -> int:
        if self._frame is not None and not self._frame.eof:
            raise EOFError("it ends within a Zstandard frame: the file was cut off")
        return 0
