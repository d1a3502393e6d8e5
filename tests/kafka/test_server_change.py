"""A Redis that is restarted ends no worker, is said in the log, and changes no verdict; a Valkey too."""

from random import Random

import pytest

from tests.kafka.test_exactly_once import assert_each_answered_once, assert_guarantees, filled, finish
from tests.servers import running_redis, running_valkey
from tests.stream import Stream, json_page, texts, working


@pytest.fixture(params=[running_redis])
def restartable(request, kafka_server, name, tmp_path):
    """A server of its own, and a stream on it of which 32 pages are there."""
    with request.param(tmp_path) as server:
        stream = Stream(name, kafka_server.bootstrap_servers, server.url)
        stream.create()
        yield server, filled(stream, 32)


def more(stream):
    """64 pages behind the 32."""
    stream.send([json_page(n, text) for n, text in enumerate(texts(64, Random(1)), start=1000)])


@pytest.mark.parametrize("restartable", [running_redis, running_valkey], ids=["Redis", "Valkey"], indirect=True)
def test_a_restart_is_said_and_ends_nobody(restartable):
    server, stream = restartable
    worker = stream.worker()
    with working(worker):
        stream.wait_for(32)
        server.stop()
        more(stream)
        server.start()
        stream.wait_for(96)
        code, written = worker.stop()
    assert code == 0
    assert "replication id" in written
    assert_each_answered_once(stream, 96)
    assert_guarantees(stream.verdicts())


def test_who_starts_after_a_restart_goes_on_too(restartable):
    server, stream = restartable
    worker = stream.worker()
    with working(worker):
        stream.wait_for(32)
        assert worker.stop()[0] == 0
    server.restart()
    more(stream)
    finish(stream, 96)
