"""A broker that lost the end of a log, as when its machine crashed: what has the place of lost records is read."""

import struct

import pytest
from kafka import OffsetAndMetadata, TopicPartition

from deploy.local.brokers import KafkaServer
from tests.servers import running_kafka
from tests.stream import Stream, closing_admin, json_page, until, working
from worker.errors import SessionLost
from worker.stream.kafka import Session

HEAD = struct.Struct(">qi")
"""Of a batch in a log: its first offset, and how many bytes follow."""
KEPT, SENT, NEW = 60, 100, 80


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def stream(broker, redis_server, name):
    made = Stream(name, broker.bootstrap_servers, redis_server.url)
    made.create()
    for first in range(0, SENT, 10):  # a batch of the log each
        made.send(pages(first, 10))
    return made


def pages(first, count):
    return [json_page(n, " ".join(f"w{n}x{at}" for at in range(40))) for n in range(first, first + count)]


def lose(broker: KafkaServer, stream: Stream, kept: int) -> None:
    """Kill the broker, take from its only log of the input all from this offset on, and start it again."""
    broker.kill()
    folder = broker.directory / "kafka-data" / f"{stream.input_topic}-0"
    (log,) = folder.glob("*.log")
    data, at = log.read_bytes(), 0
    while at < len(data) and HEAD.unpack_from(data, at)[0] < kept:
        at += HEAD.size + HEAD.unpack_from(data, at)[1]
    log.write_bytes(data[:at])
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        index.unlink()  # it makes them again from the log
    broker.start()
    stream.send(pages(1000, NEW))


def new_pages(stream):
    return [int(verdict["id"]) for verdict in stream.verdicts() if int(verdict["id"]) >= 1000]


def test_lost_records_that_were_answered_stop_each_worker_until_their_places_are_read_again(broker, stream):
    running = stream.worker()
    with working(running):
        stream.wait_for(SENT)
        lose(broker, stream, KEPT)
        line = running.refusal(6)
    assert f"topic {stream.input_topic} has lost records of partition 0, from offset {KEPT} on" in line
    assert f"answered up to {SENT}:" in line
    started = stream.worker()
    with working(started):
        assert started.refusal(6) == line
    assert new_pages(stream) == []

    said = f"{stream.input_topic} --partition 0 --to {KEPT} --execute"
    assert f"simhash-dedup index rewind {said})" in line
    with closing_admin(broker.bootstrap_servers) as admin:
        until(lambda: not admin.describe_groups([stream.name])[stream.name]["members"], "no worker is left")
        assert stream.command("index", "rewind", *said.split()).returncode == 0
        place = {TopicPartition(stream.input_topic, 0): OffsetAndMetadata(KEPT, "", -1)}
        admin.alter_group_offsets(stream.name, place)
    again = stream.worker()
    with working(again):
        stream.wait_for(SENT + NEW)
        assert again.stop()[0] == 0
    assert sorted(new_pages(stream)) == list(range(1000, 1000 + NEW))


def test_of_lost_records_that_were_not_answered_a_new_session_reads_what_has_their_place(broker, stream):
    settings = stream.loaded(session_timeout="30s")  # else the group puts it out, and it begins anew by itself
    first = Session(settings, "first")
    read = read_by(first)
    until(lambda: next(read) >= SENT - 1, "all is read, and nothing answered")
    lose(broker, stream, KEPT)
    with pytest.raises(SessionLost, match="LogTruncationError"):
        until(lambda: next(read) >= SENT + NEW, "it does not go on")
    first.close()
    second = Session(settings, "second")
    found = read_by(second)
    assert until(lambda: (last := next(found)) >= KEPT + NEW - 1 and last, "what there is") == KEPT + NEW - 1
    second.close()


def read_by(session):
    """The last offset that it polled, after each poll; in their order, none left out."""
    following = 0
    while True:
        for each in session.poll(0.2, SENT).received:
            assert each.record.source.offset == following
            following += 1
        yield following - 1
