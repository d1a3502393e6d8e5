"""What a run over files writes, and where: verdicts, unique pages, what was rejected, the summary."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from worker.errors import InputError
from worker.files.inputs import Input
from worker.files.locations import opened
from worker.files.pages_out import ANNOTATION, Output, index_of, is_of_inputs, pages_out, writing
from worker.files.summary import Summary
from worker.judging.judge import Judged, Rejected
from worker.records.passing import RawRecord
from worker.records.verdict import encode

STANDARD_OUTPUT = 1
UNNAMED = "simhash-dedup.rejected{}.jsonl"
LARGEST_KEPT_VALUE = 1 << 20
"""A rejected record's bytes are written out up to here; of a longer one, its size and digest."""


@dataclass(frozen=True)
class OutputPaths:
    """Where a run writes; `verdicts` None: standard output. Others are not written when None.

    Attributes:
        rejected: None: a new file in `beside`, made when the first record is rejected.
    """

    verdicts: Path | None
    unique: Path | None = None
    rejected: Path | None = None
    summary: Path | None = None
    beside: Path = Path()
    annotated: Path | None = None

    @property
    def unique_index(self) -> Path | None:
        """Beside the unique pages, where they are lines."""
        return None if self.unique is None or is_of_inputs(self.unique) else index_of(self.unique)

    def files(self) -> list[Path]:
        """All of them."""
        places = (self.verdicts, self.unique, self.unique_index, self.annotated, self.rejected, self.summary)
        return [place for place in places if place is not None]


class Outputs:
    """Where a run writes: verdicts, and optionally the unique pages, and what was rejected.

    Args:
        inputs: what is read, where tables are written of tables.

    Raises (all methods): InputError, naming the file: it cannot be written. BrokenPipeError: nobody reads any more.
    """

    def __init__(self, places: OutputPaths, inputs: Sequence[Input] = ()) -> None:
        self._stack = ExitStack()
        self._opened: list[Output] = []
        # Opened now, so that what cannot be written is said now and not after hours.
        self._verdicts = self._open(places.verdicts) if places.verdicts else self._standard()
        self._unique = pages_out(places.unique, inputs, self._open) if places.unique else None
        self._annotated = pages_out(places.annotated, inputs, self._open, ANNOTATION) if places.annotated else None
        self._rejected = self._open(places.rejected) if places.rejected else None
        self._beside = places.beside
        self._figures = self._open(places.summary) if places.summary else None

    def _open(self, path: Path) -> Output:
        with writing(str(path)):
            output = Output(str(path), self._stack.enter_context(opened(path, "wb")))
        self._opened.append(output)
        return output

    def _standard(self) -> Output:
        # Not sys.stdout: what is left in its buffer when a pipe breaks would be written once more at exit.
        opened = os.fdopen(STANDARD_OUTPUT, "wb", closefd=False)
        return Output("standard output", self._stack.enter_context(opened))

    def verdict(self, record: RawRecord, judged: Judged) -> None:
        """Write a verdict, and of the page what the other files hold of it."""
        self._verdicts.write(encode(judged.verdict) + b"\n")
        for pages in (self._unique, self._annotated):
            if pages:
                pages.write(record, judged.verdict)

    def rejection(self, name: str, record: RawRecord | None, rejection: Rejected) -> None:
        """Write what was rejected, why, and its bytes."""
        if self._rejected is None:
            self._rejected = self._new_file()
        self._rejected.write(rejection_line(name, record, rejection))

    @property
    def rejected_in(self) -> str | None:
        """Where rejected records are; None: nowhere yet."""
        return self._rejected.name if self._rejected else None

    def _new_file(self) -> Output:
        """For rejected records that nobody named a file for."""
        for number in itertools.count(1):
            path = self._beside / UNNAMED.format("" if number == 1 else f"-{number}")
            with writing(str(path)), suppress(FileExistsError):
                return Output(str(path), self._stack.enter_context(path.open("xb")))
        raise AssertionError

    def flush(self) -> None:
        """Let readers of the verdicts have what is written."""
        self._verdicts.flush()

    def finish(self, summary: Summary) -> None:
        """Write the summary, and what is left in buffers."""
        if self._figures:
            self._figures.write(msgspec.json.format(msgspec.json.encode(summary.figures())) + b"\n")
        self._finish_pages()
        for each in (self._verdicts, self._rejected, self._figures):
            if each:
                each.flush()
        for output in self._opened:  # what goes elsewhere is there when it is closed, and not before
            output.close()

    def _finish_pages(self) -> None:
        pages, self._unique, self._annotated = (self._unique, self._annotated), None, None
        for each in pages:
            if each:
                each.finish()

    def close(self) -> None:
        """Close what this opened; after a failure, what could not be written has been said already."""
        with suppress(OSError, InputError):
            self._finish_pages()
        with suppress(OSError):
            self._stack.close()


def rejection_line(name: str, record: RawRecord | None, rejection: Rejected) -> bytes:
    """What is written of a rejected record: a line of JSON, its bytes in it as far as they are kept.

    Args:
        name: of its input, as it was given.
        record: None where even its bytes could not be had.
    """
    entry = {
        "input": name.encode("utf-8", "replace").decode(),
        "record": rejection.source.offset,
        "source": rejection.source._asdict(),
        "stage": rejection.stage,
        "error": rejection.error,
        "message": rejection.message,
    } | _kept(record.value if record else None)
    return msgspec.json.encode(entry) + b"\n"


def _kept(value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    if len(value) > LARGEST_KEPT_VALUE:
        return {"value_digest": f"{len(value)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(value)}"}
    return {"value_base64": base64.b64encode(value).decode()}
