"""A stream of its own for each test: topics, workers in processes of their own, and what they committed."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import IO, Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CoordinatorNotAvailableError

from deploy.local.processes import stands
from simhash.index import Relation
from simhash.relation.tables import automatic_design
from simhash.signature.profiles import DEFAULT
from tests import copies
from tests.pages import address
from worker.cli.verify import rows_of_index
from worker.settings import PREFIX, Settings, load
from worker.verifying.checks import Check
from worker.verifying.rules import Given
from worker.verifying.sources import Sources

ROOT = Path(__file__).parent.parent
WAIT_SECONDS = 240.0
"""Longest wait for a condition; every wait ends as soon as its condition holds."""
ERRORS = "__connect.errors."
"""What the headers of a dead letter begin with that say where its record stands."""
DOCUMENTS = "1000"
"""Size of the streams' indexes."""


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS, pause: float = 0.05) -> Any:
    """Wait until `condition` gives something true, and give that; `pause` seconds between two looks at it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds:g} s: {what}")


def texts(count: int, random: Random, words: int = 150) -> list[str]:
    """Pages in chains of near-duplicates: most are an earlier one with a few words changed, some are short copies."""
    vocabulary = [f"{random.choice('bcdfgklmnprst')}{random.choice('aeiou')}{n}" for n in range(3000)]
    pages: list[list[str]] = []
    short = [[random.choice(vocabulary) for _ in range(size)] for size in (0, 1, 2, 3)]
    found: list[list[str]] = []
    for _ in range(count):
        if pages and random.random() < 0.1:
            found.append(random.choice(short))
            continue
        if pages and random.random() < 0.7:
            page = list(random.choice(pages))
            for at in random.sample(range(words), random.choice([0, 1, 2, 4])):
                page[at] = random.choice(vocabulary)
        else:
            page = [random.choice(vocabulary) for _ in range(words)]
        pages.append(page)
        found.append(page)
    return [" ".join(page) for page in found]


def json_page(number: int, text: str) -> tuple[bytes, bytes]:
    """Key and value of a page."""
    url = address(number)
    return url.encode(), json.dumps({"url": url, "id": str(number), "text": text}).encode()


def relation_of_workers() -> Relation:
    """What matches what in an index that a stream's workers make: the default's rule, in the tables of its size."""
    tables = automatic_design(DEFAULT.k, DEFAULT.bits, int(DOCUMENTS))
    return Relation(tables, DEFAULT.reach, DEFAULT.verifier_reach, DEFAULT.verifier_bits, DEFAULT.bands)


@dataclass
class Stream:
    """Topics under one name on a broker and an index on a Redis; workers are started on them.

    Several groups may read the same input: `beside` gives each its own outputs and index.
    """

    name: str
    bootstrap_servers: str
    redis_url: str
    partitions: int = 1
    input_topic: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.input_topic = self.input_topic or f"{self.name}.pages"

    @property
    def verdict_topic(self) -> str:
        return f"{self.name}.verdicts"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dlq"

    def environment(self) -> dict[str, str]:
        """The settings of this stream's workers."""
        values = {
            "bootstrap_servers": self.bootstrap_servers,
            "redis_url": self.redis_url,
            "input_topic": self.input_topic,
            "verdict_topic": self.verdict_topic,
            "dead_letter_topic": self.dead_letter_topic,
            "group_id": self.name,
            "index_name": self.name,
            "documents": DOCUMENTS,
            "session_timeout": "2s",
            "transaction_timeout": "4s",
            "batch_pages": "16",
            "metrics_address": "off",
        }
        return os.environ | {f"SIMHASH_DEDUP_{n.upper()}": v for n, v in (values | self.settings).items()}

    def given(self) -> dict[str, str]:
        """The same, by the names of the settings."""
        return {n.removeprefix(PREFIX).lower(): v for n, v in self.environment().items() if n.startswith(PREFIX)}

    def loaded(self, **more: Any) -> Settings:
        """The same, as a worker has them, and others besides."""
        return load(self.given() | more)

    def create(self, **unique_topic: str) -> None:
        """Make the topics; the keywords are Kafka's settings of the topic of unique pages, _ for a dot."""
        topics: dict[str, dict[str, str]] = {self.verdict_topic: {}, self.dead_letter_topic: {}, self.input_topic: {}}
        if unique := self.settings.get("unique_topic"):
            topics[unique] = {name.replace("_", "."): value for name, value in unique_topic.items()}
        with closing_admin(self.bootstrap_servers) as admin:
            there = admin.list_topics()
            missing = {
                topic: {"num_partitions": self.partitions, "configs": configs}
                for topic, configs in topics.items()
                if topic not in there
            }
            if missing:
                admin.create_topics(missing, wait_for_metadata=True)

    def beside(self, name: str) -> "Stream":
        """Another group on the same input."""
        other = Stream(name, self.bootstrap_servers, self.redis_url, self.partitions, self.input_topic, self.settings)
        other.create()
        return other

    def send(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        headers: Any = None,
        partition: int | None = None,
    ) -> None:
        """Append records to the input: to one partition, or in turn to all."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, max_request_size=64 << 20)
        for number, (key, value) in enumerate(records):
            where = number % self.partitions if partition is None else partition
            future = producer.send(self.input_topic, key=key, value=value, headers=headers, partition=where)
        producer.flush()
        future.get(timeout=30)
        producer.close()

    def worker(self, stop_at: str = "", signal_number: int = signal.SIGKILL) -> "Worker":
        """Start a worker; with `stop_at` "step:n" it sends itself the signal at the n-th time it takes that step."""
        log = TemporaryFile("w+")  # noqa: SIM115 - the worker's
        told = (stop_at, str(int(signal_number)))
        return Worker(copies.start("tests.faulty_worker", told, self.environment(), log, log), log)

    def command(self, *arguments: str, env: Mapping[str, str] | None = None) -> copies.Done:
        """Run `simhash-dedup` with this stream's settings to its end."""
        return copies.run("worker.__main__", arguments, self.environment() | dict(env or {}), WAIT_SECONDS)

    @contextmanager
    def _reading(self, *topics: str) -> Iterator[KafkaConsumer]:
        """A consumer of what is committed to all partitions of these topics, from their beginnings on."""
        with KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            found = [TopicPartition(t, n) for t in topics for n in sorted(consumer.partitions_for_topic(t) or [])]
            consumer.assign(found)
            consumer.seek_to_beginning(*found)
            yield consumer

    def committed(self, topic: str | None = None) -> list[Any]:
        """All committed records of an output topic (default: verdicts) up to its end as of now."""
        with self._reading(topic or self.verdict_topic) as consumer:
            ends = consumer.end_offsets(list(consumer.assignment()))
            rows: list[Any] = []
            end = time.monotonic() + 10
            while any(consumer.position(p) < ends[p] for p in ends) and time.monotonic() < end:
                for batch in consumer.poll(200, max_records=5000).values():
                    rows += batch
            return rows

    def verdicts(self) -> list[dict[str, Any]]:
        """All committed verdicts."""
        return [json.loads(row.value) for row in self.committed()]

    def answers(self) -> Counter[tuple[int, int]]:
        """How many committed verdicts and dead letters each input record has, by partition and offset."""
        found = Counter((v["source"]["partition"], v["source"]["offset"]) for v in self.verdicts())
        for row in self.committed(self.dead_letter_topic):
            if _answers(row):
                headers = dict(row.headers)
                found[int(headers[ERRORS + "partition"]), int(headers[ERRORS + "offset"])] += 1
        return found

    def check(self, *, index: bool = True) -> None:
        """Everything told is as promised, as `simhash-dedup verify --with-input --index` sees it."""
        settings = self.loaded()
        rows = rows_of_index(settings) if index else None
        check = Check(Sources(settings, with_input=True), Given(), None, rows, lambda _: None)
        check.run()
        assert not check.findings.violations, "\n".join(check.findings.first)

    def wait_for_members(self, count: int) -> None:
        """Wait until so many workers share the partitions."""
        with closing_admin(self.bootstrap_servers) as admin:

            def shared() -> bool:
                try:
                    members = admin.describe_groups([self.name])[self.name]["members"]
                except CoordinatorNotAvailableError:  # of a broker's first group
                    return False
                found = [each["member_assignment"] for each in members]
                return sum(bool(given and given["assigned_partitions"]) for given in found) >= count

            until(shared, f"{count} workers of {self.name} with partitions")

    def wait_for(self, count: int, unless: Callable[[], Any] = bool) -> None:
        """Wait until at least `count` records are answered, or `unless` gives something true."""
        with self._reading(self.verdict_topic, self.dead_letter_topic) as consumer:
            answered = 0

            def enough() -> Any:
                nonlocal answered
                answered += sum(_answers(row) for rows in consumer.poll(200).values() for row in rows)
                return answered >= count or unless()

            until(enough, f"{count} answers of {self.name}", pause=0)


