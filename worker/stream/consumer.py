"""One consumer of the group: everything put together from the settings, checked, run until told to stop, taken down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from prometheus_client import CollectorRegistry

from simhash.errors import BaseDiffers, IndexMigrated
from simhash.index import Index, Partition
from worker.errors import BrokerUnreachable
from worker.index.stores import connected_index, judging_profile
from worker.judging.fingerprinters import Fingerprinters, page_limits, recipe
from worker.settings import Settings
from worker.stopping import stop_on_signals
from worker.stream.backoff import patiently
from worker.stream.kafka import Session, Slot, kept_too_shortly, largest_messages, reach_of, set_offsets
from worker.stream.loop import Loop, Parts
from worker.stream.metrics import Metrics
from worker.stream.status import Status, watch

log = logging.getLogger(__name__)

MOVE_SECONDS = 60.0
"""How long one that starts waits for running workers to move to the base that it sees."""
MOVE_PAUSE_SECONDS = 2.0


def run_consumer(
    settings: Settings,
    registry: CollectorRegistry,
    status: Status,
    on_step: Callable[[str], None] = lambda step: None,
) -> None:
    """Run one consumer in this process until SIGTERM or SIGINT.

    Raises:
        WorkerError, IndexFault: something that an operator must mend.
    """
    with stop_on_signals() as stopping:
        try:
            _consume(settings, registry, status, on_step, stopping)
        except (BaseDiffers, BrokerUnreachable):  # what it waited for
            if not stopping.is_set():
                raise
            log.info("stopped")


def _consume(
    settings: Settings,
    registry: CollectorRegistry,
    status: Status,
    on_step: Callable[[str], None],
    stopping: threading.Event,
) -> None:
    profile = judging_profile(settings)
    index = connected_index(settings, profile, patience=_Waiting(status, stopping))
    # Each session asks again: what is wrong from the start is said before anything else.
    patiently(lambda: largest_messages(settings), stopping)
    if settings.processes == 1:  # else the supervisor has said it
        patiently(lambda: _warn_of_topics(settings), stopping)
    if settings.start == "latest":
        patiently(lambda: _begin_at_ends(settings, index), stopping)
    slot = Slot(settings)
    fingerprinters = Fingerprinters(recipe(settings, profile), processes=1, limits=page_limits(settings))
    watch(status, settings.stuck_after)
    parts = Parts(
        settings=settings,
        profile=profile,
        index=index,
        fingerprinters=fingerprinters,
        open_session=lambda: Session(settings, slot.name),
        metrics=Metrics(registry),
        status=status,
        on_step=on_step,
    )
    log.info("reading %s as %s, judging by %s", settings.input_topic, slot.name, profile.label)
    try:
        _run(parts, stopping)
    finally:
        fingerprinters.close()
        slot.release()


def _run(parts: Parts, stopping: threading.Event) -> None:
    """Run the loop; when the index was migrated, again with its new generation."""
    while True:
        try:
            return Loop(parts, stopping).run()
        except IndexMigrated as error:
            log.warning("%s: opening it again", error)
            waiting = _Waiting(parts.status, stopping)
            parts = replace(parts, index=connected_index(parts.settings, parts.profile, patience=waiting))


class _Waiting:
    """For who starts beside newer tables than the index's workers use: they need a moment to move to them.

    Outside the group: meanwhile the partitions are theirs.
    """

    def __init__(self, status: Status, stopping: threading.Event) -> None:
        self._status = status
        self._stopping = stopping
        self._end: float | None = None

    def __call__(self, error: BaseDiffers) -> bool:
        """Wait a little; False: it was long enough."""
        if self._end is None:
            self._end = time.monotonic() + MOVE_SECONDS
            log.warning("waiting %.0f s for the index's workers to move on: %s", MOVE_SECONDS, error)
        self._status.progress()
        return not self._stopping.wait(MOVE_PAUSE_SECONDS) and time.monotonic() < self._end


def check(settings: Settings) -> None:
    """Everything that can be known to be wrong before a consumer joins the group.

    Raises:
        WorkerError, IndexFault: what is wrong.
    """
    with suppress(BaseDiffers):  # the consumers wait
        connected_index(settings, judging_profile(settings))
    nobody_stops_it = threading.Event()
    patiently(lambda: largest_messages(settings), nobody_stops_it)
    patiently(lambda: _warn_of_topics(settings), nobody_stops_it)


def _begin_at_ends(settings: Settings, index: Index) -> None:
    """Set the offsets of a group that has none, of pages that the index knows nothing of.

    All at once and before it has members: a partition that is added later is read from its beginning, and so is what
    comes in while no worker runs.
    """
    topic = settings.input_topic
    there = reach_of(settings, topic)
    known = (index.mark(Partition(topic, number)) is not None for number in there)
    if any(reach.committed is not None for reach in there.values()) or any(known):
        return
    if set_offsets(settings, topic, {number: reach.end for number, reach in there.items()}):
        log.info("group %s is new: %s is read from its ends of now on (start = latest)", settings.group_id, topic)


def _warn_of_topics(settings: Settings) -> None:
    for line in kept_too_shortly(settings):
        log.warning("%s", line)
