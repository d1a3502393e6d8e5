"""A crowd: very many pages under one prefix, as a template makes them; how long a page that meets it keeps Redis busy.

The pages are made up: their fingerprints share what a table of the shipped default looks at, and nothing else, so that
every one of them has to be compared and none of them matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.meter import Stopwatch
from benchmarks.report import Ratio, Report
from benchmarks.samples import entries
from deploy.local.stores import RedisServer
from simhash.index import Entry, Partition
from simhash.index.redis import RedisIndex
from worker.settings import load
from worker.stores import configured_profile, connected_index

NAME = "crowd"
STORED_AT_ONCE = 200
LISTED_MICROSECONDS = 500
"""Commands longer than this are looked at."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        crowd: pages under one prefix.
        judged: pages that meet them.
    """

    crowd: int = 50_000
    judged: int = 50


QUICK = Sizes(crowd=3_000, judged=5)


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure everything of this file."""
    server = RedisServer(directory / "redis", dies_with_parent=True)
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            _measure(report, sizes, client)
    finally:
        server.kill()


def _measure(report: Report, sizes: Sizes, client: Any) -> None:
    settings = load({"documents": 1_000_000})
    index = connected_index(settings, configured_profile(settings), client)
    report.heading(f"a page that meets a crowd of {sizes.crowd:,}, shipped default")
    pages = list(_alike(index, sizes.crowd + sizes.judged))
    _store(index, pages[: sizes.crowd])
    client.config_set("slowlog-log-slower-than", LISTED_MICROSECONDS)
    client.slowlog_reset()
    watch = Stopwatch()
    for page in pages[sizes.crowd :]:
        (answer,) = index.check_and_insert([page], {Partition("pages", 0): 0})
        if answer.candidates < sizes.crowd:
            raise RuntimeError(f"the page has met {answer.candidates:,} pages of the crowd only")
    each = 1e3 * watch.wall / sizes.judged
    report.figure(NAME, f"a page that meets {sizes.crowd:,}", "ms", [each], "Redis serves others meanwhile")
    longest = max((entry["duration"] for entry in client.slowlog_get(1000)), default=LISTED_MICROSECONDS) / 1e3
    report.ratio(Ratio(NAME, f"longest call of a page that meets {sizes.crowd:,}", longest, "ms", "<=", 10.0))


def _alike(index: RedisIndex, count: int) -> Iterator[Entry]:
    """Pages whose fingerprints have the first table's prefix in common."""
    random = Random(1)
    table = index.spec.relation.design.tables[0]
    for page in entries(index.spec.relation, count, 0, random):
        yield replace(page, fingerprint=table.restore(random.getrandbits(table.bits - table.prefix)))


def _store(index: RedisIndex, pages: Sequence[Entry]) -> None:
    """Store pages as an import does, without judging them."""
    layout = index.inside.layout
    for at in range(0, len(pages), STORED_AT_ONCE):
        some = enumerate(pages[at : at + STORED_AT_ONCE], at + 1)
        rows = [b"r" + number.to_bytes(6) + bytes(6) + layout.page(page, 0) for number, page in some]
        index.inside.run(("judging", "loading"), *rows)
