"""The processes that let an index age while its workers run: one retires, one merges.

They are two, so that pages go to disk while old segments are merged, which may take hours. On each machine that runs
workers there are both; one at a time works, the others wait. What fails is tried again: nothing is lost
meanwhile, the index keeps what is not on the disk, and grows.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge

from simhash.archive.segments.contents import Contents, is_shared
from simhash.errors import IndexMigrated, IndexMisconfigured, IndexUnreachable, TableFault
from simhash.index.redis.operators.retiring import Retiring
from worker.ageing.segments import Ageing
from worker.index.configured import configured_profile, retention
from worker.index.stores import archive_of, connected_index
from worker.settings import Settings
from worker.stopping import stop_on_signals


@contextmanager
def alone(directory: Path, what: str) -> Iterator[bool]:
    """Whether nobody else does this in the directory now; if so, nobody else does until the end.

    A lock on a file, which ends with the program however that ends. It saves work, and is not needed for safety: the
    index is moved from one moment of its archive to the next by one of those who try (see
    `simhash.index.redis.operators.retiring`).
    """
    descriptor = os.open(directory / f".{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""Between two looks at what is due."""
STEPS = ("retire", "merge")


class BuildStopped(Exception):
    """Asked to stop in the middle of a build. The next one begins it anew, or goes on with it."""


class AgeingMetrics:
    """What an operator sees of an index that ages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pages = Gauge(
            "simhash_dedup_archive_pages",
            "Unique pages in the archive on disk",
            multiprocess_mode="livemostrecent",
            registry=registry,
        )
        self.segments = Gauge(
            "simhash_dedup_archive_segments",
            "Segments of the archive, each of which a page is held against",
            multiprocess_mode="livemostrecent",
            registry=registry,
        )
        self.retired = Counter(
            "simhash_dedup_retired_pages", "Unique pages moved from the index to its archive", registry=registry
        )
        self.failures = Counter(
            "simhash_dedup_ageing_failures",
            "Times that pages could not be moved to the archive, or segments not be merged",
            registry=registry,
        )

    def tell(self, before: Contents, after: Contents) -> None:
        """The index was moved from one moment of its archive to another."""
        self.pages.set(after.pages)
        self.segments.set(len(after.segments))
        if after.archived > before.archived:
            self.retired.inc(max(0, after.pages - before.pages))


def keep(settings: Settings, step: str, registry: CollectorRegistry) -> None:
    """Retire, or merge, whatever is due, until SIGTERM or SIGINT.

    An archive that was there and cannot be had any more is waited for, as the consumers wait for it.

    Raises:
        WorkerError, IndexFault: an operator must act.
    """
    metrics, begun = AgeingMetrics(registry), False
    with stop_on_signals() as stopping:
        while not stopping.is_set():
            try:
                ageing = opened(settings, stopping.is_set)
                begun = True
                _keep(ageing, step, metrics, stopping)
            except BuildStopped:
                return
            except IndexMigrated as error:
                log.warning("%s: opening it again", error)
            except (IndexUnreachable, IndexMisconfigured, TableFault, OSError) as error:
                if isinstance(error, IndexMisconfigured) and not begun:
                    raise
                metrics.failures.inc()
                where = archive_of(settings)
                log.warning("the archive in %s cannot be moved on (%s), it is tried again: %s", where, step, error)
                stopping.wait(PAUSE_SECONDS)


def opened(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> Ageing:
    """The index that the settings name, and its archive.

    Args:
        stopping: whether to end a build.

    Raises:
        SettingsError, IndexFault: see `worker.index.stores.connected_index`.
    """

    def tell(stage: str, done: int, total: int | None) -> None:
        if stopping():
            raise BuildStopped

    retiring = Retiring(connected_index(settings, configured_profile(settings)), archive_of(settings))
    return Ageing(retiring, retention(settings), settings.archive_pages, on_progress=tell)


def _keep(ageing: Ageing, step: str, metrics: AgeingMetrics, stopping: threading.Event) -> None:
    log.info("ageing: %s, into %s", step, ageing.directory)
    if is_shared(ageing.directory, ageing.retiring.contents()):
        log.warning(
            "%s is the archive of another index too: give each an index_name, or an archive, of its own",
            ageing.directory,
        )
    while not stopping.is_set():
        with alone(ageing.directory, step) as is_ours:
            if is_ours:
                work(ageing, step, metrics)
        stopping.wait(PAUSE_SECONDS)


def work(ageing: Ageing, step: str, metrics: AgeingMetrics) -> None:
    """Do all of one kind that is due."""
    before = ageing.retiring.contents()
    metrics.tell(before, before)
    while after := ageing.retire() if step == "retire" else ageing.merge():
        metrics.tell(before, after)
        done = f"up to number {after.archived:,}" if step == "retire" else "merged"
        log.info("archive: %s, %s pages in %d segments", done, f"{after.pages:,}", len(after.segments))
        before = after
    if step == "merge":
        ageing.sweep()
