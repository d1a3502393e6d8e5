"""Pages end to end, through Kafka and through files, against fingerprinting alone.

"Alone" is the worker's own `prepare` in one process over records in memory: no Kafka, no index, no verdicts. The Kafka
worker is one process of `simhash-dedup run` (it keeps one child for fingerprinting) on this machine's real broker and
Redis; a file run has one fingerprinting process as well. Rates leave out the start: they begin with the first tenth,
and the broker, which compiles itself in its first minute, has passed a run of pages on before that counts for nothing.

"Alone" has the machine for itself, while the worker shares it with the broker, Redis and the consumer that counts its
verdicts: what each takes of a processor for a page is printed too. Where their sum, less the child's, does not leave
the child a core of its own, that is the limit of this machine and not of the loop.

A stream of templates beside a plain one: in both three pages of ten are short, and made up; in one of them these show
the words of a few templates in ever another order, so all pages of a template meet, and none is a duplicate of another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks.meter import Stopwatch, tree_cpu_seconds
from benchmarks.report import Ratio, Report
from benchmarks.samples import page_values, raw_records, read_pages, with_templates
from deploy.local.brokers import KafkaServer
from deploy.local.stores import RedisServer
from worker.index.configured import configured_profile
from worker.judging.fingerprinters import recipe
from worker.judging.judge import prepare
from worker.settings import PREFIX, Settings, load
from worker.stream.kafka import ensure_topics
from worker.stream.kafka.topics import plans

NAME = "loop"
ROOT = Path(__file__).parents[1]
STARTED = 0.1
"""Share of the pages after which a run counts as warm."""
PATIENCE_SECONDS = 600.0
TEMPLATES, TEMPLATE_SHARE = 16, 0.3
ALONE, KAFKA, FILES = "fingerprinting alone", "through Kafka", "through files"
SHORT = f"{KAFKA}, {TEMPLATE_SHARE:.0%} short pages"
SHORT_TEMPLATES = f"{SHORT} of {TEMPLATES} templates"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many pages a run has, and how many runs there are."""

    pages: int = 10_000
    runs: int = 3


QUICK = Sizes(pages=300, runs=1)


@dataclass(frozen=True, slots=True)
class Run:
    """Pages a second, and microseconds of processor time a page, by who took it, as far as it was measured."""

    rate: float
    cpu: Mapping[str, float] = field(default_factory=dict)


