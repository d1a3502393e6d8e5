"""What it takes to keep the last version of each URL: bytes and Redis' time, with the setting `previous` and without.

    python -m benchmarks.previous [--pages 100000]

Two Redis servers, alike but for this, get the same pages in turns, some batches at a time. First every URL is new; then
each comes once more with another text. Time is what Redis itself counts for the script (`INFO commandstats`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks.samples import entries
from deploy.local.stores import RedisServer
from simhash.index import Entry, Partition
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.opening import open_index
from simhash.index.versions import packed
from simhash.relation.tables import automatic_design
from simhash.signature.profiles import DEFAULT, Signature
from worker.index.configured import configured_relation
from worker.settings import load

BATCH = 100
ROUND = 20
"""Batches between two looks at the clock."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100_000, help="pages with URLs of their own (default 100,000)")
    pages = parser.parse_args().pages
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-previous-") as scratch:
        servers = [RedisServer(Path(scratch) / name, dies_with_parent=True) for name in ("without", "with")]
        try:
            for server in servers:
                server.start()
            _measured(servers, pages)
        finally:
            for server in servers:
                server.kill()


def _measured(servers: list[RedisServer], pages: int) -> None:
    settings = load({"documents": str(pages)})
    relation = configured_relation(settings, DEFAULT)
    assert relation.design == automatic_design(DEFAULT.k, DEFAULT.bits, pages)
    clients = [redis.Redis.from_url(server.url) for server in servers]
    indexes = [open_index(client, "bench", DEFAULT.recipe(), relation, pages) for client in clients]
    empty = [_used(client) for client in clients]
    first = _times(indexes, clients, _pages(relation, pages, 0, Random(1)))
    full = [_used(client) for client in clients]
    _print("every URL is new", first)
    bytes_each = [(after - before) / pages for before, after in zip(empty, full, strict=True)]
    without, with_ = bytes_each
    print(f"bytes a page: {without:.1f} without, {with_:.1f} with: {with_ - without:.1f} a URL")
    again = _times(indexes, clients, _pages(relation, pages // 2, pages, Random(2)))
    _print("every URL was there", again)


def _pages(relation: Any, count: int, first: int, random: Random) -> Iterator[list[Entry]]:
    """Batches of pages; offsets go on from `first`, URLs begin anew."""
    for at in range(0, count, BATCH):
        named = entries(relation, BATCH, at, random)
        moved = entries(relation, BATCH, first + at, random)
        yield [replace(page, url=name.url) for page, name in zip(moved, named, strict=True)]


def _times(indexes: list[RedisIndex], clients: list[Any], batches: Iterator[list[Entry]]) -> list[tuple[float, float]]:
    """Microseconds a page, without and with, of each round."""
    found: list[tuple[float, float]] = []
    while some := [batch for _, batch in zip(range(ROUND), batches, strict=False)]:
        spent = []
        for number, (index, client) in enumerate(zip(indexes, clients, strict=True)):
            before = _microseconds(client)
            for batch in some:
                asked = [_with_version(page) for page in batch] if number else batch
                position = asked[0].position
                assert position
                index.check_and_insert(asked, {Partition("pages", 0): position.offset})
            spent.append((_microseconds(client) - before) / (BATCH * len(some)))
        found.append((spent[0], spent[1]))
    return found


def _with_version(page: Entry) -> Entry:
    signature = Signature(page.fingerprint, page.verifier, page.digest, 100)
    return replace(page, version=packed(signature, page.observation, page.fetched_at, DEFAULT))


def _print(what: str, times: list[tuple[float, float]]) -> None:
    rows = [(a, b, b - a) for a, b in times]
    without, with_, more = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{what}: {without:.1f} us of Redis a page without, {with_:.1f} with, {more:+.1f} in the median round")


def _microseconds(client: Any) -> float:
    return float(client.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0))


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory_dataset"])


if __name__ == "__main__":
    main()
