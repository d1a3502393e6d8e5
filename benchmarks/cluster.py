"""Check and insert on a Redis Cluster: one, two and four worker processes on three local primaries.

Beside it one worker, and many, on one primary of the same kind, in the same run. Pages are made up, with random
fingerprints: each is new, claimed, read for in all tables, numbered and written, which is the dearest case. Primaries
and workers share this machine's cores, so the processor time of each is what to read: a page's cost for a worker, for
the primary of the claim slot (of which there is one, however many primaries there are) and for all primaries together.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.meter import Stopwatch
from benchmarks.report import Ratio, Report
from benchmarks.samples import entries
from deploy.local.stores import RedisServer, start_cluster
from simhash.index import Partition, Position
from worker.settings import load
from worker.stores import configured_profile, connected_index

NAME = "cluster"
BATCH = 100
START_SECONDS = 60.0
DOCUMENTS = 1_000_000
"""What the index is laid out for."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: worker processes, on one primary and on a cluster, and batches of each."""

    on_one: tuple[int, ...] = (1, 4, 8)
    workers: tuple[int, ...] = (1, 2, 4)
    batches: int = 100
    primaries: int = 3


QUICK = Sizes(on_one=(1, 2), workers=(1, 2), batches=3)


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure everything of this file on servers in `directory`."""
    single = RedisServer(directory / "single", dies_with_parent=True)
    single.start()
    rates = []
    try:
        for workers in sizes.on_one:
            report.heading(f"index on one primary, {workers} worker processes")
            rates.append(_measured(report, "one primary", single.url, [single], workers, sizes))
            if len(rates) > 1:
                report.ratio(Ratio(NAME, f"{workers} workers on one primary to one", rates[-1] / rates[0], "x"))
    finally:
        single.kill()
    nodes = start_cluster(directory / "cluster", sizes.primaries, dies_with_parent=True)
    try:
        url = "redis+cluster://" + ",".join(node.address for node in nodes)
        for workers in sizes.workers:
            report.heading(f"index on a cluster of {len(nodes)} primaries, {workers} worker processes")
            rate = _measured(report, f"{len(nodes)} primaries", url, nodes, workers, sizes)
            report.ratio(Ratio(NAME, f"{workers} workers on the cluster to one on one primary", rate / rates[0], "x"))
    finally:
        for node in nodes:
            node.kill()


def _measured(report: Report, label: str, url: str, nodes: Sequence[RedisServer], workers: int, sizes: Sizes) -> float:
    """Pages a second of all workers together; prints it with what a page costs whom."""
    name = f"bench{workers}"
    _warmed_up(url, name)
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(workers + 1, timeout=START_SECONDS), context.Queue()
    arguments = [(url, name, number, sizes.batches, ready, results) for number in range(workers)]
    processes = [context.Process(target=_work, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    ready.wait()
    before, watch = [_seconds(node) for node in nodes], Stopwatch()
    client_seconds = sum(results.get() for _ in processes)
    wall = watch.wall
    spent = [_seconds(node) - start for node, start in zip(nodes, before, strict=True)]
    for process in processes:
        process.join()
    pages, at = workers * sizes.batches * BATCH, f"{label}, {workers} workers"
    rate = report.figure(NAME, f"check and insert, batches of {BATCH} ({at})", "pages/s", [pages / wall])
    report.figure(NAME, f"a worker ({at})", "us/page", [1e6 * client_seconds / pages], "processor time")
    busiest = report.figure(
        NAME, f"the busiest primary ({at})", "us/page", [1e6 * max(spent) / pages], "processor time"
    )
    report.figure(NAME, f"all primaries ({at})", "us/page", [1e6 * sum(spent) / pages], "processor time")
    report.figure(NAME, f"limit by the busiest primary's processor time ({at})", "pages/s", [1e6 / busiest])
    return rate


def _warmed_up(url: str, name: str) -> None:
    """Make the index, and wait until it answers."""
    settings = load({"redis_url": url, "index_name": name, "documents": DOCUMENTS})
    index = connected_index(settings, configured_profile(settings))
    index.ping()


def _work(url: str, name: str, number: int, batches: int, ready: Any, results: Any) -> None:
    """One worker: a partition of its own; its processor seconds."""
    settings = load({"redis_url": url, "index_name": name, "documents": DOCUMENTS})
    index = connected_index(settings, configured_profile(settings))
    partition, random = Partition("pages", number), Random(number + 1)
    pages = entries(index.spec.relation, batches * BATCH, 0, random)
    made = [replace(page, position=Position(partition, offset)) for offset, page in enumerate(pages)]
    ready.wait()
    start = time.process_time()
    for at in range(0, len(made), BATCH):
        index.check_and_insert(
            made[at : at + BATCH], {partition: at}
        )  # as the loop does: what came before is committed
    results.put(time.process_time() - start)


def _seconds(node: RedisServer) -> float:
    """Processor seconds that a server's main thread has spent so far."""
    with redis.Redis.from_url(node.url) as client:
        spent = client.info("cpu")
    return float(spent["used_cpu_user_main_thread"]) + float(spent["used_cpu_sys_main_thread"])
