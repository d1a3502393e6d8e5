"""What a Redis server must be to hold an index, and what it had better be."""

from __future__ import annotations

from typing import Any

import redis

from simhash.errors import IndexMisconfigured


def check_server(client: redis.Redis) -> None:
    """Refuse a server that would lose the index's keys.

    Raises:
        IndexMisconfigured: eviction is on, or the server is part of a cluster.
    """
    refuse_eviction(client)
    refuse_cluster(client)


def refuse_eviction(client: redis.Redis) -> None:
    """Refuse a server that drops keys when its memory is full: nobody must write there. See `check_server`."""
    memory = client.info("memory")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise IndexMisconfigured(
            f"Redis has maxmemory-policy {policy}: it would drop parts of the index without a word; "
            "set maxmemory-policy noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )


def refuse_cluster(client: redis.Redis) -> None:
    """Refuse a node of a cluster, of which it has but a part: nobody must read there. See `check_server`."""
    if client.info("cluster").get("cluster_enabled"):
        raise IndexMisconfigured(
            "this Redis is part of a cluster: name it by a redis+cluster:// URL (rediss+cluster:// with TLS)"
        )


def encoding_advice(client: Any, longest_record: int = 512) -> list[str]:
    """What in the server's settings makes the index larger than it need be; empty when nothing does."""
    try:
        settings = client.config_get("*list*", "*zip*")
    except redis.ResponseError:
        return []  # managed servers hide CONFIG
    wanted = {"zset-max-@-entries": 128, "hash-max-@-value": longest_record}
    advice = []
    for pattern, least in wanted.items():
        for kind in ("listpack", "ziplist"):
            name = pattern.replace("@", kind)
            if name in settings and int(settings[name]) < least:
                advice.append(f"{name} is {settings[name]}: set it to {least} or more, or buckets take more memory")
                break
    return advice
