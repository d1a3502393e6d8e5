"""`make stream-demo`: pages through a real Kafka, judged by two worker processes, verdicts shown as they come.

Run by `deploy/local/servers with`, which starts the servers and names them in the environment. Unlike its neighbours
this needs the installed package. Topics, group and index are named after this run and removed after it, so that every
run judges the pages afresh.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec
import redis
import zstandard
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from worker.cli.summary import say, show
from worker.errors import WorkerError
from worker.files.summary import Summary
from worker.records.verdict import Verdict, decode
from worker.settings import PREFIX, Settings, load
from worker.stream.kafka import ensure_topics
from worker.stream.kafka.connect import admin_client
from worker.stream.kafka.topics import plans

PROCESSES = 2
PARTITIONS = 4
SHOWN = 10
PATIENCE_SECONDS = 90.0
"""How long no verdict may come: the first waits until both workers have joined the group."""


class _Url(msgspec.Struct):
    url: str


@dataclass
class Screen:
    """What the terminal shows: the figures so far and the last verdicts."""

    total: int
    summary: Summary = field(default_factory=Summary)
    last: list[Text] = field(default_factory=list)

    def add(self, verdict: Verdict, partition: int) -> None:
        """Count a verdict and show it."""
        self.summary.count(verdict)
        self.last = [*self.last, _line(verdict, partition)][-SHOWN:]

    def drawn(self) -> Group:
        """As it is drawn."""
        done = self.summary.pages + self.summary.rejected
        return Group(*self.last, Text(f"{done:,} of {self.total:,} pages, {self.summary.seconds:.0f} s", style="bold"))


@click.command()
@click.argument("pages", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(pages: Path) -> None:
    """Send PAGES (JSONL, plain or .zst) through Kafka and show the verdicts arriving."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        _run(pages, _settings(), Console())
    except WorkerError as error:
        raise click.ClickException(str(error)) from error


def _run(pages: Path, settings: Settings, console: Console) -> None:
    try:
        for line in ensure_topics(settings, plans(settings, PARTITIONS), replication=1, dry_run=False):
            say(line, console)
        sent = _send(settings, pages)
        say(f"sent: {sent:,} pages; starting {PROCESSES} worker processes", console)
        with _workers(settings) as workers:
            summary = _shown(settings, sent, workers, console)
        _finish(summary, console)
    finally:
        with suppress(WorkerError, redis.RedisError):  # servers that are gone have nothing to be removed
            _remove(settings)


def _settings() -> Settings:
    name = f"stream-demo-{int(time.time())}-{os.getpid()}"
    return load(
        {
            "input_topic": f"{name}.pages",
            "verdict_topic": f"{name}.verdicts",
            "dead_letter_topic": f"{name}.dlq",
            "group_id": name,
            "index_name": name,
            "processes": PROCESSES,
            "log_level": "error",
        }
    )


def _send(settings: Settings, pages: Path) -> int:
    """Append the pages to the input topic, each under its URL; returns how many."""
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, max_request_size=64 << 20, linger_ms=20)
    try:
        futures = [producer.send(settings.input_topic, key=_key(line), value=line) for line in _lines(pages)]
        producer.flush()
        for future in futures:
            future.get(timeout=30)
    finally:
        producer.close()
    return len(futures)


def _lines(pages: Path) -> Iterator[bytes]:
    data = pages.read_bytes()
    if pages.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return (line for line in data.split(b"\n") if line)


def _key(line: bytes) -> bytes | None:
    try:
        return msgspec.json.decode(line, type=_Url).url.encode()
    except (msgspec.DecodeError, UnicodeError):
        return None  # the worker says what is wrong with it


@contextmanager
def _workers(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor of the worker processes, ended in order."""
    names = settings.model_fields_set - {"redis_url", "bootstrap_servers"}  # these two are in the environment
    given = {PREFIX + name.upper(): str(getattr(settings, name)) for name in names}
    given[f"{PREFIX}METRICS_ADDRESS"] = "off"  # a worker that runs here may have the port
    supervisor = subprocess.Popen([sys.executable, "-m", "worker", "run"], env=os.environ | given)
    try:
        yield supervisor
    finally:
        supervisor.terminate()
        supervisor.wait()


def _shown(settings: Settings, total: int, workers: subprocess.Popen[bytes], console: Console) -> Summary:
    """Show the verdicts until all pages have theirs."""
    screen = Screen(total)
    summary = screen.summary
    started: float | None = None  # the first verdict waits until both workers have joined the group
    heard = time.monotonic()
    with _outputs(settings) as consumer, Live(screen.drawn(), console=console, refresh_per_second=8) as live:
        while summary.pages + summary.rejected < total:
            for topic, rows in consumer.poll(200).items():
                heard = time.monotonic()
                started = started or heard
                for row in rows:
                    if topic.topic == settings.dead_letter_topic:
                        summary.rejected += 1
                    else:
                        verdict = decode(row.value)
                        screen.add(verdict, verdict.source.partition)
            summary.seconds = time.monotonic() - started if started else 0.0
            live.update(screen.drawn())
            if workers.poll() is not None:
                raise click.ClickException(f"the workers ended with {workers.returncode}")
            if time.monotonic() - heard > PATIENCE_SECONDS:
                raise click.ClickException(f"no verdict came for {PATIENCE_SECONDS:.0f} s")
    return summary


@contextmanager
def _outputs(settings: Settings) -> Iterator[KafkaConsumer]:
    """A reader of all that is committed to the output topics."""
    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed")
    try:
        topics = (settings.verdict_topic, settings.dead_letter_topic)
        partitions = [TopicPartition(t, n) for t in topics for n in consumer.partitions_for_topic(t) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        yield consumer
    finally:
        consumer.close()


def _line(verdict: Verdict, partition: int) -> Text:
    """One verdict on one line."""
    line = Text(no_wrap=True, overflow="ellipsis")
    match = verdict.match
    if match is None:
        line.append(f"unique    #{verdict.seq:<8}", style="green")
    else:
        line.append(f"duplicate {match.kind:5} {match.distance:<2} ", style="yellow")
    line.append(f"[{partition}] {verdict.url}")
    return line


def _finish(summary: Summary, console: Console) -> None:
    """The same figures as a file run's, and example pairs."""
    summary.complete = True
    console.print()
    show(summary, console)


def _remove(settings: Settings) -> None:
    """Topics, group and index of this run, as far as they were made."""
    topics = [settings.input_topic, settings.verdict_topic, settings.dead_letter_topic]
    with admin_client(settings) as admin:
        admin.delete_topics([topic for topic in topics if topic in admin.list_topics()])
        admin.delete_groups([settings.group_id])
    client = redis.Redis.from_url(settings.redis_url.get_secret_value())
    for key in client.scan_iter(f"{settings.index_name}:*", count=1000):
        client.unlink(key)
    client.close()


if __name__ == "__main__":
    main()
