"""The worker on a real Valkey in the place of a Redis, which is restarted meanwhile."""

from random import Random

from tests.servers import running_valkey
from tests.stream import Stream, json_page, texts, working
from tests.test_exactly_once import (
    COUNT,
    assert_each_answered_once,
    assert_guarantees,
    ended_for_a_changed_server,
    filled,
)


def test_a_stream_on_valkey_is_answered_once_through_a_restart(kafka_server, name, tmp_path):
    with running_valkey(tmp_path) as server:
        stream = Stream(name, kafka_server.bootstrap_servers, server.url)
        stream.create()
        filled(stream)
        worker = stream.worker()
        with working(worker):
            stream.wait_for(COUNT)
            server.stop()
            stream.send([json_page(n, text) for n, text in enumerate(texts(64, Random(1)), start=1000)])
            server.start()
            ended_for_a_changed_server(worker)
        another = stream.worker()
        with working(another):
            stream.wait_for(2 * COUNT)
            assert another.stop()[0] == 0
        assert_each_answered_once(stream, 2 * COUNT)
        assert_guarantees(stream.verdicts())