def run(report: Report, sizes: Sizes, directory: Path, sample: Path) -> None:
    """Measure in turn, so that what others do on the machine meets all three alike."""
    pages = read_pages(sample)
    report.heading("loop: Kafka and files against fingerprinting alone")
    repeated = f", the sample's {len(pages):,} over and over under changed URLs" if sizes.pages > len(pages) else ""
    report.progress(f"{sizes.pages:,} pages a run{repeated}")
    runs: dict[str, list[Run]] = {ALONE: [], KAFKA: [], SHORT: [], SHORT_TEMPLATES: [], FILES: []}
    short = list(with_templates(pages, sizes.pages, TEMPLATE_SHARE, sizes.pages))
    templates = list(with_templates(pages, TEMPLATES, TEMPLATE_SHARE, sizes.pages))
    with _servers(directory) as (broker, store):
        _through_kafka(pages, max(sizes.pages // 3, 1), broker, store, "warm")
        for number in range(sizes.runs):
            runs[ALONE].append(_alone(pages, sizes.pages))
            runs[KAFKA].append(_through_kafka(pages, sizes.pages, broker, store, str(number)))
            runs[SHORT].append(_through_kafka(short, sizes.pages, broker, store, f"short{number}"))
            runs[ALONE].append(_alone(pages, sizes.pages))
            runs[SHORT_TEMPLATES].append(_through_kafka(templates, sizes.pages, broker, store, f"templates{number}"))
            runs[FILES].append(_through_files(pages, sizes.pages, directory))
    _report(report, runs)


def _report(report: Report, measured: Mapping[str, Sequence[Run]]) -> None:
    rates = {}
    for label, runs in measured.items():
        rates[label] = report.figure(NAME, label, "pages/s", [r.rate for r in runs])
        for who in runs[0].cpu:
            report.figure(NAME, f"{label}: {who}", "us/page", [r.cpu[who] for r in runs], "processor time")
    for label in (KAFKA, FILES):
        report.ratio(Ratio(NAME, f"{label}, of {ALONE}", rates[label] / rates[ALONE], "%", ">=", 0.8))
    share = rates[SHORT_TEMPLATES] / rates[SHORT]
    report.ratio(Ratio(NAME, f"{SHORT_TEMPLATES}, of as many without templates", share, "%", ">=", 0.5))


def _alone(pages: list[dict[str, str]], count: int) -> Run:
    settings = load({})
    wanted = recipe(settings, configured_profile(settings))
    records = raw_records(pages, count)
    start = int(count * STARTED)
    for record in records[:start]:
        prepare(record, wanted)
    watch = Stopwatch()
    for record in records[start:]:
        prepare(record, wanted)
    return Run((count - start) / watch.wall, {"its process": 1e6 * watch.cpu / (count - start)})


# Kafka -----------------------------------------------------------------------------------------------------------


@contextmanager
def _servers(directory: Path) -> Iterator[tuple[KafkaServer, RedisServer]]:
    store = RedisServer(directory / "redis", dies_with_parent=True)
    broker = KafkaServer(directory / "kafka", dies_with_parent=True)
    try:
        store.start()
        broker.start()
        yield broker, store
    finally:
        broker.kill()
        store.kill()


def _through_kafka(
    pages: list[dict[str, str]], count: int, broker: KafkaServer, store: RedisServer, number: str
) -> Run:
    name = f"bench{number}"
    settings = load(
        {
            "bootstrap_servers": broker.bootstrap_servers,
            "redis_url": store.url,
            "input_topic": f"{name}.pages",
            "verdict_topic": f"{name}.verdicts",
            "dead_letter_topic": f"{name}.dlq",
            "group_id": name,
            "index_name": name,
            "metrics_address": "",
        }
    )
    list(ensure_topics(settings, plans(settings, partitions=1), replication=1, dry_run=False))
    _send(settings, page_values(pages, count))
    with _worker(settings) as pid:
        times, cpu = _watch_verdicts(settings, count, lambda: _spent(pid, broker, store))
    start = int(count * STARTED)
    return Run((count - start) / (times[-1] - times[start]), {who: 1e6 * each for who, each in cpu.items()})


def _spent(worker: int, broker: KafkaServer, store: RedisServer) -> dict[str, float]:
    """Processor seconds so far, by who took them."""
    tree = tree_cpu_seconds(worker)
    parent = tree.pop(worker)
    servers = {"broker": broker.pid, "Redis": store.pid, "this consumer": os.getpid()}
    return {"worker's parent": parent, "worker's children": sum(tree.values())} | {
        who: tree_cpu_seconds(pid)[pid] for who, pid in servers.items() if pid
    }


def _send(settings: Settings, values: Iterator[tuple[bytes, bytes]]) -> None:
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=20, batch_size=256 << 10)
    for key, value in values:
        producer.send(settings.input_topic, key=key, value=value)
    producer.flush()
    producer.close()


@contextmanager
def _worker(settings: Settings) -> Iterator[int]:
    """A worker process with these settings, ended in order; gives its number."""
    given = settings.model_dump(exclude_unset=True) | {"redis_url": settings.redis_url.get_secret_value()}
    environment = _environment() | {PREFIX + name.upper(): str(value) for name, value in given.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "run", "--log-level", "error"], env=environment, cwd=ROOT
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _watch_verdicts(
    settings: Settings, count: int, spent: Callable[[], dict[str, float]]
) -> tuple[list[float], dict[str, float]]:
    """When each verdict or dead letter was written (seconds, by the worker's clock), and the processor seconds a page
    from the first tenth on."""
    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed")
    topics = (settings.verdict_topic, settings.dead_letter_topic)
    partitions = [TopicPartition(topic, 0) for topic in topics]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    times: list[float] = []
    before: dict[str, float] = {}
    first = 0
    end = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(times) < count:
            for rows in consumer.poll(200, max_records=2000).values():
                times += [row.timestamp / 1000 for row in rows]
            if not before and len(times) >= count * STARTED:
                before, first = spent(), len(times)
            if time.monotonic() > end:
                raise TimeoutError(f"{len(times)} of {count} pages were answered in {PATIENCE_SECONDS:.0f} s")
    finally:
        consumer.close()
    pages = max(1, len(times) - first)
    return sorted(times), {who: (seconds - before[who]) / pages for who, seconds in spent().items()}


# Files -----------------------------------------------------------------------------------------------------------


def _through_files(pages: list[dict[str, str]], count: int, directory: Path) -> Run:
    source = directory / "pages.jsonl"
    source.write_bytes(b"".join(value + b"\n" for _, value in page_values(pages, count)))
    rejected = directory / "rejected.jsonl"
    command = [sys.executable, "-m", "worker", "file", str(source), "--out", "-", "--rejected-out", str(rejected)]
    with subprocess.Popen(
        [*command, "--processes", "1", "--quiet"], env=_environment(), cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        times = [time.perf_counter() for _ in process.stdout or ()]
    if process.returncode or not times:
        raise RuntimeError(f"the file run ended with {process.returncode} after {len(times)} verdicts")
    start = int(len(times) * STARTED)
    return Run((len(times) - start) / (times[-1] - times[start]))


def _environment() -> dict[str, str]:
    """This process's environment without settings of the pipeline."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
