"""Memory: what an index of random fingerprints takes of a real Redis, with near-duplicates among them, beside `plan`.

Records are stored as an import stores them, without being judged: what they take is the same, and they are there
sooner. Every hundredth page lies within three bits of an earlier one (its text is another: both are stored). The Redis
has the settings of deploy/redis/redis.conf but for the append-only file, which is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.index import REACH, TABLES_BYTES, VERIFIER_REACH, WHOLE_BYTES, bytes_by_kind
from benchmarks.meter import Stopwatch
from benchmarks.report import Ratio, Report
from benchmarks.samples import URL_BYTES, entries
from deploy.local.stores import RedisServer
from simhash.index import Entry, IndexSpec, Relation
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.layout import Layout
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.filling import load_steps
from simhash.planning.memory_size import by_shipped, memory
from simhash.relation.tables import design

NAME = "memory"
STORED_AT_ONCE = 200
ONE_IN = 100
"""So many pages, of which one lies near an earlier one."""
PREDICTED_WITHIN = 0.15
PROGRESS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: documents stored; designs."""

    stored: tuple[int, ...] = (1_000_000,)
    designs: tuple[str, ...] = ("10", "2-probed")


FULL = Sizes(stored=(1_000_000, 5_000_000))
QUICK = Sizes(stored=(20_000,))


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure every design at every size, each on a Redis of its own below `directory`."""
    for name in sizes.designs:
        for stored in sizes.stored:
            _measured(report, directory / f"{name}-{stored}", name, stored)


def _measured(report: Report, directory: Path, name: str, stored: int) -> None:
    relation = Relation(design(name), REACH, VERIFIER_REACH)
    report.heading(f"memory of {stored:,} documents, design {name} ({len(relation.design.tables)} tables)")
    server = RedisServer(directory, dies_with_parent=True, settings={"appendonly": "no"})
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            index = open_index(client, "bench", {"name": "random"}, relation, stored)
            load_steps(index.inside, [])  # the script is there: it is no document's
            empty = client.info("memory")
            watch = Stopwatch()
            stored_pages(report, index, stored)
            report.progress(f"stored in {watch.wall:.0f} s")
            _report(report, client, empty, name, index.spec, stored)
    finally:
        server.kill()


def stored_pages(report: Report, index: RedisIndex, stored: int) -> None:
    """Store the pages, the next ones made while Redis stores the last."""
    with ThreadPoolExecutor(1) as thread:
        under_way: Future[Any] | None = None
        for at, pages in enumerate(_batches(index.spec.relation, stored)):
            rows = [_row(index, at * STORED_AT_ONCE + number, page) for number, page in enumerate(pages, 1)]
            if under_way:
                under_way.result()
            under_way = thread.submit(load_steps, index.inside, rows)
            if (done := at * STORED_AT_ONCE + len(pages)) % PROGRESS == 0:
                report.progress(f"{done:,} of {stored:,}")
        if under_way:
            under_way.result()


def _batches(relation: Relation, stored: int) -> Iterator[list[Entry]]:
    """Random pages, and among them some that lie near earlier ones."""
    random = Random(1)
    earlier = 0
    for at in range(0, stored, STORED_AT_ONCE):
        pages = entries(relation, min(STORED_AT_ONCE, stored - at), at, random)
        for number in range(0, len(pages), ONE_IN):
            flipped = sum(1 << bit for bit in random.sample(range(relation.design.bits), random.randrange(4)))
            pages[number], earlier = (
                replace(pages[number], fingerprint=earlier ^ flipped),
                pages[number].fingerprint or 0,
            )
        yield pages


def _row(index: RedisIndex, seq: int, page: Entry) -> bytes:
    return b"r" + seq.to_bytes(6) + bytes(6) + index.inside.layout.page(page, 0)


def _report(
    report: Report, client: redis.Redis, empty: dict[str, Any], name: str, spec: IndexSpec, stored: int
) -> None:
    after, at = client.info("memory"), f"{name}, {stored:,} stored"
    planned = memory(Layout("bench", spec), stored, by_shipped(URL_BYTES))
    used = (after["used_memory"] - empty["used_memory"]) / stored
    kinds = {kind: size / stored for kind, size in bytes_by_kind(client).items()}
    shares = ", ".join(f"{kind} {size:.0f}" for kind, size in sorted(kinds.items()))
    report.figure(NAME, f"Redis memory ({at})", "bytes a document", [used], f"URL of {URL_BYTES} bytes; keys: {shares}")
    report.figure(NAME, f"planned ({at})", "bytes a document", [planned.used / stored])
    report.figure(NAME, f"tables ({at})", "bytes a document", [kinds["t"]])
    report.figure(NAME, f"resident to used ({at})", "x", [after["used_memory_rss"] / after["used_memory"]])
    report.ratio(Ratio(NAME, f"Redis memory ({at})", used, "bytes a document", "<=", WHOLE_BYTES.get(name)))
    report.ratio(Ratio(NAME, f"of it the tables ({at})", kinds["t"], "bytes a document", "<=", TABLES_BYTES.get(name)))
    off = abs(planned.used / stored / used - 1)
    report.ratio(Ratio(NAME, f"how far the plan is off ({at})", off, "%", "<=", PREDICTED_WITHIN))
