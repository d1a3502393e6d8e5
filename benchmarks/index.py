"""Check and insert: this project's index on a real Redis, against an empty script call of the same bytes and peers.

The Redis is this machine's, with the settings of deploy/redis/redis.conf (append-only file included); every index and
every peer gets it empty. Pages are made up, with random fingerprints: practically each is new, probed in all tables and
stored, which is the dearest case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import redis

from benchmarks import peers
from benchmarks.machine import on_one_processor
from benchmarks.meter import Stopwatch, percentile
from benchmarks.replay import RecordingConnection, replayed, replayed_singly
from benchmarks.report import Ratio, Report
from benchmarks.samples import URL_BYTES, entries, made_up_url
from deploy.local.stores import RedisServer
from simhash.index import Entry, Partition, Relation
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.opening import open_index
from simhash.relation.tables import design
from worker.index.configured import configured_profile
from worker.index.stores import connected_index
from worker.settings import load

NAME = "index"
BATCH = 100
REACH, VERIFIER_REACH = 6, 14
LONG_CALL_MICROSECONDS = 10_000
AOF_REWRITE_PERCENTAGE = 100
"""Redis' default."""
DESIGNS = ("4", "10", "2-probed", "default")
TABLES_BYTES = {"10": 140.0, "2-probed": 35.0}
"""Bytes a document that the tables of a design should take at most."""
WHOLE_BYTES = {"10": 330.0}
"""The same with whole records."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        stored: how many documents are stored when it is measured, here and in the peers, rising. With a million,
            datasketch takes ten minutes to fill and 6 GB of Redis.
        runs: timed rounds of `calls` batches.
        singles: pages judged one by one in each round.
        designs: of the indexes.
    """

    stored: tuple[int, ...] = (100_000, 1_000_000)
    runs: int = 15
    calls: int = 20
    singles: int = 1000
    designs: tuple[str, ...] = DESIGNS


QUICK = Sizes(stored=(2_000,), runs=3, calls=3, singles=100)


