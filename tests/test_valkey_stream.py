"""The worker on a real Valkey instead of a Redis: killed in the middle, restarted, with Valkey itself restarted too."""

import signal
from random import Random

from tests.servers import running_valkey
from tests.stream import Stream, json_page, texts, working
from tests.test_exactly_once import COUNT, assert_each_answered_once, assert_guarantees, filled


def test_a_stream_on_valkey_is_answered_once_through_a_kill_and_a_restart(kafka_server, name, tmp_path):
    with running_valkey(tmp_path) as server:
        stream = filled_stream(name, kafka_server, server)
        killed = stream.worker(stop_at="sent:2")
        with working(killed):
            assert killed.wait()[0] == -signal.SIGKILL
        server.stop()
        server.start()
        worker = stream.worker()
        with working(worker):
            stream.wait_for(COUNT)
            stream.send([json_page(n, text) for n, text in enumerate(texts(20, Random(2)), start=COUNT)])
            stream.wait_for(COUNT + 20)
            assert worker.stop()[0] == 0
        assert_each_answered_once(stream, COUNT + 20)
        assert_guarantees(stream.verdicts())
        checked = stream.command("index", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def filled_stream(name, kafka_server, server):
    stream = Stream(name, kafka_server.bootstrap_servers, server.url)
    stream.create()
    return filled(stream)
