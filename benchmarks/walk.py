"""The walk of a page through the worker: how many calls, through how many files, with how many moves between them.

    python -m benchmarks.walk [--list]

A worker's loop runs on a broker and a Redis of its own, with fingerprinting in this process. Of the last of a few pages
every call of a function of `simhash/` and `worker/` is noted, in its order, from when the page was polled until its
transaction is committed; comprehensions are no calls. A move is a call in another file than the one before it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from types import FrameType
from typing import cast

from kafka import KafkaProducer
from prometheus_client import CollectorRegistry

from deploy.local.brokers import KafkaServer
from deploy.local.stores import RedisServer
from worker.index.configured import configured_profile
from worker.index.stores import connected_index
from worker.judging.fingerprinters import Fingerprinters, Outcome, Pending, Prepare, _Part, recipe
from worker.judging.judge import Recipe, prepare
from worker.records.passing import RawRecord
from worker.settings import Settings, load
from worker.stream.kafka import Session, ensure_topics
from worker.stream.kafka.topics import plans
from worker.stream.loop import Loop, Parts
from worker.stream.metrics import Metrics
from worker.stream.status import Status

ROOT = Path(__file__).parents[1]
FOLDERS = tuple(f"{ROOT / name}/" for name in ("simhash", "worker"))
PAGES = 4
"""The first ones load what the others need."""
WORDS = 300


@dataclass
class Walk:
    """The calls between two steps of the loop: file and function."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    on: bool = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(FOLDERS) and not code.co_name.startswith("<"):
            self.calls.append((str(Path(code.co_filename).relative_to(ROOT)), code.co_name))

    @property
    def files(self) -> Counter[str]:
        """How many of the calls are in each file."""
        return Counter(file for file, _ in self.calls)

    @property
    def moves(self) -> int:
        """How often the file changes."""
        return sum(before[0] != after[0] for before, after in pairwise(self.calls))


class Here:
    """Fingerprinters without children: in this process, at once."""

    def __init__(self, recipe: Recipe, prepare: Prepare = prepare) -> None:
        self._recipe = recipe
        self._prepare = prepare

    def submit(self, records: Sequence[RawRecord]) -> Pending:
        """Prepare `records`."""
        done: Future[list[Outcome]] = Future()
        done.set_result([self._prepare(record, self._recipe) for record in records])
        return Pending(cast("Fingerprinters", self), [_Part(records, done)])

    def retried(self, part: _Part) -> Sequence[_Part]:
        """The part itself: nothing is lost here."""
        return [part]


def main() -> None:
    """Walk, and say how far it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="each call, in order")
    listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as directory:
        broker = KafkaServer(Path(directory) / "kafka", dies_with_parent=True)
        store = RedisServer(Path(directory) / "redis", dies_with_parent=True)
        try:
            broker.start()
            store.start()
            walk = walked(load({"bootstrap_servers": broker.bootstrap_servers, "redis_url": store.url}))
        finally:
            broker.kill()
            store.kill()
    for file, calls in walk.files.most_common():
        print(f"{calls:5} {file}")
    print(f"{len(walk.calls)} calls, {len(walk.files)} files, {walk.moves} moves")
    if listed:
        for file, found in groupby(walk.calls, lambda call: call[0]):
            print(file, *(name for _, name in found))


def walked(settings: Settings) -> Walk:
    """The walk of a page under these settings; the topics are made, the index is."""
    list(ensure_topics(settings, plans(settings, partitions=1), replication=1, dry_run=False))
    profile = configured_profile(settings)
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers)
    walk, random, stopping = Walk(), Random(1), threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        sent += 1
        text = " ".join(f"word{random.randrange(10_000)}" for _ in range(WORDS))
        page = {"url": f"https://example.org/{sent}", "html": f"<title>{sent}</title><p>{text}.</p>"}
        producer.send(settings.input_topic, json.dumps(page).encode()).get()

    def on_step(step: str) -> None:
        if step == "polled":
            walk.on = sent == PAGES
        elif step == "committed":
            walk.on = False
            send() if sent < PAGES else stopping.set()

    parts = Parts(
        settings=settings,
        profile=profile,
        index=connected_index(settings, profile),
        fingerprinters=cast("Fingerprinters", Here(recipe(settings, profile))),
        open_session=lambda: Session(settings, settings.group_id),
        metrics=Metrics(CollectorRegistry()),
        status=Status(),
        on_step=on_step,
    )
    send()
    sys.setprofile(walk.note)
    try:
        Loop(parts, stopping).run()
    finally:
        sys.setprofile(None)
        producer.close()
    return walk


if __name__ == "__main__":
    main()
