"""`run --processes N`: N consumers of the group, started, watched and restarted by one supervisor; with an archive,
also the processes that fill it.

A process that ends by itself is started again, later each time; one that ends because an operator must act (settings,
topics, an index of another make, a rewound group) ends them all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import SpawnProcess
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from worker import logs
from worker.ageing.keeper import STEPS, keep
from worker.errors import UNREACHABLE_EXIT_CODE, exit_code_of, report
from worker.scratch import scratch_directory
from worker.settings import Settings
from worker.stopping import end_tracker, signals_held, stop_on_signals
from worker.stream import http
from worker.stream.consumer import check, run_consumer
from worker.stream.status import Status

log = logging.getLogger(__name__)

SCRATCH = "simhash-dedup-metrics-"
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 120.0
"""A consumer that ran for this long failed by chance: it is started again as soon as a new one."""
STOP_SECONDS = 30.0
AGEING_NICENESS = 5
"""What fills the archive gives way to the consumers on a machine that has no core to spare."""
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


@dataclass(frozen=True)
class _Work:
    """What a process is to do.

    Attributes:
        name: of it, for messages.
        do: is called in the process.
        status: of a consumer; None: it fills the archive.
    """

    name: str
    do: Callable[[], None]
    status: Status | None = None


@dataclass
class _Supervised:
    """A process, and when to start it again."""

    work: _Work
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
    with scratch_directory(SCRATCH) as (directory, _), stop_on_signals() as stopping:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)  # read by the children when they import the client
        registry = CollectorRegistry()
        registry.register(ConsumersCollector(str(directory)))
        statuses = [Status() for _ in range(settings.processes)]
        server = http.serve(settings.metrics_address, registry, statuses, settings.stuck_after)
        children: list[_Supervised] = []
        try:
            children += [_start(settings, work) for work in _works(settings, statuses)]
            return _watch(settings, children, stopping)
        finally:
            _stop(children)
            end_tracker()
            if server:
                server.shutdown()


def _works(settings: Settings, statuses: Iterable[Status]) -> Iterator[_Work]:
    for number, status in enumerate(statuses):
        yield _Work(f"consumer {number}", partial(_consume, settings, status), status)
    for step in STEPS if settings.archive is not None else ():
        yield _Work(f"the process that fills the archive ({step})", partial(_age, settings, step))


def _start(settings: Settings, work: _Work) -> _Supervised:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(settings, work.name, work.do))
    with signals_held():
        process.start()
    return _Supervised(work, process, time.monotonic())


def _consume(settings: Settings, status: Status) -> None:
    run_consumer(settings, CollectorRegistry(), status)


def _age(settings: Settings, step: str) -> None:
    os.nice(AGEING_NICENESS)
    keep(settings, step, CollectorRegistry())


def _child(settings: Settings, name: str, do: Callable[[], None]) -> None:
    """The process; it ends when the supervisor does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logs.configure(settings.log_level, settings.log_format, whose=name)
    try:
        do()
    except Exception as error:
        report(error, name)
        sys.exit(exit_code_of(error))


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _watch(settings: Settings, children: list[_Supervised], stopping: threading.Event) -> int:
    while not stopping.wait(0.2):
        for number, child in enumerate(children):
            code = child.process.exitcode
            if code is None:
                continue
            if code in NEEDS_OPERATOR:
                return code
            if child.again_at is None:
                _note_end(child, code)
            elif time.monotonic() >= child.again_at:
                children[number] = _start(settings, child.work)
                children[number].pause = min(2 * child.pause, LONGEST_PAUSE_SECONDS)
    return 0


def _note_end(child: _Supervised, code: int) -> None:
    if time.monotonic() - child.started > STEADY_SECONDS:
        child.pause = FIRST_PAUSE_SECONDS
    log.error("%s ended with %d; it is started again in %.0f s", child.work.name, code, child.pause)
    child.again_at = time.monotonic() + child.pause
    if child.work.status is not None:
        child.work.status.ready(assigned=False)
        child.work.status.progress()
    mark_process_dead(child.process.pid)


def _stop(children: list[_Supervised]) -> None:
    told = [child for child in children if child.process.exitcode is None]
    for child in told:
        child.process.terminate()
    end = time.monotonic() + STOP_SECONDS
    for child in told:
        process, name = child.process, child.work.name
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode is None:
            log.error("%s did not stop within %.0f s: it is killed", name, STOP_SECONDS)
            process.kill()
            process.join()
        elif process.exitcode:
            log.error("%s ended with %d when it was to stop", name, process.exitcode)
