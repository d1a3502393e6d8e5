"""Kafka sessions: slots of transactional ids, and what a broker's refusal becomes."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import kafka.errors as errors
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.partitioner.default import murmur2
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecordBatch

from simhash.index import Partition
from tests.kafka.test_membership import polled_all_the_time
from tests.stream import Stream, closing_admin, json_page, until
from worker.errors import (
    BatchAborted,
    BrokerError,
    BrokerUnreachable,
    Fenced,
    NobodyAnswers,
    PositionRewound,
    SessionLost,
)
from worker.records.passing import Outgoing, Unread, size_of
from worker.settings import load
from worker.stream.kafka import Session, Slot, connect, largest_messages
from worker.stream.kafka.connect import translated
from worker.stream.kafka.groups import attested
from worker.stream.kafka.replay import replayed
from worker.stream.kafka.unpacking import be_tolerant


@pytest.fixture
def slot_settings(tmp_path, monkeypatch, name):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return load({"group_id": name})


def test_live_workers_never_share_a_slot_and_a_free_one_is_taken_again(slot_settings, tmp_path):
    first, second = Slot(slot_settings), Slot(slot_settings)
    assert first.name != second.name
    first.release()
    third = Slot(slot_settings)
    assert third.name == first.name
    second.release()
    third.release()
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_lock_file_is_not_followed(slot_settings, tmp_path):
    first = Slot(slot_settings)
    (place,) = tmp_path.glob("*-0.lock")
    first.release()
    place.symlink_to(tmp_path / "elsewhere")
    second = Slot(slot_settings)
    assert (second.name[-2:], (tmp_path / "elsewhere").exists()) == ("-1", False)
    second.release()


def test_lock_files_that_killed_workers_have_left_are_removed_by_whoever_starts_next(slot_settings, tmp_path, name):
    held = Slot(load({"group_id": f"{name}-held"}))
    for left in ("simhash-dedup-gone-0123abcd-0.lock", "simhash-dedup-gone-0123abcd-1.lock", "another.lock"):
        (tmp_path / left).touch()
    (tmp_path / "simhash-dedup-link-0123abcd-0.lock").symlink_to(tmp_path / "another.lock")
    ours = Slot(slot_settings)
    names = {path.name.removeprefix("simhash-dedup-").split("-")[0] for path in tmp_path.iterdir()}
    assert names == {name, "link", "another.lock"}
    ours.release()
    held.release()
    assert {path.name for path in tmp_path.iterdir()} == {"simhash-dedup-link-0123abcd-0.lock", "another.lock"}


def test_a_slot_of_another_user_is_passed_over(slot_settings, monkeypatch):
    """As where somebody tried the worker as root before."""
    opened = os.open

    def refusing(path, *flags):
        if str(path).endswith("-0.lock"):
            raise PermissionError(path)
        return opened(path, *flags)

    monkeypatch.setattr("os.open", refusing)
    slot = Slot(slot_settings)
    assert slot.name.endswith("-1")
    slot.release()


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


def test_processes_of_one_supervisor_do_not_share_the_id_that_is_set(slot_settings):
    both = [Slot(slot_settings.model_copy(update={"transactional_id": "mine", "processes": 2})) for _ in range(2)]
    assert {slot.name for slot in both} == {"mine-0", "mine-1"}
    for slot in both:
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


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("session_timeout", "lie between the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"),
        ("transaction_timeout", "not be more than the brokers' transaction.max.timeout.ms"),
    ],
)
def test_a_setting_beyond_the_brokers_limits_ends_the_worker_by_its_name(
    kafka_server, redis_server, name, setting, limit
):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    settings = stream.loaded().model_copy(update={setting: 86_400.0})  # more than any settings may say

    def begun():
        with closing(Session(settings, name)) as session:
            return until(lambda: session.poll(0.5, 10).gained, "an assignment")

    with pytest.raises(BrokerError, match=rf"refuses: .* \({setting} must {limit}\)") as caught:
        begun()
    assert not caught.value.retriable


def test_a_group_that_another_program_is_in_is_said(kafka_server, redis_server, name):
    """As one that was given the same group by mistake: it shares out the partitions in another way."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    other = KafkaConsumer(stream.input_topic, bootstrap_servers=stream.bootstrap_servers, group_id=stream.name)
    with closing(other), closing(Session(stream.loaded(), name)) as session:
        until(lambda: other.poll(100) is None or other.assignment(), "the other has the partition")
        with pytest.raises(SessionLost, match=r"another program is in this group: give it another one \(group_id\)"):
            until(lambda: session.poll(0.5, 10).gained, "an assignment")


