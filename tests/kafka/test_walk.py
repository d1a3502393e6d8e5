"""A newcomer's way through the code: no longer than ARCHITECTURE.md says."""

import re

from benchmarks.walk import walked
from tests.stream import Stream
from tests.unit.test_docs import ARCHITECTURE

SAID = re.compile(r"makes (\d+) calls through (\d+) files, with (\d+) moves")


def test_the_walk_of_a_page_is_as_long_as_it_is_said_to_be(kafka_server, redis_server, name):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    walk = walked(stream.loaded())
    most = tuple(map(int, SAID.search(ARCHITECTURE).groups()))
    found = len(walk.calls), len(walk.files), walk.moves
    assert all(now <= said for now, said in zip(found, most, strict=True)), found
    assert [file for file in walk.files if file.startswith("worker/stream/kafka/")], "and it is one through Kafka"
