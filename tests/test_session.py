"""Kafka sessions: slots of transactional ids, and what a broker's refusal becomes."""

import kafka.errors as errors
import pytest
from kafka.admin import MemberToRemove
from kafka.partitioner.default import murmur2

from tests.stream import Stream, closing_admin, json_page, until
from worker.errors import BatchAborted, BrokerError, BrokerUnreachable, Fenced, PositionRewound, SessionLost
from worker.kafka import Session, Slot
from worker.kafka.connect import translated
from worker.records import Outgoing
from worker.settings import load


@pytest.fixture
def slot_settings(tmp_path, monkeypatch, name):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return load({"group_id": name})


def settings_of(stream):
    prefix = "SIMHASH_DEDUP_"
    return load({n.removeprefix(prefix).lower(): v for n, v in stream.environment().items() if n.startswith(prefix)})


def test_live_workers_never_share_a_slot_and_a_free_one_is_taken_again(slot_settings):
    first, second = Slot(slot_settings), Slot(slot_settings)
    assert first.name != second.name
    first.release()
    third = Slot(slot_settings)
    assert third.name == first.name
    second.release()
    third.release()


def test_another_group_has_slots_of_its_own(slot_settings, name):
    other = load({"group_id": f"{name}-other"})
    ours, theirs = Slot(slot_settings), Slot(other)
    assert ours.name.removeprefix(name) == theirs.name.removeprefix(f"{name}-other")
    ours.release()
    theirs.release()


def test_a_transactional_id_that_is_set_is_the_slots_name(slot_settings):
    slot = Slot(slot_settings.model_copy(update={"transactional_id": "mine"}))
    assert slot.name == "mine"
    slot.release()


@pytest.mark.parametrize(
    ("raised", "becomes", "retriable"),
    [
        (errors.KafkaTimeoutError(), BrokerUnreachable, True),
        (errors.KafkaConnectionError(), BrokerUnreachable, True),
        (errors.TopicAuthorizationFailedError(), BrokerError, False),
        (errors.CommitFailedError(), BatchAborted, True),
        (errors.ProducerFencedError(), Fenced, True),
        (errors.KafkaError("in an error state: [Error 90] ProducerFencedError"), Fenced, True),
        (errors.UnknownTopicOrPartitionError(), SessionLost, True),
    ],
)
def test_an_error_of_the_client_becomes_one_of_ours(raised, becomes, retriable):
    with pytest.raises(becomes) as caught, translated(load({})):
        raise raised
    assert type(caught.value) is becomes
    assert caught.value.retriable is retriable


def test_an_offset_out_of_range_is_an_error_and_no_silent_reset(kafka_server, redis_server, name):
    """Pages between would be lost without a word."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")])
    session = Session(settings_of(stream), name)
    try:
        (gained,) = until(lambda: session.poll(0.5, 10).gained, "an assignment")
        session.seek({gained.partition: 1000})
        with pytest.raises(PositionRewound, match="index rewind"):
            until(lambda: session.poll(0.5, 10).received, "records out of nowhere")
    finally:
        session.close()


def test_a_worker_that_its_group_gave_up_cannot_commit(kafka_server, redis_server, name):
    """One that stood still and wakes up learns it from its heartbeat, perhaps in the middle of a transaction."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")])
    session = Session(settings_of(stream), name)
    try:
        (gained,) = until(lambda: session.poll(0.5, 10).gained, "an assignment")
        consumer = session._consumer  # polled no more: as when a worker is busy with its batch
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.remove_group_members(name, [MemberToRemove(member_id=consumer.group_metadata().member_id)])
        until(lambda: consumer.group_metadata().generation_id < 0, "a heartbeat is refused")
        out = [Outgoing(stream.verdict_topic, b"key", b"{}", [], 0)]
        with pytest.raises(BatchAborted, match="no member"):
            session.send(out, {gained.partition: 1}, lambda step: None)
    finally:
        session.close()
    assert stream.committed() == []


@pytest.mark.parametrize("alike", [True, False])
def test_a_verdict_goes_to_its_pages_partition_where_the_topics_are_alike(kafka_server, redis_server, name, alike):
    """Whoever joins pages with verdicts finds both in partitions of one number; else the key decides."""
    pages = Stream(f"{name}-in", kafka_server.bootstrap_servers, redis_server.url, partitions=3)
    pages.create()
    partitions = 3 if alike else 2
    verdicts = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions, pages.input_topic)
    verdicts.create()
    session = Session(settings_of(verdicts), name)
    keys = [f"https://example.org/{n}".encode() for n in range(12)]
    try:
        until(lambda: session.poll(0.5, 10).gained, "an assignment")
        out = [Outgoing(verdicts.verdict_topic, key, b"{}", [], n % 3) for n, key in enumerate(keys)]
        session.send(out, {}, lambda step: None)
    finally:
        session.close()
    found = {row.key: row.partition for row in verdicts.committed()}
    expected = {key: n % 3 if alike else (murmur2(key) & 0x7FFFFFFF) % 2 for n, key in enumerate(keys)}
    assert found == expected
