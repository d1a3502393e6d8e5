"""A Redis that is restarted ends the workers that meet it, once each, and changes no verdict; a Valkey too."""

from random import Random

import pytest

from tests.servers import running_redis, running_valkey
from tests.stream import Stream, json_page, texts, working
from tests.test_exactly_once import assert_each_answered_once, assert_guarantees, filled, finish


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


def assert_names_what_changed(line):
    assert "replication id" in line
    assert "simhash-dedup rebuild" in line


@pytest.mark.parametrize("restartable", [running_redis, running_valkey], ids=["Redis", "Valkey"], indirect=True)
def test_a_restart_ends_the_worker_and_the_next_one_goes_on(restartable):
    server, stream = restartable
    worker = stream.worker()
    with working(worker):
        stream.wait_for(32)
        server.stop()
        more(stream)
        server.start()
        assert_names_what_changed(worker.refusal(8))
    assert len(stream.verdicts()) == 32
    finish(stream, 96)


def test_a_restart_ends_nobody_where_workers_verify_and_go_on(restartable):
    server, stream = restartable
    stream.settings["on_server_change"] = "verify"
    worker = stream.worker()
    with working(worker):
        stream.wait_for(32)
        server.stop()
        more(stream)
        server.start()
        stream.wait_for(96)
        code, written = worker.stop()
    assert code == 0
    assert "simhash-dedup rebuild" in written
    assert_each_answered_once(stream, 96)
    assert_guarantees(stream.verdicts())


def test_a_restart_ends_who_waits_for_pages_and_who_starts_after_it_each_once(restartable):
    server, stream = restartable
    idle = stream.worker()
    with working(idle):
        stream.wait_for(32)
        server.restart()
        assert_names_what_changed(idle.refusal(8))
    server.restart()
    starting = stream.worker()
    with working(starting):
        assert_names_what_changed(starting.refusal(8))
    more(stream)
    finish(stream, 96)