def test_an_offset_out_of_range_is_an_error_and_no_silent_reset(kafka_server, redis_server, name):
    """Pages between would be lost without a word."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")])
    session = Session(stream.loaded(), name)
    try:
        (gained,) = until(lambda: session.poll(0.5, 10).gained, "an assignment")
        session.seek({gained.partition: 1000})
        with pytest.raises(PositionRewound, match="index rewind"):
            until(lambda: session.poll(0.5, 10).received, "records out of nowhere")
    finally:
        session.close()


@pytest.fixture
def three_records(kafka_server, redis_server, name):
    """A stream of three records, and what begins a session of its group."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(number, "a page") for number in range(3)])
    return stream, lambda: closing(Session(stream.loaded(), name))


def gained_by(session):
    """The one partition."""
    (gained,) = until(lambda: session.poll(0.5, 1).gained, "an assignment")
    return gained


def commit_one(session, watermark=""):
    """Answer the first record."""
    out = [Outgoing(session._settings.verdict_topic, b"key", b"{}", [], 0)]
    session.send(out, {Partition(session._settings.input_topic, 0): 1}, lambda step: None, watermark)


def test_what_a_group_attests_is_known_when_no_transaction_is_open_over_its_offsets(three_records):
    """Who asks whether an index lacks what is committed must not miss what is just being committed."""
    stream, session_of_group = three_records
    refused = []

    def ask(step):
        if step == "offsets":
            with pytest.raises(BrokerUnreachable, match=f"a transaction is open over 1 partitions of topic {name}"):
                attested(stream.loaded())
            refused.append(step)

    name = stream.input_topic
    with session_of_group() as session:
        gained_by(session)
        assert session.attested() == [""]
        for offset in (1, 2):
            out = [Outgoing(stream.verdict_topic, b"key", b"{}", [], 0)]
            session.send(out, {Partition(name, 0): offset}, ask, f"up to {offset}")
            assert until(lambda: known(session), "the end of the transaction") == [f"up to {offset}"]
    assert len(refused) == 2


def known(session):
    with suppress(BrokerUnreachable):
        return session.attested()


def test_a_partition_is_begun_again_where_its_group_stands(three_records):
    """At the mark or above it; and where nothing was committed yet, only if the mark is where the partition begins."""
    _, session_of_group = three_records
    with session_of_group() as session:
        gained = gained_by(session)
        assert session.begin_again(gained.partition, 0).is_new
        with pytest.raises(PositionRewound, match="has no offset"):
            session.begin_again(gained.partition, 2)
        session.send([], {gained.partition: 2}, lambda _: None)
        for mark in (0, 1, 2):
            assert session.begin_again(gained.partition, mark)[:2] == (gained.partition, 2)
        with pytest.raises(PositionRewound, match="below the mark 3"):
            session.begin_again(gained.partition, 3)


def test_a_topic_that_is_made_again_while_a_worker_stands_still_is_noticed_before_and_behind_its_commit(
    three_records, monkeypatch
):
    """Its offsets mean other records: those before the group's would never be read, and nobody would know."""
    stream, session_of_group = three_records
    with session_of_group() as session, closing_admin(stream.bootstrap_servers) as admin:
        gained_by(session)
        admin.delete_topics([stream.input_topic])
        until(lambda: stream.input_topic not in admin.list_topics(), "the topic is gone")
        stream.create()
        stream.send([json_page(number, "another page") for number in range(100)])
        with monkeypatch.context() as unaware:
            unaware.setattr(session._member, "topic_id", lambda: session._topic)
            commit_one(session)
        with pytest.raises(PositionRewound, match=r"deleted and made again .* index rewind"):
            until(lambda: session.poll(0.5, 10) is None, "what the brokers tell it")
    with session_of_group() as session, pytest.raises(PositionRewound, match="deleted and made again"):
        until(lambda: session.poll(0.5, 10).received, "records in the middle of it")
    with closing_admin(stream.bootstrap_servers) as admin:
        beginning = {TopicPartition(stream.input_topic, 0): OffsetSpec.EARLIEST}
        until(lambda: not admin.describe_groups([stream.name])[stream.name]["members"], "nobody is in the group")
        admin.reset_group_offsets(stream.name, beginning)  # which leaves what stands beside them
    with session_of_group() as session:
        assert gained_by(session).position == 0


