"""What the tests share: one Kafka and one Redis a session, a fresh index name or topic a test; settings for both."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings as hypothesis_settings

from tests.backends import KINDS, Backend
from tests.servers import KafkaServer, RedisServer, running_cluster, running_kafka, running_redis, running_valkey

SAMPLE = Path(__file__).parent.parent / "samples" / "pages.jsonl.zst"

# The same examples on every run: a red run must be red for the next person too.
hypothesis_settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis_settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """The developer's own environment must not change what is tested."""
    for name in [name for name in os.environ if name.startswith("SIMHASH_DEDUP_")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis for the whole session."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka broker for the whole session."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A connection to the session's Redis."""
    with redis.Redis.from_url(redis_server.url) as connection:
        yield connection


@pytest.fixture(scope="session")
def valkey_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A connection to a real Valkey for the whole session."""
    with (
        running_valkey(tmp_path_factory.mktemp("valkey")) as server,
        redis.Redis.from_url(server.url) as connection,
    ):
        yield connection


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """A real Redis Cluster of three primaries for the whole session."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def cluster_client(cluster: list[RedisServer]) -> Iterator[redis.RedisCluster]:
    """A connection to the session's Redis Cluster."""
    with redis.RedisCluster.from_url(cluster[0].url) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    """A name that no other test uses: for an index, a topic, a group."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One primary, and a cluster: what a test of both kinds of index is run on."""
    return backend_of(request, request.param)


def backend_of(request: pytest.FixtureRequest, kind: str) -> Backend:
    """The session's server of a kind."""
    if kind == "cluster":
        nodes = request.getfixturevalue("cluster")
        url = "redis+cluster://" + ",".join(node.address for node in nodes)
        return Backend(request.getfixturevalue("cluster_client"), url, True)
    return Backend(request.getfixturevalue("client"), request.getfixturevalue("redis_server").url, False)
