"""Reading ahead: inputs are read in a thread of its own, so that a slow pipe neither delays the verdicts on what has
come nor keeps the run from being stopped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from worker.files.inputs import Input, Record
from worker.judging.judge import Rejected

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
