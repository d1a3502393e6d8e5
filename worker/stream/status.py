"""Whether a worker makes progress and is ready, shared between the process that works and the one that answers; and
what its log tells of that now and then, for a terminal without a dashboard.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass

log = logging.getLogger(__name__)
STUCK_EXIT_CODE = 70


class Status:
    """Written by the loop; read by `/healthz`, `/readyz` and the watchdog, in this process or the supervisor's.

    Without locks: a consumer that is killed while it holds one would never give it back, and stop the supervisor too. A
    number of 8 bytes is written at once.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._progress = context.Value("d", time.monotonic(), lock=False)
        self._assigned = context.Value("b", False, lock=False)
        self._index = context.Value("b", False, lock=False)

    def progress(self) -> None:
        """The loop has come round."""
        self._progress.value = time.monotonic()

    def ready(self, *, assigned: bool | None = None, index: bool | None = None) -> None:
        """Note whether partitions are assigned, and whether the index answers."""
        if assigned is not None:
            self._assigned.value = assigned
        if index is not None:
            self._index.value = index

    def stuck_for(self) -> float:
        """Seconds since the loop last came round."""
        return time.monotonic() - float(self._progress.value)

    def why_not_ready(self) -> str | None:
        """What is missing; None: nothing."""
        if not self._assigned.value:
            return "no partitions assigned yet"
        return None if self._index.value else "the index does not answer"


def watch(status: Status, limit: float) -> None:
    """End this process, in a thread of its own, when its loop stands still for `limit` seconds.

    Kafka's client waits for the end of a transaction without a timeout; a supervisor or container engine that starts
    the process again is the only way out. The time counts from now: the status may be that of a consumer that was here
    before.
    """
    status.progress()

    def run() -> None:
        while status.stuck_for() < limit:
            time.sleep(min(limit / 4, 5.0))
        log.critical("the loop has stood still for %.0f s (stuck_after): ending this process", status.stuck_for())
        os._exit(STUCK_EXIT_CODE)

    threading.Thread(target=run, name="watchdog", daemon=True).start()


# Told in the log ------------------------------------------------------------------------------------------------------

PROGRESS_SECONDS = 30.0
RAREST_SECONDS = 600.0


@dataclass
class Progress:
    """What was done since it was last told in the log."""

    since: float
    unique: int = 0
    duplicate: int = 0
    rejected: int = 0

    def add(self, unique: int, duplicate: int, rejected: int) -> None:
        """Count a committed batch."""
        self.unique += unique
        self.duplicate += duplicate
        self.rejected += rejected

    def tell(self, now: float, lag: int) -> None:
        """Write a line when it is time and there is something to tell."""
        done, seconds = self.unique + self.duplicate + self.rejected, now - self.since
        if seconds < PROGRESS_SECONDS:
            return
        if done:
            log.info(
                "%d pages in %.0f s (%.0f/s): %d unique, %d duplicate, %d dead letters; %d to go",
                *(done, seconds, done / seconds, self.unique, self.duplicate, self.rejected, lag),
            )
        self.since, self.unique, self.duplicate, self.rejected = now, 0, 0, 0


@dataclass
class Idleness:
    """Why a worker has nothing to do, told when it has lasted for `patience` seconds, and again at twice the time."""

    patience: float
    since: float | None = None
    next: float = 0.0
    told: bool = False

    def look(self, now: float, reason: str) -> None:
        """There is nothing to do now, for this reason; empty: there is."""
        if not reason:
            if self.told and self.since is not None:
                log.info("goes on after %.0f s", now - self.since)
            self.since, self.told = None, False
            return
        if self.since is None:
            self.since, self.next = now, now + self.patience
        if now >= self.next:
            log.warning("nothing to do for %.0f s: %s", now - self.since, reason)
            self.told = True
            self.next = now + min(now - self.since, RAREST_SECONDS)
