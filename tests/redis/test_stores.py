"""The ways to a Redis that settings can name."""

import pytest

from simhash.errors import IndexMisconfigured, IndexUnreachable
from worker.files.embedded import embedded_redis
from worker.index.stores import connect, found_index
from worker.settings import load


def test_a_redis_is_reached_by_its_socket():
    with embedded_redis(None) as server:
        path = server.connection_pool.connection_kwargs["path"]
        with connect(load({"redis_url": f"unix://{path}?db=1"})) as client:
            assert client.ping()


def test_a_primary_that_nobody_knows_is_said_in_few_words():
    with pytest.raises(IndexUnreachable) as caught:
        found_index(load({"redis_url": "redis+sentinel://:sesame@127.0.0.1:1,127.0.0.1:2/dedup"}))
    said = "Redis does not answer: no primary 'dedup' is named by its Sentinels (127.0.0.1:1, 127.0.0.1:2)"
    assert str(caught.value) == said


def test_a_redis_that_is_no_sentinel_is_said_to_be_none(redis_server):
    with pytest.raises(IndexMisconfigured) as caught:
        found_index(load({"redis_url": f"redis+sentinel://:sesame@{redis_server.address}/dedup"}))
    said = f"what answers at {redis_server.address} is a Redis and no Sentinel: name it by a redis:// or rediss:// URL"
    assert str(caught.value) == f"{said}, or name the Sentinels (as a rule at port 26379)"