@dataclass
class Bench:
    """One index under measurement, the pages that it has seen, and where its figures go."""

    label: str
    index: RedisIndex
    client: redis.Redis
    report: Report
    sizes: Sizes
    random: Random
    seen: int = 0

    def pages(self, count: int) -> list[Entry]:
        """New pages, in the order of their offsets."""
        found = entries(self.index.spec.relation, count, self.seen, self.random)
        self.seen += count
        return found

    def judge(self, pages: list[Entry]) -> None:
        """As the loop does: what came before is committed."""
        position = pages[0].position
        if position is None:
            raise ValueError("a page of a stream has a position")
        self.index.check_and_insert(pages, {Partition("pages", 0): position.offset})


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure everything of this file, each on an emptied Redis in `directory`."""
    server = RedisServer(directory / "redis", dies_with_parent=True)
    server.start()
    try:
        costs = [cost for label in sizes.designs for cost in measured(report, sizes, server, label)]
        for stored in sizes.stored:
            ours = [cost for cost in costs if cost.stored == stored]
            theirs = _datasketch(report, sizes, server, stored), _simhash_index(report, sizes, stored)
            _compare(report, stored, ours, *theirs)
    finally:
        server.kill()


@dataclass(frozen=True, slots=True)
class Cost:
    """What comparisons need.

    Attributes:
        batched, single: pages a second in batches and one by one.
        server_us: processor time of Redis' main thread, in microseconds a page in batches.
        bytes: Redis' memory a document.
    """

    label: str
    stored: int
    batched: float
    single: float
    server_us: float
    bytes: float


def measured(report: Report, sizes: Sizes, server: RedisServer, label: str) -> list[Cost]:
    """One design at every size, laid out for it."""
    return [_measured_at(report, sizes, server, label, stored) for stored in sizes.stored]


def _measured_at(report: Report, sizes: Sizes, server: RedisServer, label: str, stored: int) -> Cost:
    with _emptied(server) as client:
        empty = _used(client)
        bench = Bench(label, _index(client, label, stored), client, report, sizes, Random(1))
        report.heading(f"index of {stored:,} documents, {_title(label, bench.index.spec.relation)}")
        _load(bench, stored)
        bytes_each = _bytes(bench, empty)
        rate, server_us = _batches(bench)
        return Cost(label, stored, rate, _singles(bench), server_us, bytes_each)


def _title(label: str, relation: Relation) -> str:
    shape = f"{len(relation.design.tables)} tables"
    shape += f", {relation.bands} bands" if relation.bands else ""
    shape += ", probes at distance 1" if any(table.radius for table in relation.design.tables) else ""
    return f"shipped default ({shape})" if label == "default" else f"design {label} ({shape})"


def _index(client: redis.Redis, label: str, documents: int) -> RedisIndex:
    if label == "default":
        settings = load({"documents": documents})
        return connected_index(settings, configured_profile(settings), client)
    relation = Relation(design(label), REACH, VERIFIER_REACH)
    return open_index(client, f"bench{label}", {"name": "random"}, relation, documents)


def _load(bench: Bench, stored: int) -> None:
    missing = stored - bench.index.documents()
    bench.report.progress(f"storing {missing:,} more pages")
    watch = Stopwatch()
    while (missing := stored - bench.index.documents()) > 0:
        for _ in range(0, missing, BATCH):
            bench.judge(bench.pages(BATCH))
    bench.report.progress(f"stored in {watch.wall:.0f} s, made-up pages included")
    _settle(bench.client)


def _settle(client: redis.Redis) -> None:
    """Wait until Redis has rewritten its append-only file, should it be at it, and keep it from beginning again.

    What is measured next is to be the calls, not the copies of memory pages that a rewrite costs.
    """
    client.config_set("auto-aof-rewrite-percentage", 0)
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.2)


def _batches(bench: Bench) -> tuple[float, float]:
    """Pages a second in batches, with the shares of client and server, beside the limit; the median rate, and the
    server's microseconds a page."""
    rates, limits, server_us, client_us = [], [], [], []
    bench.client.config_set("slowlog-log-slower-than", LONG_CALL_MICROSECONDS)
    bench.client.slowlog_reset()
    for _ in range(bench.sizes.runs):
        batches = [bench.pages(BATCH) for _ in range(bench.sizes.calls)]
        pages = BATCH * len(batches)
        before, watch = _server_seconds(bench.client), Stopwatch()
        RecordingConnection.sent = []
        for batch in batches:
            bench.judge(batch)
        rates.append(pages / watch.wall)
        client_us.append(1e6 * watch.cpu / pages)
        server_us.append(1e6 * (_server_seconds(bench.client) - before) / pages)
        limits.append(pages / replayed(bench.client))
    return _report_batches(bench, rates, limits, server_us, client_us)


def _report_batches(
    bench: Bench, rates: list[float], limits: list[float], server_us: list[float], client_us: list[float]
) -> tuple[float, float]:
    report, at = bench.report, f"{bench.label}, {bench.index.documents():,} stored"
    rate = report.figure(NAME, f"check and insert, batches of {BATCH} ({at})", "pages/s", rates)
    limit = report.figure(NAME, f"limit: an empty script, same arguments ({at})", "pages/s", limits)
    in_redis = report.figure(NAME, f"Redis' main thread ({at})", "us/page", server_us, "processor time")
    report.figure(NAME, f"the client ({at})", "us/page", client_us, "processor time")
    report.ratio(Ratio(NAME, f"share of the limit ({at})", rate / limit, "%"))
    report.ratio(
        Ratio(
            NAME,
            f"check and insert on one Redis core, by its processor time ({at})",
            1e6 / in_redis,
            "pages/s",
            ">=",
            _wanted(bench, 10_000),
        )
    )
    report.ratio(
        Ratio(NAME, f"check and insert, client included ({at})", rate, "pages/s", ">=", _wanted(bench, 10_000))
    )
    slow = float(bench.client.slowlog_len())
    report.ratio(Ratio(NAME, f"calls longer than 10 ms ({at})", slow, "calls", "<=", 0))
    return rate, in_redis


