"""The worker with its index on a Redis Cluster: the verdicts of a single primary, byte for byte, whatever happens."""

import signal
from random import Random

import pytest
import redis

from simhash.index.cluster import existing_cluster_index
from tests.servers import running_cluster
from tests.stream import Stream, json_page, texts, until, working

COUNT = 64


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of its own: a primary of it stands still for a while."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def on_one_primary(kafka_server, redis_server, tmp_path_factory):
    """An input, and the verdicts' bytes of an undisturbed run with the index on one primary."""
    made = Stream(f"c{tmp_path_factory.getbasetemp().name}", kafka_server.bootstrap_servers, redis_server.url)
    made.create()
    made.send([json_page(n, text) for n, text in enumerate(texts(COUNT, Random(5)))])
    worker = made.worker()
    with working(worker):
        made.wait_for(COUNT)
        assert worker.stop()[0] == 0
    return made, sorted(row.value for row in made.committed())


@pytest.fixture
def on_cluster(on_one_primary, nodes, name):
    """The same input, another group, its index on the cluster."""
    made, expected = on_one_primary
    beside = made.beside(name)
    beside.redis_url = "redis+cluster://" + ",".join(node.address for node in nodes)
    return beside, expected


def finished(stream):
    worker = stream.worker()
    with working(worker):
        stream.wait_for(COUNT)
        assert worker.stop()[0] == 0
    stream.check()
    return sorted(row.value for row in stream.committed())


def test_the_verdicts_are_those_of_one_primary(on_cluster):
    stream, expected = on_cluster
    assert finished(stream) == expected


def test_a_worker_killed_between_judging_and_commit_is_replayed_to_the_same_verdicts(on_cluster):
    stream, expected = on_cluster
    killed = stream.worker(stop_at="judged:2")
    with working(killed):
        assert killed.wait()[0] == -signal.SIGKILL
    assert finished(stream) == expected


def test_a_worker_killed_over_its_claims_is_resumed_to_the_same_verdicts(on_cluster, nodes):
    """A primary stands still, so that the worker holds its claims and waits; there it is killed."""
    stream, expected = on_cluster
    client = redis.RedisCluster.from_url(nodes[0].url)
    killed = stream.worker(stop_at="prepared:2", signal_number=signal.SIGSTOP)
    with working(killed):
        until(killed.stopped, "the worker before its second batch")
        index = existing_cluster_index(client, stream.name)
        assert index.claims() == []
        claims_at = client.get_node_from_key(f"{{{stream.name}:claim}}").port
        still = next(node for node in nodes if node.port != claims_at)
        still.pause()
        try:
            killed.process.send_signal(signal.SIGCONT)
            left = until(index.claims, "claims of the worker")
            killed.kill()
        finally:
            still.resume()
    assert {claim.state for claim in left} <= {"held", "numbered"}
    until(lambda: all(state(node) == "ok" for node in nodes), "a whole cluster")
    assert finished(stream) == expected
    assert index.claims() == []


def state(node):
    with redis.Redis.from_url(node.url) as client:
        return client.execute_command("CLUSTER INFO")["cluster_state"]
