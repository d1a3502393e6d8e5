"""Compressed input, recognised by its first bytes; a file that is cut off is an error, never a quiet end.

Memory stays bounded whatever the ratio: pages are wanted a piece at a time.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, cast

import zstandard

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BUFFER_BYTES = 1 << 20
ZSTD_PIECE_BYTES = 1 << 10
"""Compressed bytes taken at once: a block of 4 bytes can stand for 128 KiB, so these can for 32 MiB."""
LARGEST_WINDOW_BYTES = 1 << 31
"""What `zstd --long=31` makes; the program's own default would be 128 MiB."""

ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""What reading a broken stream raises."""


def decompressed(stream: io.RawIOBase, expected: bytes = b"") -> IO[bytes]:
    """The stream, through the decompressor that its first bytes ask for.

    Args:
        expected: the first bytes that the file's name promises.

    Raises:
        EOFError, OSError: the stream is not what is `expected`.
    """
    buffered: io.BufferedReader = io.BufferedReader(stream, BUFFER_BYTES)
    magic = buffered.peek(len(ZSTD_MAGIC))[: len(ZSTD_MAGIC)]
    if not magic.startswith(expected):
        raise OSError(f"begins with {magic!r}, not with {expected!r} as its name says")
    if magic.startswith(GZIP_MAGIC):
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
    if magic == ZSTD_MAGIC:
        return io.BufferedReader(_Zstandard(buffered), BUFFER_BYTES)
    return buffered


class _Zstandard(io.RawIOBase):
    """All frames of a Zstandard stream; zstandard's own reader takes a file cut off within a frame for its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW_BYTES)
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