def test_a_topic_that_is_deleted_under_a_worker_is_named(three_records, monkeypatch):
    """In place of brokers that do not answer, which they do."""
    stream, session_of_group = three_records
    with session_of_group() as session:
        gained_by(session)
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.delete_topics([stream.input_topic])
        until(lambda: session.poll(0.5, 10).lost, "that it is gone")
        with pytest.raises(BrokerUnreachable, match=f"topic {stream.input_topic} does not exist"):
            session.behind(asking=True)

        def answered_before(topic):
            """As the client does whose own question was under way, now and then."""
            raise errors.UnknownTopicOrPartitionError(topic)

        monkeypatch.setattr(session._consumer, "partitions_for_topic", answered_before)
        with pytest.raises(BrokerUnreachable, match=f"topic {stream.input_topic} does not exist"):
            session.behind(asking=True)


def test_what_comes_in_the_same_poll_as_its_partition_is_read_once(three_records):
    """The client has fetched it from where it takes the partition to begin; the session reads from where it does."""
    _, session_of_group = three_records
    with session_of_group() as first:
        gained_by(first)
        commit_one(first)
    with session_of_group() as heir:
        offsets = []

        def read():
            offsets.extend(each.record.source.offset for each in heir.poll(3, 10).received)
            return offsets[-1:] == [2]

        until(read, "the last record")
        assert not heir.poll(0.5, 10).received
        assert offsets == [1, 2]


def test_a_session_that_is_closed_has_left_its_group(three_records):
    """Else the others would wait for it as long as for one that died."""
    stream, session_of_group = three_records
    with closing_admin(stream.bootstrap_servers) as admin:
        with session_of_group() as session:
            gained_by(session)
            assert admin.describe_groups([stream.name])[stream.name]["members"]
        assert not admin.describe_groups([stream.name])[stream.name]["members"]


def test_a_worker_too_many_says_why_it_has_nothing_to_do(three_records):
    stream, session_of_group = three_records
    with session_of_group() as one, closing(Session(stream.loaded(), f"{stream.name}-more")) as more:
        gained_by(one)
        assert one.waits_for() == ""
        assert more.waits_for().startswith("it is in no group yet")
        with polled_all_the_time(one):
            until(lambda: more.poll(0.1, 1) and more.settled(), "it is in the group")
        assert more.waits_for() == "the group has given all partitions to other workers"
        assert more.behind(asking=True) == {}, "its topic is there, and none of it is its"


def test_a_topic_of_which_nobody_knows_the_id_is_read(three_records, monkeypatch):
    """As of brokers before 2.8; and where one that has just begun does not know the topic yet."""
    _, session_of_group = three_records
    with monkeypatch.context() as old, session_of_group() as session:
        old.setattr("worker.stream.kafka.member.Member.topic_id", lambda self: "")
        gained_by(session)
        commit_one(session, "a watermark")
    with session_of_group() as session:
        assert gained_by(session)[1:3] == (1, "a watermark")


def test_workers_that_always_have_work_share_the_partitions_all_the_same(kafka_server, redis_server, name):
    """They never wait in a poll, so that what the broker answers comes between two of them."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=4)
    stream.create()
    sessions: list[Session] = []
    done = threading.Event()

    def work(session):
        while not done.wait(0.2):  # its work
            session.poll(0.0, 10)

    def shared():
        return sorted(len(session._consumer.assignment()) for session in sessions if session.settled())

    with ThreadPoolExecutor() as pool:
        try:
            for count in (1, 2, 4):
                while len(sessions) < count:
                    sessions.append(Session(stream.loaded(), f"{name}-{len(sessions)}"))
                    pool.submit(work, sessions[-1])
                until(lambda n=count: shared() == [4 // n] * n, f"each of {count} has as many", seconds=60)
        finally:
            done.set()
    for session in sessions:
        session.close()


def test_a_worker_that_its_group_gave_up_cannot_commit(kafka_server, redis_server, name):
    """One that stood still and wakes up learns it from its heartbeat, perhaps in the middle of a transaction."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")])
    session = Session(stream.loaded(), name)
    try:
        (gained,) = until(lambda: session.poll(0.5, 10).gained, "an assignment")
        consumer = session._consumer  # polled no more: as when a worker is busy with its batch
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.remove_group_members(name, [MemberToRemove(member_id=consumer.group_metadata().member_id)])
        until(lambda: consumer.group_metadata().generation_id < 0, "a heartbeat is refused")
        out = [Outgoing(stream.verdict_topic, b"key", b"{}", [], 0)]
        with pytest.raises(BatchAborted, match="group has changed"):
            session.send(out, {gained.partition: 1}, lambda step: None)
    finally:
        session.close()
    assert stream.committed() == []


