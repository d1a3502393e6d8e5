"""A short fault campaign: workers as processes on servers of their own, a stream of hard pages, faults by a seed.

    with campaign(directory, Scenario(seed=1)) as stage: stage.run()

At the end everything is answered, or the campaign says what hung; what was told is for the caller to check.
"""

import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests import copies
from tests.servers import KEEPS_ALL, KafkaServer, RedisServer, running_kafka, running_redis
from tests.stream import Stream, Worker, closing_admin, until

SESSION_SECONDS = 3
SETTINGS = {
    "session_timeout": f"{SESSION_SECONDS}s",
    "transaction_timeout": "4s",
    "batch_pages": "40",
    "redis_timeout": "2s",
    "documents": "20000",
    "log_level": "warning",
    "metrics_address": "off",
}
ORDINARY_ENDS = {0, 7, -signal.SIGKILL, -signal.SIGTERM}
"""A worker is started again after these. One that has just begun ends with 7 when no broker answers it, and has no
handlers of signals yet."""
STEPS = ("prepared", "judged", "begun", "offsets", "sent")
MOST_BATCHES = 2000
TEMPLATE_WORDS = 29
AT_ONCE = 50
DRAIN_SECONDS = 180.0


@dataclass(frozen=True)
class Scenario:
    """What happens.

    Attributes:
        templates: how many sets of words there are, each of whose orders is a page; share: of these pages.
        backlog: records that are there when the workers start; rate: records a second from then on.
        faults: names, one chosen after the other by the seed, for so many seconds.
        stills: every so many batches a worker stands still between two steps, past its session, and wakes up; 0: never.
    """

    seed: int
    templates: int = 12
    share: float = 0.3
    workers: int = 3
    partitions: int = 6
    backlog: int = 500
    rate: int = 0
    seconds: float = 0.0
    faults: Sequence[str] = ()
    stills: int = 0
    settings: dict[str, str] = field(default_factory=dict)


class Pages:
    """An endless stream of records, the same for a seed: templates, fresh pages, copies, re-crawls, garbage."""

    def __init__(self, scenario: Scenario) -> None:
        self._random = Random(scenario.seed)
        self._share = scenario.share
        self._words = [f"{a}{b}{n}" for n in range(40) for a in "bdfgklmnprst" for b in ("ana", "ebo", "iru", "olo")]
        self._templates = [self._random.sample(self._words, TEMPLATE_WORDS) for _ in range(scenario.templates)]
        self._before: list[tuple[str, list[str]]] = []
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        while True:
            yield self._record()

    def _record(self) -> tuple[bytes | None, bytes | None]:
        random, number = self._random, next(self._numbers)
        url = f"http://site{number % 7}.example/{number}"
        if random.random() < self._share:
            return self._page(url, self._of_template())
        kind = random.choices(["fresh", "near", "copy", "again", "garbage"], [5, 3, 2, 1, 1])[0]
        if kind == "garbage":
            return random.choice(
                [(b"k", b"no page"), (None, b"{}"), (b"k", None), (b"k", b'{"url": "", "text": "x"}'), (b"", b"\xff")]
            )
        if kind == "fresh" or not self._before:
            return self._page(url, random.choices(self._words, k=random.choice([3, 40, 90, 140])))
        former, words = random.choice(self._before)
        if kind == "near":
            words = list(words)
            for at in random.sample(range(len(words)), min(len(words), random.choice([1, 1, 2, 3]))):
                words[at] = random.choice(self._words)
        return self._page(former if kind == "again" else url, words)

    def _of_template(self) -> list[str]:
        """A template's words in another order; with some of its own its fingerprint is another, near theirs."""
        own = [f"own{self._random.randrange(10**6)}" for _ in range(self._random.choice([0, 0, 1, 2, 3]))]
        words = self._random.choice(self._templates) + own
        return self._random.sample(words, len(words))

    def _page(self, url: str, words: list[str]) -> tuple[bytes, bytes]:
        self._before.append((url, words))
        return url.encode(), json.dumps({"url": url, "text": " ".join(words)}).encode()


