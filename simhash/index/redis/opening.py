"""Opening an index on one primary: found or made, compared with what is wanted, its server checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import redis

from simhash.errors import IndexMismatch
from simhash.index.interface import FORMAT, IndexSpec, Relation, Retention
from simhash.index.redis.epochs import Durability
from simhash.index.redis.faults import translated
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.layout import bucket_bits, meta_key
from simhash.index.redis.server import check_place, check_rights, check_server
from simhash.index.redis.spec import fields_in, fields_of, refuse_differences, spec_in, spec_of
from simhash.index.urls import UrlDictionary, shipped


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
    urls: UrlDictionary | None = None,
) -> RedisIndex:
    """Open the index called `name`, creating it when there is none.

    Args:
        profile, relation, capacity: what to create it with; an existing index must have the same profile and reach.
        urls: by which a new one compresses URLs; None: the one that ships.
        adopt_design: take an existing index's permutation design instead of refusing another one.

    Raises:
        IndexMismatch: it was made with something else; the message says what differs.
        IndexMisconfigured: the server would drop keys, or does not let its user do what the index needs.
        IndexUnreachable: nobody answers.
    """
    with translated():
        check_server(client)
        b = bucket_bits(capacity, relation.design)
        spec = IndexSpec(profile, relation, b, capacity, urls or shipped())
        stored = _create(client, name, spec)
        found = spec_of(stored, name)
        refuse_differences(name, found, spec, adopt_design)
        keys = stored.get("keys")
        index = RedisIndex(client, name, found, stored["generation"], retention, clock, durability, keys)
        check_rights(index.inside)
        return index


def text_client(url: str) -> redis.Redis:
    """A client for the server of this URL, which is not asked yet.

    Raises:
        ValueError: the URL is none, or has an option that nobody heeds.
    """
    client = redis.Redis.from_url(url)
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)  # not one of the pool's, which may have but one
    except TypeError as error:
        raise ValueError(f"a Redis URL with an option that the driver does not know: {error}") from error
    if client.get_encoder().decode_responses:
        raise ValueError("an index lies in Redis as bytes: leave decode_responses out of the URL")
    return client


def existing_index(client: redis.Redis, name: str, writes: bool = False) -> RedisIndex:
    """Open the index called `name` as it is, whatever it was made with: for looking and for operators.

    Args:
        writes: pages will be removed or stored; else a server that would drop keys will do.

    Raises:
        IndexMismatch: there is no such index, or it is of another format.
        IndexMisconfigured: the server would drop keys, or does not let its user do what the index needs.
        IndexUnreachable: nobody answers.
    """
    with translated():
        (check_server if writes else check_place)(client)
        stored = fields_in(client, meta_key(name))
        if not stored:
            raise IndexMismatch(f"there is no index {name!r} on this Redis")
        index = RedisIndex(client, name, spec_of(stored, name), stored["generation"], keys=stored.get("keys"))
        if writes:
            check_rights(index.inside)
        return index


def recipe_in(client: redis.Redis, name: str) -> Mapping[str, object] | None:
    """The profile that the index called `name` was made with, as `Profile.recipe` has it; None without an index.

    Raises:
        IndexUnreachable: nobody answers.
    """
    with translated():
        stored = fields_in(client, meta_key(name))
    try:
        recipe: Mapping[str, object] = msgspec.json.decode(stored.get("profile", "null"))
    except msgspec.DecodeError:
        return None  # opening it says what is wrong
    return recipe


def spec_there(client: redis.Redis, name: str) -> IndexSpec | None:
    """What the index called `name` was made with, though it be empty or filled just now; None: there is none, or it is
    of another format.

    Raises:
        IndexMisconfigured, IndexUnreachable: see `existing_index`.
    """
    with translated():
        check_place(client)
        stored = fields_in(client, meta_key(name))
        return spec_in(stored, name) if stored.get("format") == str(FORMAT) else None


def _create(client: Any, name: str, spec: IndexSpec) -> dict[str, str]:
    """Write the meta hash if there is none, as one step; return what is stored."""
    key = meta_key(name)
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
    return fields_in(client, key)
