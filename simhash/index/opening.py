"""Opening an index on one primary: found or made, compared with what is wanted, its server checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import redis

from simhash.errors import IndexMismatch
from simhash.index.faults import translated
from simhash.index.interface import IndexSpec, Relation, Retention
from simhash.index.layout import bucket_bits
from simhash.index.redis import RedisIndex
from simhash.index.safekeeping import Durability
from simhash.index.server import check_server, refuse_cluster
from simhash.index.specs import fields_of, refuse_differences, spec_of


def open_index(
    client: redis.Redis,
    name: str,
    profile: Mapping[str, object],
    relation: Relation,
    capacity: int,
    retention: Retention = Retention(),
    clock: Callable[[], int] | None = None,
    adopt_design: bool = True,
    durability: Durability = Durability(),
) -> RedisIndex:
    """Open the index called `name`, creating it when there is none.

    Args:
        profile, relation, capacity: what to create it with; an existing index must have the same profile and reach.
        adopt_design: take an existing index's permutation design instead of refusing another one.

    Raises:
        IndexMismatch: it was made with something else; the message says what differs.
        IndexMisconfigured: the server would drop keys, or is a cluster.
        IndexUnreachable: nobody answers.
    """
    with translated():
        check_server(client)
        spec = IndexSpec(profile, relation, bucket_bits(capacity, relation.design), capacity)
        stored = _create(client, name, spec)
        found = spec_of(stored, name)
        refuse_differences(name, found, spec, adopt_design)
        return RedisIndex(client, name, found, stored["generation"], retention, clock, durability, stored.get("keys"))


def existing_index(client: redis.Redis, name: str, writes: bool = False) -> RedisIndex:
    """Open the index called `name` as it is, whatever it was made with: for looking and for operators.

    Args:
        writes: pages will be removed or stored; else a server that would drop keys will do.

    Raises:
        IndexMismatch: there is no such index, or it is of another format.
        IndexMisconfigured: the server is part of a cluster, or would drop keys.
        IndexUnreachable: nobody answers.
    """
    with translated():
        (check_server if writes else refuse_cluster)(client)
        stored = _meta(client, name)
        if not stored:
            raise IndexMismatch(f"there is no index {name!r} on this Redis")
        return RedisIndex(client, name, spec_of(stored, name), stored["generation"], keys=stored.get("keys"))


def _create(client: Any, name: str, spec: IndexSpec) -> dict[str, str]:
    """Write the meta hash if there is none, as one step; return what is stored."""
    key = f"{name}:meta"
    fields = fields_of(spec)
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)
                if not pipe.exists(key):
                    pipe.multi()
                    pipe.hset(key, mapping=fields)
                    pipe.execute()
                break
            except redis.WatchError:
                continue
    return _meta(client, name)


def _meta(client: Any, name: str) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in client.hgetall(f"{name}:meta").items()}
