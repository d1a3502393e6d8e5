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
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Metric, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.values import MultiProcessValue

from worker import logs
from worker.ageing.keeper import STEPS, keep
from worker.errors import UNREACHABLE_EXIT_CODE, WorkerError, exit_code_of, report
from worker.scratch import scratch_directory
from worker.settings import Settings
from worker.stopping import end_tracker, signals_held, stop_on_signals
from worker.stream import http
from worker.stream.consumer import check, run_consumer
from worker.stream.status import Status

log = logging.getLogger(__name__)

SCRATCH = "simhash-dedup-metrics-"
METRICS_BYTES = {
    "counter": 128 << 10,
    "histogram": 128 << 10,
    "gauge_livemostrecent": 128 << 10,
    "gauge_max": 128 << 10,
    "gauge_livesum": 1 << 20,  # the lag of each partition: 4,000 of them
}
"""Of the files that a process shares its metrics by, as prometheus-client calls them; `_reserve` says what for."""
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
        key: what the files of its metrics are called by. Started again it goes on with them, so they do not add up.
        do: is called in the process.
        status: of a consumer; None: it fills the archive.
    """

    name: str
    key: str
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
        yield _Work(f"consumer {number}", str(number), partial(_consume, settings, status), status)
    for step in STEPS if settings.archive is not None else ():
        yield _Work(f"the process that fills the archive ({step})", step, partial(_age, settings, step))


def _start(settings: Settings, work: _Work) -> _Supervised:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(settings, work))
    with signals_held():
        process.start()
    return _Supervised(work, process, time.monotonic())


def _consume(settings: Settings, status: Status) -> None:
    run_consumer(settings, CollectorRegistry(), status)


def _age(settings: Settings, step: str) -> None:
    os.nice(AGEING_NICENESS)
    keep(settings, step, CollectorRegistry())


def _child(settings: Settings, work: _Work) -> None:
    """The process; it ends when the supervisor does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logs.configure(settings.log_level, settings.log_format, whose=work.name)
    try:
        _reserve(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]), work.key)
        values.ValueClass = MultiProcessValue(lambda: work.key)
        work.do()
    except Exception as error:
        report(error, work.name)
        sys.exit(exit_code_of(error))


def _reserve(directory: Path, key: str) -> None:
    """Take the room for a process's metrics before there are any.

    The client makes their files with holes and writes to them as memory. A process that writes into a hole of a full
    disk is killed (SIGBUS), though nothing but its metrics were at stake.

    Raises:
        WorkerError: there is no room.
    """
    for kind, size in METRICS_BYTES.items():
        descriptor = os.open(directory / f"{kind}_{key}.db", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            raise WorkerError(f"no room for metrics in {directory} (TMPDIR says where): {error}") from error
        finally:
            os.close(descriptor)


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
    mark_process_dead(child.work.key)


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
