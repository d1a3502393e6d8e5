"""What failures cost: a pause that doubles from one to the next, smaller batches where these took too long, and an end
when they last or fences come too often.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from worker.errors import BrokerError, BrokerUnreachable, Fenced, NobodyAnswers

log = logging.getLogger(__name__)
T = TypeVar("T")

SHORTEST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
FENCES_TOO_MANY = 5
FENCING_SECONDS = 120.0
START_SECONDS = 30.0
"""In so long a cluster has given to other brokers what one that is gone has led."""
EASY_COMMITS = 8
"""After so many commits in a row batches may be twice as large again."""
MOST_HALVINGS = 14
"""So often the largest `batch_pages` can be halved."""


class Backoff:
    """Failures in a row, of a loop that ends when `stopping` is set.

    Attributes:
        halvings: so often the most that a batch may hold is to be halved: once more after each that took too long, once
            less after `EASY_COMMITS`. Behind a narrow line, or a broker's quota, a full batch may take longer than a
            transaction may; it would be read again, as large as before, for ever.
    """

    def __init__(self, stopping: threading.Event) -> None:
        self.halvings = 0
        self._stopping = stopping
        self._pause_seconds = 0.0
        self._commits = 0
        self._fenced_at: deque[float] = deque(maxlen=FENCES_TOO_MANY)

    def overcome(self) -> None:
        """A batch was committed: the next pause is short again."""
        self._pause_seconds = 0.0
        self._commits += 1
        if self._commits % EASY_COMMITS == 0:
            self.halvings = max(0, self.halvings - 1)

    def took_too_long(self) -> None:
        """No answer came in the time that a transaction has: the next batch is to be smaller."""
        self._commits, self.halvings = 0, min(self.halvings + 1, MOST_HALVINGS)

    def pause(self, error: Exception) -> None:
        """Say what failed, and wait."""
        self._pause_seconds = min(max(SHORTEST_PAUSE_SECONDS, 2 * self._pause_seconds), LONGEST_PAUSE_SECONDS)
        log.warning("%s; again in %.1f s", error, self._pause_seconds)
        self._stopping.wait(self._pause_seconds)

    def count_fence(self, error: Exception) -> None:
        """One fence is a worker that was given up and came back; many in a row are two that share an id.

        Raises:
            BrokerError: they are many in a row.
        """
        if not isinstance(error, Fenced):
            return
        now = time.monotonic()
        self._fenced_at.append(now)
        if len(self._fenced_at) == self._fenced_at.maxlen and now - self._fenced_at[0] < FENCING_SECONDS:
            raise BrokerError(
                f"fenced {len(self._fenced_at)} times within {FENCING_SECONDS:.0f} s: another live worker uses the "
                "same transactional id; give each its own (transactional_id)"
            ) from error


def patiently(step: Callable[[], T], stopping: threading.Event) -> T:
    """What a step of the start comes to; tried again while some brokers answer and one does not.

    Raises:
        NobodyAnswers: at once.
        BrokerUnreachable: after `START_SECONDS`, or when it is time to stop.
    """
    backoff, end = Backoff(stopping), time.monotonic() + START_SECONDS
    while True:
        try:
            return step()
        except NobodyAnswers:
            raise
        except BrokerUnreachable as error:
            if stopping.is_set() or time.monotonic() > end:
                raise
            backoff.pause(error)