def _wanted(bench: Bench, value: float) -> float | None:
    """What is expected of the design of 10 tables only."""
    return value if bench.label == "10" else None


def _server_seconds(client: redis.Redis) -> float:
    """Processor seconds that Redis' main thread has spent so far: protocol, scripts and append-only file."""
    spent = client.info("cpu")
    return float(spent["used_cpu_user_main_thread"]) + float(spent["used_cpu_sys_main_thread"])


def _singles(bench: Bench) -> float:
    """Pages a second one by one, and how long one takes, beside the limit; the median rate.

    Measured twice: where the kernel places client and server, and with both on one processor. They work in turns, never
    at once; on two processors each message wakes up one that is halted, for which a virtual machine needs its host.
    """
    at = f"{bench.label}, {bench.index.documents():,} stored"
    rate = _measured_singly(bench, at)
    with on_one_processor(bench.client.info("server")["process_id"]):
        _measured_singly(bench, f"{at}, on one processor")
    return rate


def _measured_singly(bench: Bench, at: str) -> float:
    """The median rate."""
    rates, seconds, limits = [], [], []
    for _ in range(bench.sizes.runs):
        pages, watch = bench.pages(bench.sizes.singles), Stopwatch()
        RecordingConnection.sent = []
        for page in pages:
            one = time.perf_counter()
            bench.judge([page])
            seconds.append(time.perf_counter() - one)
        rates.append(bench.sizes.singles / watch.wall)
        limits += replayed_singly(bench.client)
    rate = bench.report.figure(NAME, f"check and insert, one by one ({at})", "pages/s", rates)
    slowest, calls = 0.0, f"{len(seconds)} calls"
    for percent in (50, 99):
        limit, taken = 1e3 * percentile(limits, percent), 1e3 * percentile(seconds, percent)
        bench.report.figure(NAME, f"limit: one empty call, same arguments, p{percent} ({at})", "ms", [limit], calls)
        slowest = bench.report.figure(NAME, f"one page, p{percent} ({at})", "ms", [taken], calls)
    bench.report.ratio(Ratio(NAME, f"one page, p99 ({at})", slowest, "ms", "<=", _wanted(bench, 1.0)))
    return rate


# Memory ----------------------------------------------------------------------------------------------------------


def _bytes(bench: Bench, empty: int) -> float:
    """Redis' bytes a document, whole records included, and how they divide among the kinds of keys."""
    documents = bench.index.documents()
    report, at = bench.report, f"{bench.label}, {documents:,} stored"
    each = (_used(bench.client) - empty) / documents
    kinds = bytes_by_kind(bench.client)
    shares = ", ".join(f"{kind} {total / documents:.0f}" for kind, total in sorted(kinds.items()))
    report.figure(NAME, f"Redis memory ({at})", "bytes a document", [each], f"URL of {URL_BYTES} bytes; keys: {shares}")
    wanted = WHOLE_BYTES.get(bench.label)
    report.ratio(Ratio(NAME, f"Redis memory ({at})", each, "bytes a document", "<=", wanted))
    tables, wanted = kinds["t"] / documents, TABLES_BYTES.get(bench.label)
    report.ratio(Ratio(NAME, f"of it the tables ({at})", tables, "bytes a document", "<=", wanted))
    return each


def _used(client: redis.Redis) -> int:
    """Redis' bytes, without the buffers of its connections, which it gives back within seconds."""
    memory = client.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"])


