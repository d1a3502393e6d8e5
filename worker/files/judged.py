"""File mode: the judgement of the stream over files, in input order, with nothing to start."""

from __future__ import annotations

import base64
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
import xxhash

from simhash.errors import IndexMigrated
from simhash.index import Index
from simhash.signature.profiles import Profile
from worker.errors import InputError
from worker.files.inputs import Input
from worker.files.reading_ahead import Item, Reader
from worker.files.summary import Summary
from worker.judging.fingerprinters import Fingerprinters, Outcome, Pending
from worker.judging.judge import Judged, Prepared, Rejected, judge
from worker.records.passing import RawRecord, Source
from worker.records.verdict import encode

log = logging.getLogger(__name__)

BATCH_RECORDS = 128
BATCH_BYTES = 8 << 20
POLL_SECONDS = 0.2
HUNGRY_WAIT_SECONDS = 0.01
"""The wait for results while more batches may be under way: more of the inputs may have been read by then."""
STANDARD_OUTPUT = 1
UNNAMED = "simhash-dedup.rejected{}.jsonl"
LARGEST_KEPT_VALUE = 1 << 20
"""A rejected record's bytes are written out up to here; of a longer one, its size and digest."""


@dataclass(frozen=True)
class Places:
    """Where a run writes; `verdicts` None: standard output. Others are not written when None.

    Attributes:
        rejected: None: a new file in `beside`, made when the first record is rejected.
    """

    verdicts: Path | None
    unique: Path | None = None
    rejected: Path | None = None
    summary: Path | None = None
    beside: Path = Path()

    @property
    def unique_index(self) -> Path | None:
        """Beside the unique pages."""
        return self.unique and self.unique.with_name(self.unique.name + ".index")

    def files(self) -> list[Path]:
        """All of them."""
        places = (self.verdicts, self.unique, self.unique_index, self.rejected, self.summary)
        return [place for place in places if place is not None]


class Outputs:
    """Where a run writes: verdicts, and optionally the unique pages with their index, and what was rejected.

    The unique pages' index has a line for each page: its URL, its `seq`, and the offset and length in bytes of its
    line in the file.

    Raises (all methods): InputError, naming the file: it cannot be written. BrokenPipeError: nobody reads any more.
    """

    def __init__(self, places: Places) -> None:
        self._stack = ExitStack()
        self._offset = 0
        # Opened now, so that what cannot be written is said now and not after hours.
        self._verdicts = self._open(places.verdicts) or self._standard()
        self._unique = self._open(places.unique)
        self._index = self._open(places.unique_index)
        self._rejected = self._open(places.rejected)
        self._beside = places.beside
        self._figures = self._open(places.summary)

    def _open(self, path: Path | None) -> _Output | None:
        if path is None:
            return None
        with _writing(str(path)):
            return _Output(str(path), self._stack.enter_context(path.open("wb")))

    def _standard(self) -> _Output:
        # Not sys.stdout: what is left in its buffer when a pipe breaks would be written once more at exit.
        opened = os.fdopen(STANDARD_OUTPUT, "wb", closefd=False)
        return _Output("standard output", self._stack.enter_context(opened))

    def verdict(self, record: RawRecord, judged: Judged) -> None:
        """Write a verdict, and the page if it is unique."""
        self._verdicts.write(encode(judged.verdict) + b"\n")
        if self._unique and self._index and judged.verdict.verdict == "unique":
            line = _line(record)
            entry = {"url": judged.verdict.url, "seq": judged.verdict.seq, "offset": self._offset, "length": len(line)}
            self._unique.write(line)
            self._index.write(msgspec.json.encode(entry) + b"\n")
            self._offset += len(line)

    def rejection(self, name: str, record: RawRecord | None, rejection: Rejected) -> None:
        """Write what was rejected, why, and its bytes."""
        if self._rejected is None:
            self._rejected = self._new_file()
        self._rejected.write(rejection_line(name, record, rejection))

    @property
    def rejected_in(self) -> str | None:
        """Where rejected records are; None: nowhere yet."""
        return self._rejected.name if self._rejected else None

    def _new_file(self) -> _Output:
        """For rejected records that nobody named a file for."""
        for number in itertools.count(1):
            path = self._beside / UNNAMED.format("" if number == 1 else f"-{number}")
            with _writing(str(path)), suppress(FileExistsError):
                return _Output(str(path), self._stack.enter_context(path.open("xb")))
        raise AssertionError

    def flush(self) -> None:
        """Let readers of the verdicts have what is written."""
        self._verdicts.flush()

    def finish(self, summary: Summary) -> None:
        """Write the summary, and what is left in buffers."""
        if self._figures:
            self._figures.write(msgspec.json.format(msgspec.json.encode(summary.figures())) + b"\n")
        for each in (self._verdicts, self._unique, self._index, self._rejected, self._figures):
            if each:
                each.flush()

    def close(self) -> None:
        """Close what this opened; after a failure, what could not be written has been said already."""
        with suppress(OSError):
            self._stack.close()