def test_what_transactions_leave_behind_is_no_lag(kafka_server, redis_server, name, monkeypatch):
    """The client is asked for all positions at once: asked for one it looks through all, so that the lag of a thousand
    partitions would take ten seconds, every two."""
    monkeypatch.setattr(KafkaConsumer, "position", None)
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, transactional_id=f"{name}-upstream")
    producer.init_transactions()
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send(stream.input_topic, value=b"{}")
        producer.flush()
        finish()
    producer.close()
    session = Session(stream.loaded(), name)
    try:
        until(lambda: session.poll(0.5, 10).received, "the record that was committed")
        until(
            lambda: not session.poll(0.1, 10).received and session.behind(asking=False) == {(stream.input_topic, 0): 0},
            "no lag",
        )
        assert session.behind(asking=True) == {(stream.input_topic, 0): 0}

    finally:
        session.close()
    assert [received.record.value for received in replayed(stream.loaded(), stream.input_topic)] == [b"{}"]


def test_a_client_that_does_not_read_through_ours_is_refused_at_the_start(monkeypatch):
    """As another version might not: the first header that is no text would stop its partition for good."""
    monkeypatch.setattr("worker.stream.kafka.unpacking.TolerantBatch", DefaultRecordBatch)
    with pytest.raises(BrokerError, match=r"kafka-python .* pyproject.toml"):
        be_tolerant()
    monkeypatch.undo()
    be_tolerant()


class NotText(str):
    """A header's name as clients in other languages can send it."""

    def encode(self, *_):
        return b"\xffname"


def test_a_header_name_that_is_no_text_stops_nothing(kafka_server, redis_server, name):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")], headers=[("one", b"1"), (NotText("two"), b"2")])
    session = Session(stream.loaded(), name)
    try:
        (received,) = until(lambda: session.poll(0.5, 10).received, "the record")
    finally:
        session.close()
    assert received.record.value == json_page(0, "a page")[1]
    assert received.headers == [("one", b"1"), ("\\xffname", b"2")]


def test_nor_does_it_where_a_topic_is_read_again(kafka_server, redis_server, name, monkeypatch):
    """By `verify`, of which the client has read nothing yet."""
    monkeypatch.setattr(memory_records, "DefaultRecordBatch", DefaultRecordBatch)
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(0, "a page")], headers=[(NotText("two"), b"2")])
    assert [received.headers for received in replayed(stream.loaded(), stream.input_topic)] == [[("\\xffname", b"2")]]


@pytest.mark.parametrize("topic", ["verdict_topic", "dead_letter_topic"])
def test_a_topic_of_answers_that_forgets_some_is_refused_at_the_start(kafka_server, redis_server, name, topic):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    settings = stream.loaded()
    with closing_admin(kafka_server.bootstrap_servers) as admin:
        configs = {"cleanup.policy": "delete,compact"}
        admin.create_topics(
            {getattr(settings, topic): {"num_partitions": 1, "configs": configs}}, wait_for_metadata=True
        )
    stream.create()
    with pytest.raises(
        BrokerError, match=f"{getattr(stream, topic)} has cleanup.policy compact: it would forget answers"
    ):
        largest_messages(settings)


