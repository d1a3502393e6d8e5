"""A migration of a live index: how long it stands still while workers write to it as fast as they can.

Each worker is a process of its own that judges new pages in batches of 100, waits when it is told to, and opens the
index again when it has another generation. In the end every page, all of them new, must have been stored once.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.memory import stored_pages
from benchmarks.meter import Stopwatch
from benchmarks.report import Ratio, Report
from benchmarks.samples import entries
from deploy.local.stores import RedisServer
from simhash.errors import IndexMigrated, IndexUnreachable
from simhash.index import IndexSpec, Partition, Position, Relation
from simhash.index.layout import bucket_bits
from simhash.index.migration import Migration
from simhash.index.opening import existing_index, open_index
from simhash.index.redis import RedisIndex
from simhash.tables import design

NAME = "migration"
INDEX = "bench"
BATCH = 100
BEFORE, AFTER = design("6"), design("10")
RETRY_SECONDS = 0.01
START_SECONDS = 60.0
STILL_MS = 500.0
"""Expected at most: a fifth of a second, and what a call takes. A worker waits longer where many add faster than is
copied, as the index stands still again and again."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: documents before, worker processes."""

    stored: int = 100_000
    workers: tuple[int, ...] = (1, 4)


QUICK = Sizes(stored=5_000, workers=(1,))


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Migrate under each number of workers, each time on a new Redis below `directory`."""
    for workers in sizes.workers:
        server = RedisServer(directory / f"{workers}", dies_with_parent=True)
        server.start()
        try:
            with redis.Redis.from_url(server.url) as client:
                _measured(report, client, server.url, sizes.stored, workers)
        finally:
            server.kill()


def _measured(report: Report, client: Any, url: str, stored: int, workers: int) -> None:
    report.heading(f"migration of {stored:,} documents, 6 tables to 10, {workers} workers writing")
    index = open_index(client, INDEX, {"name": "random"}, Relation(BEFORE, 6, 14), stored)
    stored_pages(report, index, stored)
    context = multiprocessing.get_context("spawn")
    ready, end, results = context.Barrier(workers + 1, timeout=START_SECONDS), context.Event(), context.Queue()
    arguments = [(url, number, ready, end, results) for number in range(workers)]
    processes = [context.Process(target=_work, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    ready.wait()
    migration, watch = Migration(client, INDEX, lambda _: None), Stopwatch()
    migration.run(_wanted)
    seconds = watch.wall
    end.set()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    _report(report, migration, seconds, found, f"{workers} workers")
    told, there = stored + sum(pages for pages, _ in found), existing_index(client, INDEX).documents()
    report.ratio(
        Ratio(NAME, f"pages called unique and not stored once ({workers} workers)", told - there, "pages", "<=", 0)
    )


def _wanted(present: IndexSpec) -> IndexSpec:
    relation = replace(present.relation, design=AFTER)
    return IndexSpec(present.profile, relation, bucket_bits(present.capacity, AFTER), present.capacity)


def _report(report: Report, migration: Migration, seconds: float, found: list[tuple[int, float]], at: str) -> None:
    still = migration.still
    report.figure(NAME, f"in all ({at})", "s", [seconds])
    report.figure(NAME, f"pages judged meanwhile ({at})", "pages/s", [sum(pages for pages, _ in found) / seconds])
    report.figure(NAME, f"it stood still ({at})", "times", [still.times])
    waited = 1e3 * max(seconds for _, seconds in found)
    report.figure(NAME, f"longest time between two answers to a worker ({at})", "ms", [waited])
    longest = 1e3 * still.longest_seconds
    report.ratio(Ratio(NAME, f"it stood still at once, at most ({at})", longest, "ms", "<=", STILL_MS))


def _work(url: str, number: int, ready: Any, end: Any, results: Any) -> None:
    """One worker: how many pages it was told are unique, and the longest time between two answers, in seconds."""
    with redis.Redis.from_url(url) as client:
        index = existing_index(client, INDEX)
        random, partition, told, longest = Random(number + 2), Partition("pages", number), 0, 0.0
        ready.wait()
        last = time.monotonic()
        while not end.is_set():
            pages = entries(index.spec.relation, BATCH, told, random)
            pages = [replace(page, position=Position(partition, told + n)) for n, page in enumerate(pages)]
            while (judged := _judged(index, pages, {partition: told})) is None:
                index = _reopened(client)
            now = time.monotonic()
            longest, last, told = max(longest, now - last), now, told + judged
    results.put((told, longest))


def _judged(index: RedisIndex, pages: list[Any], committed: dict[Partition, int]) -> int | None:
    """How many pages are answered; None: the index has another generation."""
    while True:
        try:
            return len(index.check_and_insert(pages, committed))
        except IndexUnreachable:
            time.sleep(RETRY_SECONDS)
        except IndexMigrated:
            return None


def _reopened(client: Any) -> RedisIndex:
    while True:
        try:
            return existing_index(client, INDEX)
        except IndexUnreachable:
            time.sleep(RETRY_SECONDS)
