"""Whether a worker makes progress and is ready, shared between the process that works and the one that answers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time

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
