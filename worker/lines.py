"""The lines of files that hold no pages: verdicts, dead letters, takedowns, exports, pairs, URLs; compressed or not.

Their lines are short. So a file without an end of line (another kind, a device, a bomb) is refused, not held whole.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from worker import compression
from worker.errors import InputError

LONGEST_LINE_BYTES = 16 << 20


def lines_in(path: Path) -> Iterator[tuple[int, bytes]]:
    """Those of a file, see `lines_of`.

    Raises:
        InputError: it cannot be read, or a line is longer than LONGEST_LINE_BYTES.
    """
    with opened(path) as content:
        yield from lines_of(content)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file's content, decompressed; InputError: it cannot be read."""
    try:
        with io.FileIO(path) as file, compression.decompressed(file) as content:
            yield content
    except compression.ERRORS as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def lines_of(content: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, see `numbered`."""
    return ((number, line) for number, line in numbered(content) if line.strip())


def numbered(content: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """All lines, each with its number, from 1; a byte order mark before the first is none of it.

    Raises:
        OSError: a line is longer than LONGEST_LINE_BYTES; what reading a broken stream raises.
    """
    number = 0
    while line := next_line(content):
        number += 1
        yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def next_line(content: IO[bytes]) -> bytes:
    """The next line as it is; nothing at the end. Raises as `numbered` does."""
    line = content.readline(LONGEST_LINE_BYTES + 1)
    if len(line) > LONGEST_LINE_BYTES:
        raise OSError(f"a line has more than {LONGEST_LINE_BYTES:,} bytes: this is a file of another kind")
    return line
