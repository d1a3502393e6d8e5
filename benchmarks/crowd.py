"""Crowds: very many pages that meet and do not match, as templates make them; how long one keeps Redis busy.

The pages are made up. *one prefix*: their fingerprints share what the first table looks at, and nothing else. *same
words*: the words of each are those of all, in another order, so that all have one fingerprint. *near*: their
fingerprints differ in a few bits from one another, so that every record that is met has to be looked at. *hot bands*:
likewise, and all share their band keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.operators.filling import load_steps
from simhash.signature.minhash import BAND_BITS
from worker.index.configured import configured_profile
from worker.index.stores import connected_index
from worker.settings import load

NAME = "crowd"
STORED_AT_ONCE = 50
LISTED_MICROSECONDS = 500
"""Commands longer than this are looked at."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        crowd: pages that meet.
        judged: pages that meet them.
    """

    crowd: int = 20_000
    judged: int = 100


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
    for kind, made in KINDS.items():
        report.heading(f"a page that meets a crowd of {sizes.crowd:,} ({kind}), shipped default")
        client.flushall()
        index = connected_index(settings, configured_profile(settings), client)
        pages = list(made(index, sizes.crowd + sizes.judged))
        _store(index, pages[: sizes.crowd])
        client.config_set("slowlog-log-slower-than", LISTED_MICROSECONDS)
        client.slowlog_reset()
        watch = Stopwatch()
        answers = index.check_and_insert(pages[sizes.crowd :], {Partition("pages", 0): 0})
        each = 1e3 * watch.wall / sizes.judged
        report.figure(NAME, f"a page that meets {sizes.crowd:,} ({kind})", "ms", [each])
        most = max(answer.candidates for answer in answers)
        report.figure(NAME, f"stored pages that it is compared with ({kind})", "pages", [most])
        longest = max((entry["duration"] for entry in client.slowlog_get(1000)), default=LISTED_MICROSECONDS) / 1e3
        report.ratio(Ratio(NAME, f"longest call ({kind})", longest, "ms", "<=", 10.0))


def _one_prefix(index: RedisIndex, count: int) -> Iterator[Entry]:
    random, table = Random(1), index.spec.relation.design.tables[0]
    for page in entries(index.spec.relation, count, 0, random):
        yield replace(page, fingerprint=table.restore(random.getrandbits(table.bits - table.prefix)))


def _same_words(index: RedisIndex, count: int) -> Iterator[Entry]:
    for page in entries(index.spec.relation, count, 0, Random(2)):
        yield replace(page, fingerprint=0x8E07_DCD4_3058_DB93)


def _near(index: RedisIndex, count: int) -> Iterator[Entry]:
    random = Random(3)
    for page in entries(index.spec.relation, count, 0, random):
        flips = sum(1 << bit for bit in random.sample(range(11), 5))
        yield replace(page, fingerprint=0x8E07_DCD4_3058_DB93 ^ flips ^ random.getrandbits(6) << 50)


def _hot_bands(index: RedisIndex, count: int) -> Iterator[Entry]:
    bits = BAND_BITS * index.spec.relation.bands
    for page in _near(index, count):
        yield replace(page, verifier=(page.verifier or 0) >> bits << bits | (1 << bits) - 1)


KINDS: Mapping[str, Callable[[RedisIndex, int], Iterator[Entry]]] = {
    "one prefix": _one_prefix,
    "same words": _same_words,
    "near": _near,
    "hot bands": _hot_bands,
}


def _store(index: RedisIndex, pages: Sequence[Entry]) -> None:
    """Store pages as an import does, without judging them."""
    layout = index.inside.layout
    for at in range(0, len(pages), STORED_AT_ONCE):
        some = enumerate(pages[at : at + STORED_AT_ONCE], at + 1)
        rows = [b"r" + number.to_bytes(6) + bytes(6) + layout.page(page, 0) for number, page in some]
        load_steps(index.inside, rows)
