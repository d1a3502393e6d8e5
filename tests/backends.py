"""The two kinds of index in Redis, for tests that hold them to the same: on one primary, and on a cluster of three."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import redis

from simhash.index import Retention
from simhash.index.cluster import (
    ClusterMigration,
    ClusterOperations,
    existing_cluster_index,
    open_cluster_index,
    opened_on_cluster_for_import,
)
from simhash.index.migration import Migration
from simhash.index.opening import existing_index, open_index
from simhash.index.operations import Operations, Store
from simhash.index.primary import PrimaryOperations, opened_for_import

KINDS = ["primary", "cluster"]
FOR_EVER = Retention()


@dataclass(frozen=True)
class Backend:
    """A server, or a cluster, and how an index is opened there.

    Attributes:
        client: a connection; answers as bytes.
        url: what `redis_url` is set to.
    """

    client: Any
    url: str
    clustered: bool

    def open(self, name, rule, capacity=1000, retention=FOR_EVER, profile=None, clock=None) -> Any:
        made = open_cluster_index if self.clustered else open_index
        return made(self.client, name, profile or {}, rule, capacity, retention, clock)

    def existing(self, name) -> Any:
        return (existing_cluster_index if self.clustered else existing_index)(self.client, name)

    def store(self, name, head) -> Store:
        return (opened_on_cluster_for_import if self.clustered else opened_for_import)(self.client, name, head)

    def migrate(self, name, wanted) -> None:
        (ClusterMigration if self.clustered else Migration)(self.client, name, lambda progress: None).run(wanted)

    def operations(self, index) -> Operations:
        return ClusterOperations(index.inside) if self.clustered else PrimaryOperations(index)

    def meta(self, name) -> str:
        return f"{{{name}:claim}}:meta" if self.clustered else f"{name}:meta"

    @contextmanager
    def connected(self) -> Iterator["Backend"]:
        """The same over a connection of its own, for a thread."""
        first = self.url.replace("+cluster", "").partition(",")[0]
        with (redis.RedisCluster if self.clustered else redis.Redis).from_url(first) as client:
            yield replace(self, client=client)
