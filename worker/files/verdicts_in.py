"""Verdicts in a file, as `file` and `batch` write them or a consumer of the verdict topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from worker.errors import InputError
from worker.lines import lines_in
from worker.records.verdict import Verdict, decode


def verdicts_in(path: Path) -> Iterator[Verdict]:
    """The verdicts of a file, one a line, in order (also .gz, .zst); blank lines are passed over.

    Raises:
        InputError: it cannot be read, or a line is no verdict.
    """
    for number, line in lines_in(path):
        try:
            yield decode(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}, line {number}: not a verdict: {error}") from error
