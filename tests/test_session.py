"""Kafka sessions: slots of transactional ids, and what a broker's refusal becomes."""

import kafka.errors as errors
import pytest

from tests.stream import Stream, json_page, until
from worker.errors import BatchAborted, BrokerError, BrokerUnreachable, Fenced, PositionRewound, SessionLost
from worker.kafka import Session, Slot
from worker.kafka.connect import translated
from worker.settings import load


@pytest.fixture
def slot_settings(tmp_path, monkeypatch, name):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return load({"group_id": name})


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
    prefix = "SIMHASH_DEDUP_"
    flags = {n.removeprefix(prefix).lower(): v for n, v in stream.environment().items() if n.startswith(prefix)}
    session = Session(load(flags), name)
    try:
        (gained,) = until(lambda: session.poll(0.5, 10).gained, "an assignment")
        session.seek({gained.partition: 1000})
        with pytest.raises(PositionRewound, match="index rewind"):
            until(lambda: session.poll(0.5, 10).records, "records out of nowhere")
    finally:
        session.close()