def _answers(row: Any) -> bool:
    """Whether a committed record answers one of the input; another dead letter marks one that was sent back."""
    return not row.topic.endswith(".dlq") or ERRORS + "offset" in dict(row.headers)


@dataclass
class Worker:
    """A worker process."""

    process: copies.Process
    log: IO[str]

    def written(self) -> str:
        """What it wrote to standard error so far."""
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode()  # to seek would move where the worker writes, too

    def says(self, text: str) -> None:
        """Wait until it has written this."""
        until(lambda: text in self.written(), f"{text!r} in\n{self.written()}")

    def wait(self, seconds: float = WAIT_SECONDS) -> tuple[int, str]:
        """Wait for its end: exit code (negative: signal) and what it wrote to standard error."""
        return self.process.wait(seconds), self.written()

    def refusal(self, code: int) -> str:
        """Wait for its end by itself: with this exit code and, but for its log, one clear line, which is returned."""
        found, written = self.wait()
        assert found == code, written
        assert "Traceback" not in written
        (line,) = [line for line in written.splitlines() if line.startswith("simhash-dedup:")]
        return line

    def stop(self) -> tuple[int, str]:
        """Ask it to end, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it whatever state it is in."""
        self.process.kill()
        self.process.wait()

    def stopped(self) -> bool:
        """Whether it stands still under SIGSTOP."""
        return stands(self.process.pid)


@contextmanager
def closing_admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    """An admin client, closed at the end."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


@contextmanager
def working(*workers: Worker) -> Iterator[None]:
    """Whatever happens, no worker outlives the test."""
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