@dataclass
class Stage:
    """Servers, topics, workers.

    Attributes:
        done: the faults so far, a line each.
    """

    scenario: Scenario
    directory: Path
    kafka: KafkaServer
    redis: RedisServer
    stream: Stream
    producer: KafkaProducer
    workers: list[Worker] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    sent: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self.random = Random(self.scenario.seed)
        self._pages = iter(Pages(self.scenario))
        self._logs = itertools.count()
        self._asleep: dict[int, float] = {}
        self._failed: list[Exception] = []

    def run(self) -> None:
        """Send, work, break; then wait until all is answered and end the workers in order."""
        self._send(self.scenario.backlog)
        self.workers = [self._worker() for _ in range(self.scenario.workers)]
        stopping = threading.Event()
        sender = threading.Thread(target=self._keep_sending, args=(stopping,))
        sender.start()
        try:
            end = time.monotonic() + self.scenario.seconds
            while time.monotonic() < end:
                self._one_fault()
                self.tend()
            self.over = True
        finally:
            stopping.set()
            sender.join()
        if self._failed:
            raise self._failed[0]
        self.drain()

    def drain(self) -> None:
        """Wait until the group stands at the end of the input, and end the workers."""
        until(self._is_drained, f"the end of the input; so far {self.done}", DRAIN_SECONDS, pause=0.5)
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
            worker.process.send_signal(signal.SIGCONT)  # it may stand still, and others have done its work
        for worker in self.workers:
            worker.process.wait(60)

    def tend(self) -> None:
        """Start what has ended again, as a service manager does."""
        for number, worker in enumerate(self.workers):
            code = worker.process.poll()
            if code is None:
                self._wake(worker)
            if code is not None:
                assert code in ORDINARY_ENDS, f"a worker ended with {code}\n{self.logs()[-4000:]}"
                self.workers[number] = self._worker()

    def _wake(self, worker: Worker) -> None:
        """Let one that stands still go on, when its partitions have others."""
        pid, now = worker.process.pid, time.monotonic()
        if not self.scenario.stills or not worker.stopped():
            return
        if now >= self._asleep.setdefault(pid, now + SESSION_SECONDS + self.random.uniform(0.5, 3)):
            del self._asleep[pid]
            self.done.append("stood still between two steps")
            worker.process.send_signal(signal.SIGCONT)

    def logs(self) -> str:
        """What all workers wrote."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("worker-*.log")))

    def close(self) -> None:
        """No worker outlives the campaign, whatever state it is in."""
        for worker in self.workers:
            worker.kill()

    def _worker(self) -> Worker:
        log = (self.directory / f"worker-{next(self._logs):03}.log").open("w+")
        told = (self._moments(), str(int(signal.SIGSTOP)))
        return Worker(copies.start("tests.faulty_worker", told, self.stream.environment(), log, log), log)

    def _moments(self) -> str:
        """Where a worker will stand still."""
        every, batches = self.scenario.stills, range(2, MOST_BATCHES)
        chosen = [n for n in batches if every and not self.over and self.random.random() < 1 / every]
        return ",".join(f"{self.random.choice(STEPS)}:{n}" for n in chosen)

    def _one_fault(self) -> None:
        if not self.scenario.faults:
            time.sleep(0.2)
            return
        name = self.random.choice(self.scenario.faults)
        self.done.append(name)
        FAULTS[name](self)
        time.sleep(self.random.uniform(0.5, 2))

    def _is_drained(self) -> bool:
        self.tend()
        with suppress(KafkaError), closing_admin(self.stream.bootstrap_servers) as admin:
            offsets = admin.list_group_offsets([self.stream.name])[self.stream.name]
            places = [TopicPartition(self.stream.input_topic, n) for n in range(self.scenario.partitions)]
            stands = {tp: offsets[tp].offset for tp in places if tp in offsets}
            return sum(stands.values()) >= self.sent
        return False

    def _keep_sending(self, stopping: threading.Event) -> None:
        while self.scenario.rate and not stopping.wait(AT_ONCE / self.scenario.rate):
            try:
                self._send(AT_ONCE)
            except Exception as error:
                self._failed.append(error)
                return

    def _send(self, count: int) -> None:
        for key, value in itertools.islice(self._pages, count):
            where = self.sent % self.scenario.partitions
            self.producer.send(self.stream.input_topic, key=key, value=value, partition=where)
            self.sent += 1
        self.producer.flush(timeout=60)


Fault = Callable[[Stage], None]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Known by its name."""
    FAULTS[function.__name__] = function
    return function


@fault
def kill_a_worker(stage: Stage) -> None:
    stage.random.choice(stage.workers).process.kill()


@fault
def end_a_worker(stage: Stage) -> None:
    stage.random.choice(stage.workers).process.terminate()


@fault
def stop_a_worker_past_its_session(stage: Stage) -> None:
    _still(stage, stage.random.sample(stage.workers, 1), SESSION_SECONDS + stage.random.uniform(1, 4))


@fault
def stop_two_workers_past_their_sessions(stage: Stage) -> None:
    _still(stage, stage.random.sample(stage.workers, 2), SESSION_SECONDS + stage.random.uniform(1, 4))


@fault
def stop_a_worker_for_a_moment(stage: Stage) -> None:
    _still(stage, stage.random.sample(stage.workers, 1), stage.random.uniform(0.2, 0.7 * SESSION_SECONDS))


def _still(stage: Stage, workers: Sequence[Worker], seconds: float) -> None:
    for worker in workers:
        worker.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    for worker in workers:
        worker.process.send_signal(signal.SIGCONT)


@fault
def pause_redis(stage: Stage) -> None:
    stage.redis.pause()
    time.sleep(stage.random.uniform(0.5, 4))
    stage.redis.resume()


@fault
def kill_redis(stage: Stage) -> None:
    stage.redis.kill()
    time.sleep(stage.random.uniform(0, 2))
    stage.redis.start()


@fault
def restart_the_broker(stage: Stage) -> None:
    stage.kafka.restart()


@fault
def kill_the_broker(stage: Stage) -> None:
    stage.kafka.kill()
    time.sleep(stage.random.uniform(0, 2))
    stage.kafka.start()


@contextmanager
def campaign(directory: Path, scenario: Scenario) -> Iterator[Stage]:
    """A stage with servers of its own; nothing of it outlives the `with`."""
    with ExitStack() as stack:
        kafka = stack.enter_context(running_kafka(directory / "kafka"))
        keeps = KEEPS_ALL if kill_redis.__name__ in scenario.faults else None
        redis = stack.enter_context(running_redis(directory / "redis", keeps))
        settings = SETTINGS | dict(scenario.settings)
        name = f"campaign-{scenario.seed}"
        stream = Stream(name, kafka.bootstrap_servers, redis.url, scenario.partitions, settings=settings)
        stream.create()
        # One for all: it outlives a broker that is away, which a new one must find there.
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all", enable_idempotence=True)
        stack.callback(producer.close)
        stage = Stage(scenario, directory, kafka, redis, stream, producer)
        stack.callback(stage.close)
        yield stage
