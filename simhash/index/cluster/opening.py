"""Opening an index on a Redis Cluster: found or made, compared with what is wanted, its servers checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import redis

from simhash.errors import IndexMisconfigured, IndexMismatch
from simhash.index.cluster.groups import claim_tag
from simhash.index.cluster.index import ClusterIndex
from simhash.index.cluster.nodes import Nodes, translated_on_cluster
from simhash.index.interface import IndexSpec, Relation, Retention
from simhash.index.layout import bucket_bits
from simhash.index.safekeeping import Durability
from simhash.index.specs import decoded, fields_of, flat, refuse_differences, spec_of

_CREATE = """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
"""
_READ = "return redis.call('HGETALL', KEYS[1])"


def open_cluster_index(
    client: redis.RedisCluster,
    name: str,
    profile: Mapping[str, object],
    relation: Relation,
    capacity: int,
    retention: Retention = Retention(),
    clock: Callable[[], int] | None = None,
    adopt_design: bool = True,
    durability: Durability = Durability(),
) -> ClusterIndex:
    """Open the index called `name`, creating it when there is none; as `simhash.index.opening.open_index`.

    Raises:
        IndexMismatch: it was made with something else; the message says what differs.
        IndexMisconfigured: a server would drop keys, or is no cluster.
        IndexUnreachable: nobody answers.
    """
    check_cluster(client)
    spec = IndexSpec(profile, relation, bucket_bits(capacity, relation.design), capacity)
    stored = meta_of(client, name, _CREATE, *flat(new_fields(spec)))
    found = spec_of(stored, name)
    refuse_differences(name, found, spec, adopt_design)
    index = ClusterIndex(
        Nodes(client), name, found, stored["generation"], retention, clock, durability, stored.get("keys")
    )
    index.inside.keeper.begin()
    return index


def existing_cluster_index(client: redis.RedisCluster, name: str, writes: bool = False) -> ClusterIndex:
    """Open the index called `name` as it is, whatever it was made with: for looking and for operators.

    Args:
        writes: pages will be removed or stored; else a primary that would drop keys will do.

    Raises:
        IndexMismatch: there is no such index, or it is of another format.
        IndexMisconfigured: a primary would drop keys.
        IndexUnreachable: nobody answers.
    """
    if writes:
        check_cluster(client)
    stored = meta_of(client, name)
    if not stored:
        raise IndexMismatch(f"there is no index {name!r} on this Redis Cluster")
    return ClusterIndex(Nodes(client), name, spec_of(stored, name), stored["generation"], keys=stored.get("keys"))


def new_fields(spec: IndexSpec) -> dict[str, str | int | bytes]:
    """What the meta of a new index holds."""
    return fields_of(spec) | {"first": 1, "floor": 1, "nonce": 0}


def check_cluster(client: redis.RedisCluster) -> None:
    """Refuse a cluster of which a primary would lose the index's keys.

    Raises:
        IndexMisconfigured: eviction is on.
    """
    with translated_on_cluster():
        asked: Any = client
        memory = asked.info("memory", target_nodes=asked.PRIMARIES)
    by_node = {"the primary": memory} if "maxmemory_policy" in memory else memory
    for node, found in by_node.items():
        policy = found.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise IndexMisconfigured(
                f"{node} has maxmemory-policy {policy}: it would drop parts of the index without a word; set "
                "maxmemory-policy noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
            )


def meta_of(client: Any, name: str, script: str = _READ, *arguments: str | int | bytes) -> dict[str, str]:
    """What the index says of itself; empty: there is none."""
    with translated_on_cluster():
        found = client.eval(script, 1, f"{claim_tag(name)}:meta", *arguments)
    return decoded(dict(zip(found[::2], found[1::2], strict=True)))
