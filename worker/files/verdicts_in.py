"""Verdicts in a file, as `file` and `batch` write them or a consumer of the verdict topic."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from worker import compression
from worker.errors import InputError
from worker.records.verdict import Verdict, decode


def verdicts_in(path: Path) -> Iterator[Verdict]:
    """The verdicts of a file, one a line, in order (also .gz, .zst); blank lines are passed over.

    Raises:
        InputError: it cannot be read, or a line is no verdict.
    """
    try:
        with compression.decompressed(io.FileIO(path)) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield _verdict(path, number, line)
    except compression.ERRORS as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _verdict(path: Path, number: int, line: bytes) -> Verdict:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {number}: not a verdict: {error}") from error
