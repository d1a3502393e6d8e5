"""What a Redis says that cannot take writes for now, in the words of Redis 7 and of Redis 6 (the embedded one)."""

from random import Random

import pytest
import redis

from simhash.errors import IndexDamaged, IndexMisconfigured, IndexUnreachable
from simhash.index import Position, Retention, Unique
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.takedowns import Found, take_down
from simhash.relation.tables import design
from tests.busy import kept_busy
from tests.pages import PAGES, entry, relation
from tests.servers import running_redis
from worker.files.embedded import embedded_redis


@pytest.fixture(scope="module", params=["Redis 7", "Redis 6"])
def server(request, tmp_path_factory):
    """A client of a Redis of our own."""
    if request.param == "Redis 6":
        with embedded_redis(None) as client:
            yield client
        return
    with running_redis(tmp_path_factory.mktemp("redis")) as made, redis.Redis.from_url(made.url) as client:
        yield client


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
        (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]),
        (["CONFIG", "SET", "min-replicas-to-write", "1"], ["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ],
    ids=["memory full", "a replica", "too few replicas"],
)
def test_what_will_pass_is_waited_for(server, name, before, after):
    """A worker that took it for final would end; with --processes, all of them."""
    index = open_index(server, name, {}, relation(design("4")), 1000)
    first = index.check_and_insert([entry(1, 1)], {PAGES: 0})
    server.execute_command(*before)
    with pytest.raises(IndexUnreachable) as raised:
        index.check_and_insert([entry(1, 1), entry(2, 2**40)], {PAGES: 1})
    assert "script:" not in str(raised.value), "the same line each time: it is said once"
    server.execute_command(*after)
    index.present([])
    assert index.mark(PAGES) == 0
    assert index.check_and_insert([entry(1, 1)], {PAGES: 0}) == first
    assert index.documents() == 1


def test_a_full_server_forgets_what_is_due_and_lets_operators_look_and_remove(server, name):
    """Redis refuses a script's first write unless it frees some memory, and all transactions."""
    random, clock = Random(1), [1_000_000]
    index = open_index(
        server, name, {}, relation(design("4")), 1000, Retention(max_age_ms=1000), clock=lambda: clock[0]
    )
    pages = [entry(n, random.getrandbits(64)) for n in range(200)]
    index.check_and_insert(pages, {PAGES: 0})
    stored, whole = index.documents(), Operations(index)
    server.config_set("maxmemory", "1")
    try:
        assert whole.check(lambda _: None).violations == []
        assert whole.moment().documents == stored
        for found in list(index.scan())[50:53]:
            assert take_down(index.inside, [Found(*found)]) == [True]
        with pytest.raises(IndexUnreachable):
            index.check_and_insert([entry(900, random.getrandbits(64))], {})
        clock[0] += 5000
        answers = index.check_and_insert([entry(901 + n, random.getrandbits(64)) for n in range(30)], {PAGES: 50})
        assert {type(answer.decision) for answer in answers} == {Unique}
        assert index.documents() < stored - 3
    finally:
        server.config_set("maxmemory", "0")
    assert whole.check(lambda _: None).violations == []


def test_a_server_that_a_script_keeps_busy_is_waited_for_by_every_question(server, name):
    """In a pipeline the driver puts the command before what the server says."""
    index = open_index(server, name, {}, relation(design("4")), 1000)
    with kept_busy(server):
        for question in (
            lambda: index.check_and_insert([entry(1, 1)], {PAGES: 0}),
            lambda: index.journalled({Position(PAGES, 0): None}),
            lambda: index.mark(PAGES),
            lambda: index.rewind(PAGES, 0),
        ):
            with pytest.raises(IndexUnreachable, match="now: BUSY "):
                question()
    assert index.journalled({Position(PAGES, 0): None}) == []


def test_a_server_that_has_come_to_drop_keys_is_noticed(server, name):
    """As after a restart with other settings, or a failover to a replica that has others."""
    index = open_index(server, name, {}, relation(design("4")), 1000)
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(IndexMisconfigured, match="maxmemory-policy allkeys-lru"):
            index.present([])
    finally:
        server.config_set("maxmemory-policy", "noeviction")


def test_a_permission_that_is_missing_is_said(server, name):
    index = open_index(server, name, {}, relation(design("4")), 1000)
    index.check_and_insert([entry(1, 1)], {PAGES: 0})
    server.execute_command("ACL", "SETUSER", "default", "-evalsha")
    try:
        with pytest.raises(IndexMisconfigured, match="evalsha"):
            index.check_and_insert([entry(2, 2**40)], {PAGES: 0})
    finally:
        server.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.parametrize("what", ["a key", "a place", "a counter", "a record"])
def test_what_another_program_wrote_is_said_with_what_to_do(server, name, what):
    index = open_index(server, name, {}, relation(design("4")), 1000)
    index.check_and_insert([entry(1, 1)], {PAGES: 0})
    layout = index.inside.layout
    (table,) = server.scan_iter(f"{layout.table(0)}*")
    (field,) = server.hkeys(table)
    if what == "a key":
        server.delete(table)
        server.set(table, "")
    elif what == "a counter":
        server.hset(layout.meta, "seq", "many")
    else:
        place = (table, field) if what == "a place" else layout.records(1)
        server.hset(*place, server.hget(*place)[:1] if what == "a place" else server.hget(*layout.records(1))[:-30])
    with pytest.raises(IndexDamaged, match="`simhash-dedup index check` says what is damaged") as raised:
        index.check_and_insert([entry(2, 1)], {PAGES: 1})
    assert "script:" not in str(raised.value).removeprefix("Redis: user_script:"), raised.value