def bytes_by_kind(client: redis.Redis, one_in: int = 20) -> dict[str, float]:
    """Bytes of all keys by the letter behind the index's name, from a sample of them."""
    seen: dict[str, int] = {}
    sampled: dict[str, list[int]] = {}
    for key in client.scan_iter(count=1000):
        kind = key.decode("utf-8", "replace").partition(":")[2][:1]
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] % one_in == 1:
            sampled.setdefault(kind, []).append(client.memory_usage(key) or 0)
    return {kind: seen[kind] * sum(sizes) / len(sizes) for kind, sizes in sampled.items()}


@contextmanager
def _emptied(server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=RecordingConnection, port=server.port))
    try:
        client.flushall()
        _settle(client)
        client.config_set("auto-aof-rewrite-percentage", AOF_REWRITE_PERCENTAGE)
        yield client
    finally:
        client.close()


# Peers -----------------------------------------------------------------------------------------------------------


def _datasketch(report: Report, sizes: Sizes, server: RedisServer, stored: int) -> Cost:
    report.heading("index, datasketch's MinHashLSH on the same Redis (128 permutations, threshold 0.8)")
    report.progress(f"storing {stored:,} pages in its insertion session")
    options = _peer_options(sizes, stored) | {"host": "127.0.0.1", "port": server.port}
    with _emptied(server):
        return _peer_cost(report, "datasketch", peers.run("datasketch_lsh", options, report.progress))


def _simhash_index(report: Report, sizes: Sizes, stored: int) -> Cost:
    report.heading("index, 1e0ng's SimhashIndex (k = 3; in its process, no server, not shared)")
    options = _peer_options(sizes, stored) | {"k": 3}
    return _peer_cost(report, "1e0ng", peers.run("simhash_index", options, report.progress))


def _peer_options(sizes: Sizes, stored: int) -> dict[str, object]:
    urls = [made_up_url(number) for number in range(stored + sizes.runs * BATCH)]
    return {"urls": urls, "batches": sizes.runs, "batch": BATCH}


def _peer_cost(report: Report, label: str, found: dict[str, Any]) -> Cost:
    at = f"{label}, {found['stored']:,} stored"
    rate = report.figure(NAME, f"check and insert, one by one ({at})", "pages/s", found["rates"])
    report.figure(NAME, f"insert alone, in bulk ({at})", "pages/s", [found["load_rate"]])
    seconds = found["latencies"]
    for percent in (50, 99):
        value = 1e3 * percentile(seconds, percent)
        report.figure(NAME, f"one page, p{percent} ({at})", "ms", [value], f"{len(seconds)} calls")
    each = report.figure(NAME, f"memory ({at})", "bytes a document", [found["bytes"]], "key: the URL")
    server_us = found.get("server_us", 0.0)
    if server_us:
        report.figure(NAME, f"Redis' main thread ({at})", "us/page", [server_us], "processor time")
    return Cost(label, found["stored"], rate, rate, server_us, each)


def _compare(report: Report, stored: int, ours: list[Cost], datasketch: Cost, simhash_index: Cost) -> None:
    report.heading(f"index against peers, {stored:,} documents in each")
    for cost in ours:
        name = f"{cost.label} against datasketch at {stored:,}"
        times = cost.batched / datasketch.single
        report.ratio(Ratio(NAME, f"{name}: check and insert in batches", times, "x", ">=", 20))
        report.ratio(Ratio(NAME, f"{name}: one by one", cost.single / datasketch.single, "x"))
        spared = datasketch.server_us / cost.server_us
        report.ratio(Ratio(NAME, f"{name}: its processor time on the server to ours in batches", spared, "x"))
        report.ratio(Ratio(NAME, f"{name}: its bytes a document to ours", datasketch.bytes / cost.bytes, "x", ">=", 20))
    for cost in ours:
        name = f"{cost.label} against 1e0ng at {stored:,}"
        times = cost.batched / simhash_index.single
        report.ratio(Ratio(NAME, f"{name}: check and insert in batches (there: in its process)", times, "x"))
        report.ratio(Ratio(NAME, f"{name}: its bytes a document to ours", simhash_index.bytes / cost.bytes, "x"))
