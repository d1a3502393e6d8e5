"""File mode: the judgement of the stream over files, in input order, with nothing to start.

Inputs are read ahead in a thread of its own, so that a slow pipe neither delays the verdicts on what has come nor keeps
the run from being stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simhash.errors import IndexMigrated
from simhash.index import Index
from simhash.signature.profiles import Profile
from worker.files.inputs import Input, Record
from worker.files.outputs import Outputs
from worker.files.summary import Summary
from worker.judging.fingerprinters import Fingerprinters, Outcome, Pending
from worker.judging.judge import Judged, Prepared, Rejected, judge
from worker.records.passing import RawRecord, Source

log = logging.getLogger(__name__)

BATCH_RECORDS = 128
BATCH_BYTES = 8 << 20
POLL_SECONDS = 0.2
HUNGRY_WAIT_SECONDS = 0.01
"""The wait for results while more batches may be under way: more of the inputs may have been read by then."""


@dataclass
class _Batch:
    items: Sequence[NamedRecord]
    pending: Pending


@dataclass
class Workbench:
    """What pages are judged with.

    Attributes:
        reopen: opens the index once more: it was migrated.
        versions: see `judge`.
    """

    profile: Profile
    index: Index
    fingerprinters: Fingerprinters
    reopen: Callable[[], Index]
    versions: bool = False

    def judge(self, pages: Sequence[Prepared]) -> list[Judged]:
        """The verdicts. A batch that a migration interrupts is judged again: its pages keep the answers they have."""
        while True:
            try:
                return judge(pages, self.index, self.profile, versions=self.versions)
            except IndexMigrated as error:
                log.warning("%s: opening it again", error)
                self.index = self.reopen()


def run_files(
    inputs: Sequence[Input],
    outputs: Outputs,
    bench: Workbench,
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
    reader = Reader(inputs, BATCH_RECORDS, BATCH_BYTES)
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


def _begun(reader: Reader, bench: Workbench, timeout: float) -> Iterator[_Batch]:
    """The next batch, being prepared, if there is one by now."""
    if items := reader.take(timeout):
        raw = [RawRecord(*item.record[:-1]) for item in items if isinstance(item.record, RawRecord)]  # without `whole`
        yield _Batch(items, bench.fingerprinters.submit(raw))


def _settle(batch: _Batch, bench: Workbench, outputs: Outputs, summary: Summary) -> None:
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


# Reading ahead --------------------------------------------------------------------------------------------------------

MAX_RECORDS = 512
MAX_BYTES = 32 << 20
"""Read ahead so far, and no further, except for one record."""
LINGER_SECONDS = 0.05
"""How long a batch that is not full waits for more."""


class NamedRecord(NamedTuple):
    """A record and the name of its input."""

    name: str
    record: Record


class Reader:
    """The records of `inputs`, in order, taken by batches; a failure comes after all records before it.

    Args:
        most, largest: of a batch: its records at most, and about how many bytes.
    """

    def __init__(self, inputs: Sequence[Input], most: int, largest: int) -> None:
        self._inputs = inputs
        self._most, self._largest = most, largest
        self._items: deque[NamedRecord] = deque()
        self._bytes = 0
        self._failure: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def ended(self) -> bool:
        """Whether all was taken.

        Raises:
            InputError: an input could not be read to its end; all before that place was taken.
        """
        with self._changed:
            if self._items or not self._ended:
                return False
            if self._failure:
                raise self._failure
            return True

    def take(self, timeout: float) -> list[NamedRecord]:
        """The next batch; none when no record comes for `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended, timeout)
            if not self._items:
                return []
            end = time.monotonic() + LINGER_SECONDS
            self._changed.wait_for(self._enough, end - time.monotonic())
            taken: list[NamedRecord] = []
            size = 0
            while self._items and len(taken) < self._most and size < self._largest:
                taken.append(self._items.popleft())
                size += _size(taken[-1].record)
            self._bytes -= size
            self._changed.notify_all()
            return taken

    def _enough(self) -> bool:
        """Whether there is a batch."""
        return self._ended or len(self._items) >= self._most or self._bytes >= self._largest

    def _read(self) -> None:
        try:
            for each in self._inputs:
                for record in each.records():
                    self._put(NamedRecord(each.name, record))
        except BaseException as error:
            self._failure = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _put(self, item: NamedRecord) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < MAX_RECORDS and self._bytes < MAX_BYTES)
            self._items.append(item)
            self._bytes += _size(item.record)
            if len(self._items) == 1 or self._enough():  # nobody waits for less: to wake it costs more than the record
                self._changed.notify_all()


def _size(record: Record) -> int:
    return 0 if isinstance(record, Rejected) else record.size
