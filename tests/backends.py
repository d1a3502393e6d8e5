"""Where an index can lie, for tests that hold all kinds to the same: one Redis, and a Redis Cluster of three
primaries."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import redis
from redis.connection import AbstractConnection

from simhash.index import Retention
from simhash.index.redis.layout import meta_key
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.filling import Store
from simhash.index.redis.operators.migration import Migration
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.transfer import opened_for_import
from worker.index.stores import connect
from worker.settings import Settings

KINDS = ["primary", "cluster"]
FOR_EVER = Retention()


@dataclass(frozen=True)
class Backend:
    """A server, or a cluster, and how an index is opened there.

    Attributes:
        client: a connection to the index of this test; answers as bytes.
        url: what `redis_url` is set to.
        name: of the index, by which a cluster finds its slot.
    """

    client: Any
    url: str
    name: str

    def open(self, name, rule, capacity=1000, retention=FOR_EVER, profile=None, clock=None) -> Any:
        return open_index(self.of(name).client, name, profile or {}, rule, capacity, retention, clock)

    def existing(self, name) -> Any:
        return existing_index(self.of(name).client, name)

    def store(self, name, head) -> Store:
        return opened_for_import(self.of(name).client, name, head)

    def migrate(self, name, wanted) -> None:
        Migration(self.of(name).client, name, lambda progress: None).run(wanted)

    def operations(self, index) -> Operations:
        return Operations(index)

    def meta(self, name) -> str:
        return meta_key(name)

    def of(self, name) -> "Backend":
        """The same, connected to the server that has the index of this name."""
        if name == self.name:
            return self
        return replace(self, client=connect(Settings(redis_url=self.url, index_name=name)), name=name)

    @contextmanager
    def connected(self) -> Iterator["Backend"]:
        """The same over a connection of its own, for a thread."""
        with connect(Settings(redis_url=self.url, index_name=self.name)) as client:
            yield replace(self, client=client)


@contextmanager
def losing(number: int) -> Iterator[list[int]]:
    """Connections of this process break once, at the answer of this number: Redis has done what it was asked for. The
    driver connects anew and asks again. The number is in the list as soon as that has happened."""
    read, answers, lost = AbstractConnection.read_response, itertools.count(1), []

    def read_response(self: AbstractConnection, *arguments: Any, **options: Any) -> Any:
        answer = read(self, *arguments, **options)
        if next(answers) != number:
            return answer
        lost.append(number)
        self.disconnect()
        raise redis.ConnectionError("lost")

    with patch.object(AbstractConnection, "read_response", read_response), patch("redis.retry.sleep"):
        yield lost
