"""SIGTERM and SIGINT as an event that loops look at; and processes that do not hear them before they are ready to."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from queue import SimpleQueue
from types import FrameType

log = logging.getLogger(__name__)

STOPPING = signal.SIGTERM, signal.SIGINT


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; a second Ctrl-C ends the process at once.

    A second SIGTERM does not: one that is sent to all processes of a group comes to a consumer from the supervisor too.

    The handler runs in the midst of whatever the main thread does, such as looking at the event, whose lock it then
    holds, or the handler itself. So it only leaves word, in a queue made for that, and a thread does the rest.
    """
    stopping = threading.Event()
    came: SimpleQueue[int | None] = SimpleQueue()
    interrupted = False

    def note(number: int, _: FrameType | None) -> None:
        nonlocal interrupted
        if number == signal.SIGINT and interrupted:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        interrupted |= number == signal.SIGINT
        came.put(number)

    def heed() -> None:
        while (number := came.get()) is not None:
            if not stopping.is_set():
                log.info("%s: stopping", signal.Signals(number).name)
            stopping.set()

    thread = threading.Thread(target=heed, name="stop-on-signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, note) for number in STOPPING}
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(None)
        thread.join()


@contextmanager
def signals_held() -> Iterator[None]:
    """Processes that are started meanwhile hear SIGTERM and SIGINT only from their `stop_on_signals` on, or never.

    What comes before is kept for then. Who is told to stop while it still imports modules would die with a traceback.
    """
    resource_tracker.ensure_running()  # else the first process would start it, and let the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_tracker() -> None:
    """End the process that multiprocessing starts beside the first one, when all of them have ended.

    Left to itself it would end a moment behind us: who waits for a command waits for all of its processes.
    """
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # of which Python has no public name
