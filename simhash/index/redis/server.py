"""What a Redis server must be to hold an index, and what it had better be."""

from __future__ import annotations

from typing import Any

import redis

from simhash.errors import IndexMisconfigured, IndexUnreachable
from simhash.index.redis.faults import translated
from simhash.index.redis.operators.inside import Inside


def check_server(client: redis.Redis) -> None:
    """Refuse a server that drops keys when its memory is full, and a node of a cluster named as if it were all of it.

    Raises:
        IndexMisconfigured: eviction is on; or see `check_place`.
        IndexUnreachable: it is a replica: what is written there, the primary never has.
    """
    check_place(client)
    replication = client.info("replication")
    if replication.get("role") == "slave":
        primary = f"{replication.get('master_host')}:{replication.get('master_port')}"
        raise IndexUnreachable(f"this Redis is a replica of {primary}: name its primary")
    memory = client.info("memory")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise IndexMisconfigured(
            f"Redis has maxmemory-policy {policy}: it would drop parts of the index without a word; "
            "set maxmemory-policy noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )


def check_place(client: Any) -> None:
    """Refuse a node of a cluster by a client that would not find the index again once its slot has moved.

    Raises:
        IndexMisconfigured: it is one.
    """
    follows: bool = getattr(client.connection_pool, "follows_slot", False)
    if not follows and client.info("cluster").get("cluster_enabled"):
        raise IndexMisconfigured(
            "this Redis is part of a cluster: name it by a redis+cluster:// URL (rediss+cluster:// with TLS)"
        )


def check_rights(inside: Inside) -> None:
    """Refuse a user that may not do all that the scripts do: one that is stopped half way leaves half of its writes.

    Redis 6.2 has no way to ask; there it shows when a script is stopped.

    Raises:
        IndexMisconfigured: the message names what is missing.
    """
    refused = sorted(command.decode() for command in inside.run("rights"))
    if refused:
        raise IndexMisconfigured(
            f"Redis lets this user not do what the index needs: {', '.join(refused)}; give it these commands on "
            f"~{inside.layout.tag}* (ACL SETUSER)"
        )


def advice(client: Any, longest_record: int = 512) -> list[str]:
    """What in the server's settings loses the index, or makes it larger than it need be; empty when nothing does.

    Raises:
        IndexUnreachable: it does not answer.
    """
    with translated():
        kept = client.info("persistence").get("aof_enabled", 1)
        try:
            settings = client.config_get("*list*", "*zip*")
        except redis.ResponseError:
            settings = {}  # managed servers hide CONFIG
    told = [] if kept else ["appendonly is no: set it to yes, or the index is lost, whole or in part, when Redis ends"]
    wanted = {"hash-max-@-entries": 128, "hash-max-@-value": longest_record}
    for pattern, least in wanted.items():
        for kind in ("listpack", "ziplist"):
            name = pattern.replace("@", kind)
            if name in settings and int(settings[name]) < least:
                told.append(f"{name} is {settings[name]}: set it to {least} or more, or buckets take more memory")
                break
    return told
