"""A migration of a live index under workers that write to it as fast as they can: what they feel of it.

Each worker is a process of its own that judges new pages in batches of 100, before and during the migration, and opens
the index again when it has another generation. In the end every page, all of them new, must have been stored once.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.report import Ratio, Report
from benchmarks.samples import entries
from deploy.local.stores import RedisServer
from simhash.errors import IndexMigrated, IndexUnreachable
from simhash.index import IndexSpec, Partition, Position, Relation
from simhash.index.redis.layout import bucket_bits
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.migration import Migration
from simhash.relation.tables import design

NAME = "migration"
INDEX = "bench"
BATCH = 100
BEFORE, AFTER = design("6"), design("10")
START_SECONDS = 60.0
LONG_CALL_MICROSECONDS = 10_000
PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: documents before, worker processes, seconds without a migration."""

    stored: int = 100_000
    workers: tuple[int, ...] = (1, 4)
    before: float = 5.0


QUICK = Sizes(stored=1_000, workers=(1,), before=0.5)


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Migrate under each number of workers, each time on a new server below `directory`."""
    for workers in sizes.workers:
        server = RedisServer(directory / f"{workers}", dies_with_parent=True)
        server.start()
        try:
            with redis.Redis.from_url(server.url) as client:
                _measured(report, client, server.url, sizes, workers)
        finally:
            server.kill()


def _measured(report: Report, client: Any, url: str, sizes: Sizes, workers: int) -> None:
    stored, at = sizes.stored, f"{workers} workers"
    report.heading(f"migration of {stored:,} documents, 6 tables to 10, {at}")
    index = open_index(client, INDEX, {"name": "random"}, Relation(BEFORE, 6, 14), stored)
    _judge_pages(index, stored)
    context = multiprocessing.get_context("spawn")
    ready, end, results = context.Barrier(workers + 1, timeout=START_SECONDS), context.Event(), context.Queue()
    arguments = [(url, number, ready, end, results) for number in range(workers)]
    processes = [context.Process(target=_work, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    ready.wait()
    client.config_set("slowlog-log-slower-than", LONG_CALL_MICROSECONDS)
    client.slowlog_reset()
    moments = [time.monotonic()]
    time.sleep(sizes.before)
    moments.append(time.monotonic())
    Migration(client, INDEX, lambda _: None).run(_wanted)
    moments.append(time.monotonic())
    end.set()
    answered = [results.get() for _ in processes]
    for process in processes:
        process.join()
    _report(report, moments, answered, at)
    report.ratio(Ratio(NAME, f"calls longer than 10 ms ({at})", float(client.slowlog_len()), "calls", "<=", 0))
    told, there = stored + sum(len(each) for each in answered) * BATCH, existing_index(client, INDEX).documents()
    report.ratio(Ratio(NAME, f"pages called unique and not stored once ({at})", told - there, "pages", "<=", 0))


def _judge_pages(index: Any, count: int) -> None:
    """Store made-up pages, which the workers do not have."""
    random = Random(1)
    for at in range(0, count, BATCH):
        pages = entries(index.spec.relation, BATCH, at, random)
        index.check_and_insert([replace(page, position=None) for page in pages], {})


def _wanted(present: IndexSpec) -> IndexSpec:
    relation = replace(present.relation, design=AFTER)
    return IndexSpec(present.profile, relation, bucket_bits(present.capacity, AFTER), present.capacity)


def _report(report: Report, moments: list[float], answered: list[list[float]], at: str) -> None:
    """`moments`: begin, begin of the migration, its end; `answered`: when each worker had its answers."""
    for begin, end, when in zip(moments, moments[1:], ("before", "during"), strict=False):
        within = [[begin, *(t for t in each if begin < t <= end), end] for each in answered]
        rate = sum(len(each) - 2 for each in within) * BATCH / (end - begin)
        longest = max(later - earlier for each in within for earlier, later in pairwise(each))
        report.figure(NAME, f"pages judged {when} it ({at})", "pages/s", [rate])
        report.figure(NAME, f"longest time between two answers to a worker {when} it ({at})", "ms", [1e3 * longest])
    report.figure(NAME, f"in all ({at})", "s", [moments[2] - moments[1]])


def _work(url: str, number: int, ready: Any, end: Any, results: Any) -> None:
    """One worker: when each of its batches was answered."""
    with redis.Redis.from_url(url) as client:
        index = existing_index(client, INDEX)
        random, partition, told, answered = Random(number + 2), Partition("pages", number), 0, []
        ready.wait()
        while not end.is_set():
            pages = entries(index.spec.relation, BATCH, told, random)
            pages = [replace(page, position=Position(partition, told + n)) for n, page in enumerate(pages)]
            while not _judged(index, pages, {partition: told}):
                index = existing_index(client, INDEX)
            answered.append(time.monotonic())
            told += BATCH
    results.put(answered)


def _judged(index: Any, pages: list[Any], committed: dict[Partition, int]) -> bool:
    """False: the index has another generation, or stands still for a moment."""
    try:
        index.check_and_insert(pages, committed)
    except IndexMigrated:
        return False
    except IndexUnreachable:
        time.sleep(PAUSE_SECONDS)
        return False
    return True