@pytest.mark.parametrize(
    ("topic", "least", "config"),
    [
        ("verdict_topic", "1,048,576", {"max.message.bytes": "1000000"}),
        ("dead_letter_topic", "8,192", {"max.message.bytes": "2000"}),
    ],
)
def test_a_topic_that_cannot_take_what_must_go_there_is_refused(kafka_server, redis_server, name, topic, least, config):
    """A batch that never fits would be tried for ever, its pages in the index and no verdict out."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.create_topics({getattr(stream, topic): {"num_partitions": 1, "configs": config}}, wait_for_metadata=True)
    stream.create()
    with pytest.raises(BrokerError, match=f"max.message.bytes .* set it to {least} or more"):
        Session(stream.loaded(), name)


def test_what_the_dead_letter_topic_takes_is_kept_whole(kafka_server, redis_server, name):
    """Though no page can be so large; what it does not take is not held."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"max_page_bytes": "1000"})
    configs = {"max.message.bytes": "5000000"}
    with closing_admin(stream.bootstrap_servers) as admin:
        topics = {stream.dead_letter_topic: {"num_partitions": 1, "configs": configs}}
        admin.create_topics(topics, wait_for_metadata=True)
    stream.create()
    servers = stream.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers, compression_type="zstd", max_request_size=1 << 30)
    for size in (4_000_000, 6_000_000):
        producer.send(stream.input_topic, value=b" " * size).get(30)
    producer.close()
    session = Session(stream.loaded(), name)
    values = []
    try:
        until(
            lambda: values.extend(each.record.value for each in session.poll(0.5, 10).received) or len(values) == 2,
            "both records",
        )
    finally:
        session.close()
    assert values[0] == b" " * 4_000_000
    assert (type(values[1]), size_of(values[1])) == (Unread, 6_000_000)


def test_a_refused_time_of_a_record_is_said_with_what_may_be_wrong(kafka_server, redis_server, name):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    configs = {"message.timestamp.before.max.ms": "0", "max.message.bytes": "2000000"}
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.create_topics({stream.verdict_topic: {"num_partitions": 1, "configs": configs}}, wait_for_metadata=True)
    stream.create()
    session = Session(stream.loaded(), name)
    try:
        until(lambda: session.poll(0.5, 10).gained, "an assignment")
        with pytest.raises(SessionLost, match=r"Timestamp .* out of range.*this machine's clock is wrong"):
            session.send([Outgoing(stream.verdict_topic, b"k", b"v", [], 0)], {}, lambda step: None)
    finally:
        session.close()


def test_a_topic_that_was_deleted_meanwhile_is_said(kafka_server, redis_server, name):
    """The client would wait for it for ever, without a word, and would not be closed."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"transaction_timeout": "1s"})
    stream.create()
    session = Session(stream.loaded(), name)
    sender = session._transactions._producer._sender
    try:
        until(lambda: session.poll(0.5, 10).gained, "an assignment")
        out = [Outgoing(stream.verdict_topic, b"key", b"{}", [], 0)]
        session.send(out, {}, lambda step: None)
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.delete_topics([stream.verdict_topic])
            until(lambda: stream.verdict_topic not in admin.list_topics(), "the topic is gone")
        with pytest.raises(BrokerError) as caught:
            session.send(out, {}, lambda step: None)
        assert caught.value.retriable
    finally:
        session.close()
    until(lambda: not sender.is_alive(), "the producer has ended")
    with pytest.raises(BrokerError, match=f"topic {stream.verdict_topic} does not exist"):
        Session(stream.loaded(), name)


@pytest.mark.parametrize("alike", [True, False])
def test_a_verdict_goes_to_its_pages_partition_where_the_topics_are_alike(kafka_server, redis_server, name, alike):
    """Whoever joins pages with verdicts finds both in partitions of one number; else the key decides."""
    pages = Stream(f"{name}-in", kafka_server.bootstrap_servers, redis_server.url, partitions=3)
    pages.create()
    partitions = 3 if alike else 2
    verdicts = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions, pages.input_topic)
    verdicts.create()
    session = Session(verdicts.loaded(), name)
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


def test_a_broker_that_stands_still_keeps_nobody_from_those_that_answer(kafka_server, redis_server, name, monkeypatch):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    monkeypatch.setattr(connect, "BOOTSTRAP_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts for it, and it never says a word
        servers = f"127.0.0.1:{silent.getsockname()[1]},{stream.bootstrap_servers}"
        for _ in range(3):
            assert largest_messages(stream.loaded().model_copy(update={"bootstrap_servers": servers}))


def test_where_no_broker_answers_that_is_said(monkeypatch):
    monkeypatch.setattr(connect, "BOOTSTRAP_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:1"
        with pytest.raises(NobodyAnswers, match=f"no Kafka broker answers at {servers}"):
            largest_messages(load({"bootstrap_servers": servers}))
