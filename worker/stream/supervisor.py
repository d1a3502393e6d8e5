"""`run --processes N`: N consumers of the group, started, watched and restarted by one supervisor.

A consumer that ends by itself is started again, later each time; one that ends because an operator must act (settings,
topics, an index of another make, a rewound group) ends them all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from worker import logs
from worker.errors import UNREACHABLE_EXIT_CODE
from worker.failure import exit_code_of, report
from worker.settings import Settings
from worker.stopping import signals_held, stop_on_signals
from worker.stream import http
from worker.stream.consumer import check, run_consumer
from worker.stream.status import Status

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 120.0
"""A consumer that ran for this long failed by chance: it is started again as soon as a new one."""
STOP_SECONDS = 30.0
COLLECT_TRIES, COLLECT_PAUSE_SECONDS = 5, 0.05
NEEDS_OPERATOR = range(2, UNREACHABLE_EXIT_CODE)
"""Exit codes that a restart does not mend (see worker.errors)."""


class ConsumersCollector(Collector):
    """The metrics of all consumers, from the files that they share in a directory.

    A file that a consumer is making just now cannot be read yet, but a moment later.
    """

    def __init__(self, directory: str) -> None:
        self._files: Any = MultiProcessCollector(None, directory)  # its types are not given

    def collect(self) -> Iterable[Metric]:
        """The metrics, summed or as their kinds want it."""
        for _ in range(COLLECT_TRIES - 1):
            try:
                return list(self._files.collect())
            except (struct.error, RuntimeError, ValueError):
                time.sleep(COLLECT_PAUSE_SECONDS)
        return list(self._files.collect())


@dataclass
class _Consumer:
    """A consumer process, and when to start it again."""

    status: Status
    process: SpawnProcess
    started: float
    pause: float = FIRST_PAUSE_SECONDS
    again_at: float | None = None


def supervise(settings: Settings) -> int:
    """Run `settings.processes` consumers until SIGTERM or SIGINT; returns the exit code.

    Raises:
        WorkerError, IndexFault: something is wrong from the start; no consumer was started.
    """
    check(settings)
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-metrics-") as directory, stop_on_signals() as stopping:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory  # read by the children when they import the client
        registry = CollectorRegistry()
        registry.register(ConsumersCollector(directory))
        statuses = [Status() for _ in range(settings.processes)]
        server = http.serve(settings.metrics_address, registry, statuses, settings.stuck_after)
        consumers: list[_Consumer] = []
        try:
            consumers += [_start(settings, status) for status in statuses]
            return _watch(settings, consumers, stopping)
        finally:
            _stop(consumers)
            if server:
                server.shutdown()


def _start(settings: Settings, status: Status) -> _Consumer:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(settings, status))
    with signals_held():
        process.start()
    return _Consumer(status, process, time.monotonic())


def _child(settings: Settings, status: Status) -> None:
    """The consumer process; it ends when the supervisor does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logs.configure(settings.log_level, settings.log_format)
    try:
        run_consumer(settings, CollectorRegistry(), status)
    except Exception as error:
        report(error)
        sys.exit(exit_code_of(error))


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _watch(settings: Settings, consumers: list[_Consumer], stopping: threading.Event) -> int:
    while not stopping.wait(0.2):
        for number, consumer in enumerate(consumers):
            code = consumer.process.exitcode
            if code is None:
                continue
            if code in NEEDS_OPERATOR:
                return code
            if consumer.again_at is None:
                _note_end(consumer, number, code)
            elif time.monotonic() >= consumer.again_at:
                consumers[number] = _start(settings, consumer.status)
                consumers[number].pause = min(2 * consumer.pause, LONGEST_PAUSE_SECONDS)
    return 0


def _note_end(consumer: _Consumer, number: int, code: int) -> None:
    if time.monotonic() - consumer.started > STEADY_SECONDS:
        consumer.pause = FIRST_PAUSE_SECONDS
    log.error("consumer %d ended with %d; it is started again in %.0f s", number, code, consumer.pause)
    consumer.again_at = time.monotonic() + consumer.pause
    consumer.status.ready(assigned=False)
    consumer.status.progress()
    mark_process_dead(consumer.process.pid)


def _stop(consumers: list[_Consumer]) -> None:
    told = [(number, each.process) for number, each in enumerate(consumers) if each.process.exitcode is None]
    for _, process in told:
        process.terminate()
    end = time.monotonic() + STOP_SECONDS
    for number, process in told:
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode is None:
            log.error("consumer %d did not stop within %.0f s: it is killed", number, STOP_SECONDS)
            process.kill()
            process.join()
        elif process.exitcode:
            log.error("consumer %d ended with %d when it was to stop", number, process.exitcode)