@dataclass(frozen=True)
class _Output:
    name: str
    file: IO[bytes]

    def write(self, data: bytes) -> None:
        with _writing(self.name):
            self.file.write(data)

    def flush(self) -> None:
        with _writing(self.name):
            self.file.flush()


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """Say which file a failed write was for."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error


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


def _line(record: RawRecord) -> bytes:
    """A page as a line of JSONL: its own line, or one made for a page that came in another container."""
    page = record.page
    if page is None:
        return (record.value or b"").removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n") + b"\n"
    content = base64.b64encode(page.raw).decode()
    fields = {"url": page.url, "html_base64": content, "charset": page.charset}
    fields |= {"id": page.id, "fetched_at": page.fetched_at}
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None}) + b"\n"


def _kept(value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    if len(value) > LARGEST_KEPT_VALUE:
        return {"value_digest": f"{len(value)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(value)}"}
    return {"value_base64": base64.b64encode(value).decode()}


@dataclass
class _Batch:
    items: Sequence[Item]
    pending: Pending


@dataclass
class Bench:
    """What pages are judged with.

    Attributes:
        reopen: opens the index once more: it was migrated.
    """

    profile: Profile
    index: Index
    fingerprinters: Fingerprinters
    reopen: Callable[[], Index]

    def judge(self, pages: Sequence[Prepared]) -> list[Judged]:
        """The verdicts. A batch that a migration interrupts is judged again: its pages keep the answers they have."""
        while True:
            try:
                return judge(pages, self.index, self.profile)
            except IndexMigrated as error:
                log.warning("%s: opening it again", error)
                self.index = self.reopen()


def run_files(
    inputs: Sequence[Input],
    outputs: Outputs,
    bench: Bench,
    stopping: threading.Event,
    on_progress: Callable[[Summary], None],
) -> Summary:
    """Judge all pages of `inputs`, in order, until `stopping` is set.

    Raises:
        InputError: an input cannot be read, or an output written; what came before is judged and written.
        IndexFault: the index cannot answer.
    """
    summary = Summary()
    start = time.monotonic()
    under_way: deque[_Batch] = deque()
    reader = Reader(inputs)
    deep = 2 * bench.fingerprinters.processes + 1
    while not stopping.is_set():
        if len(under_way) < deep:
            under_way.extend(_begun(reader, bench, timeout=0.0 if under_way else POLL_SECONDS))
        if under_way and under_way[0].pending.ready(HUNGRY_WAIT_SECONDS if len(under_way) < deep else POLL_SECONDS):
            _settle(under_way.popleft(), bench, outputs, summary)
        elif not under_way and reader.ended():
            summary.complete = True
            break
        summary.seconds = time.monotonic() - start
        on_progress(summary)
    summary.skipped = sum(each.skipped for each in inputs)
    return summary


def _begun(reader: Reader, bench: Bench, timeout: float) -> Iterator[_Batch]:
    """The next batch, being prepared, if there is one by now."""
    if items := reader.take(BATCH_RECORDS, BATCH_BYTES, timeout):
        raw = [item.record for item in items if isinstance(item.record, RawRecord)]
        yield _Batch(items, bench.fingerprinters.submit(raw))


def _settle(batch: _Batch, bench: Bench, outputs: Outputs, summary: Summary) -> None:
    """Judge a batch and write it, refused records in their places."""
    outcomes: dict[Source, Outcome] = {o.source: o for o in batch.pending.results()}
    pages = [o for o in outcomes.values() if isinstance(o, Prepared)]
    judged = {j.verdict.observation: j for j in bench.judge(pages)}
    for name, record in batch.items:
        outcome = record if isinstance(record, Rejected) else outcomes[record.source]
        raw = record if isinstance(record, RawRecord) else None
        if isinstance(outcome, Rejected):
            summary.reject(outcome.stage, outcome.message)
            outputs.rejection(name, raw, outcome)
        elif raw is not None:
            verdict = judged[outcome.observation.hex()]
            summary.count(verdict.verdict)
            outputs.verdict(raw, verdict)
    outputs.flush()
