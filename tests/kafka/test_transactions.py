"""Every way in which a transaction can fail, on a real broker, looked at from outside.

After each of them exactly that is committed which should be: read by a plain consumer of committed records, and asked
of the group's offsets. Each test ends with a transaction that succeeds, because what a failed one leaves in a client
comes out with the next.
"""

import threading
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, MemberToRemove
from kafka.errors import MessageSizeTooLargeError

from simhash.index import Partition
from tests.servers import running_kafka
from tests.stream import Stream, closing_admin, json_page, until
from worker.errors import BatchAborted, BrokerUnreachable, Fenced, SessionLost, WorkerError
from worker.records.passing import Outgoing
from worker.stream.kafka import Session
from worker.stream.kafka.transactions import Transactions

PARTITIONS = 2
ANY = b"any"


@pytest.fixture
def stream(kafka_server, redis_server, name):
    return stream_on(kafka_server, redis_server, name)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory):
    with running_kafka(tmp_path_factory.mktemp("troubled")) as server:
        yield server


@pytest.fixture
def troubled(own_broker):
    """A broker of this file's own, to be stopped, killed and started again; each test finds it running."""
    yield own_broker
    own_broker.start()
    own_broker.resume()


def stream_on(broker, redis, name, **settings):
    # A session so long that the client learns from its transaction, and from nothing else, what has become of it.
    patient = {"session_timeout": "20s", "transaction_timeout": "20s"} | settings
    made = Stream(name, broker.bootstrap_servers, redis.url, PARTITIONS, settings=patient)
    made.create()
    made.send([json_page(n, "a page") for n in range(4)])
    return made


@contextmanager
def session_of(stream):
    """A session that has all partitions."""
    session = Session(stream.loaded(), stream.name)
    try:
        gain(session, stream)
        yield session
    finally:
        session.close()


def gain(session, stream):
    """Poll until all partitions were (or were once more) given to this session."""
    gained = []

    def all_of_them():
        gained.extend(each.partition for each in session.poll(0.2, 10).gained)
        return len(gained) >= stream.partitions

    until(all_of_them, "an assignment")


def answer(session, stream, number, offset, on_step=lambda step: None, times=1):
    """Send a verdict of a partition, with its offset."""
    out = [Outgoing(stream.verdict_topic, b"key", b"%d up to %d" % (number, offset), [], number)]
    session.send(times * out, {Partition(stream.input_topic, number): offset}, on_step)


def at(step, action):
    """Something that happens once, at a step of the transaction."""
    done = []

    def on_step(name):
        if name == step and not done:
            done.append(name)
            action()

    return on_step


def seen(stream):
    """What the world sees of a group: its verdicts, and the offsets that it has committed."""
    verdicts = sorted(row.value.decode() for row in stream.committed() if row.value != ANY)
    consumer = KafkaConsumer(
        bootstrap_servers=stream.bootstrap_servers,
        group_id=stream.name,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    try:
        offsets = [consumer.committed(TopicPartition(stream.input_topic, n)) for n in range(stream.partitions)]
    finally:
        consumer.close()
    return verdicts, offsets


def throw_out(session, stream):
    """Its group removes it, as one that stood still for longer than its session; it is not told."""
    member = MemberToRemove(member_id=session._consumer.group_metadata().member_id)
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.remove_group_members(stream.name, [member])


def test_offsets_of_a_member_that_was_thrown_out_are_never_committed(stream):
    """Nor by the next transaction, which is another partition's: the client carries them along."""
    with session_of(stream) as session:
        threads = threading.active_count()
        with pytest.raises(BatchAborted, match="UnknownMember"):
            answer(session, stream, 0, 2, at("begun", lambda: throw_out(session, stream)))
        until(lambda: threading.active_count() <= threads, "the threads of the producer before to end")
        assert seen(stream) == ([], [None, None])
        lost, gained = set(), []

        def back():
            polled = session.poll(0.2, 10)  # it may be put out and join again within one
            lost.update(polled.lost)
            gained.extend(each.partition for each in polled.gained)
            return lost and len(gained) >= stream.partitions

        until(back, "it is back")
        answer(session, stream, 1, 1)
        assert seen(stream) == (["1 up to 1"], [None, 1])


def test_what_the_last_look_forbids_is_not_committed_nor_by_the_next_transaction(stream):
    def look():
        raise BatchAborted("another server")

    with session_of(stream) as session:
        out = [Outgoing(stream.verdict_topic, b"key", b"forbidden", [], 0)]
        with pytest.raises(BatchAborted, match="another server"):
            session.send(out, {Partition(stream.input_topic, 0): 2}, lambda step: None, last_look=look)
        assert seen(stream) == ([], [None, None])
        answer(session, stream, 1, 1)
        assert seen(stream) == (["1 up to 1"], [None, 1])


def test_offsets_under_another_generation_are_never_committed(stream, monkeypatch):
    with session_of(stream) as session:
        consumer = session._consumer
        membership = consumer.group_metadata

        def of_before():
            return membership()._replace(generation_id=membership().generation_id + 7)

        with monkeypatch.context() as patched:
            patched.setattr(consumer, "group_metadata", of_before)
            session.poll(0, 10)
            with pytest.raises(BatchAborted, match="IllegalGeneration"):
                answer(session, stream, 0, 2)
        assert seen(stream) == ([], [None, None])
        until(lambda: session.poll(0.2, 10) and session.settled(), "the group stands")
        answer(session, stream, 1, 1)
        assert seen(stream) == (["1 up to 1"], [None, 1])


def test_a_producer_that_another_one_fences_commits_nothing_more(stream):
    def fence():
        other = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, transactional_id=stream.name)
        other.init_transactions()
        other.close()

    with session_of(stream) as session:
        with pytest.raises(Fenced):
            answer(session, stream, 0, 2, at("sent", fence))
        with pytest.raises(WorkerError):
            answer(session, stream, 0, 2)
    assert seen(stream) == ([], [None, None])
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (["1 up to 1"], [None, 1])


def takes_any(stream):
    """Whether the verdict topic takes a record that is no verdict."""
    with closing(KafkaProducer(bootstrap_servers=stream.bootstrap_servers)) as producer:
        try:
            return bool(producer.send(stream.verdict_topic, ANY).get(30))
        except MessageSizeTooLargeError:
            return False


@pytest.mark.parametrize("verdicts", [1, 20])
def test_a_record_that_the_topic_does_not_take_any_more_takes_the_transaction_with_it(stream, verdicts):
    def allow(limit):
        topic = ConfigResource("topic", stream.verdict_topic, configs={"max.message.bytes": limit})
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.alter_configs([topic])
        until(lambda: takes_any(stream) == (limit != "10"), "what holds the topic's records to have heard of it")

    with session_of(stream) as session:
        with pytest.raises(SessionLost, match="MessageSizeTooLarge"):
            answer(session, stream, 0, 2, at("begun", lambda: allow("10")), verdicts)
        with pytest.raises(WorkerError):
            answer(session, stream, 0, 2)
    allow("1048576")
    assert seen(stream) == ([], [None, None])
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (["1 up to 1"], [None, 1])


class Crash(Exception):
    """What a test lets happen in the middle of a transaction."""


@pytest.mark.parametrize("step", ["begun", "sent", "offsets"])
def test_a_transaction_that_is_left_at_any_step_is_never_committed(stream, step):
    """Closing a client sends what is left in it: here it must not."""

    def leave():
        raise Crash

    with session_of(stream) as session:
        with pytest.raises(Crash):
            answer(session, stream, 0, 2, at(step, leave))
        with pytest.raises(SessionLost, match="and its producer with it"):
            answer(session, stream, 1, 1)
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (["1 up to 1"], [None, 1])


def test_a_broker_that_does_not_answer_while_verdicts_are_sent(troubled, redis_server, name):
    """The client goes on to try it; what it sends when the broker is back must not become part of anything."""
    stream = stream_on(troubled, redis_server, name, transaction_timeout="2s")
    with session_of(stream) as session:
        with pytest.raises(BrokerUnreachable):
            answer(session, stream, 0, 2, at("begun", troubled.pause))
        troubled.resume()
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (["1 up to 1"], [None, 1])


@pytest.mark.parametrize("step", ["sent", "offsets"])
def test_a_broker_that_does_not_answer_for_a_while_at_the_end_of_a_transaction(troubled, redis_server, name, step):
    """The client waits for it; it answers before anybody has given up."""
    stream = stream_on(troubled, redis_server, name)
    back = threading.Timer(2, troubled.resume)

    def stand_still():
        troubled.pause()
        back.start()

    with session_of(stream) as session:
        answer(session, stream, 0, 2, at(step, stand_still))
        back.join()
        answer(session, stream, 1, 1)
    assert seen(stream) == (["0 up to 2", "1 up to 1"], [2, 1])


@pytest.mark.parametrize("step", ["sent", "offsets"])
def test_a_broker_that_does_not_answer_at_the_end_of_a_transaction_is_not_waited_for_without_end(
    troubled, redis_server, name, step
):
    """What becomes of the transaction is unknown; all or nothing, and the next session finds out."""
    stream = stream_on(troubled, redis_server, name, transaction_timeout="2s")
    with session_of(stream) as session:
        with pytest.raises(BrokerUnreachable):
            answer(session, stream, 0, 2, at(step, troubled.pause))
        troubled.resume()
    with session_of(stream) as session:
        first = seen(stream)
        answer(session, stream, 1, 1)
    assert first in [([], [None, None]), (["0 up to 2"], [2, None])]
    assert seen(stream) == (sorted([*first[0], "1 up to 1"]), [first[1][0], 1])


@pytest.mark.parametrize("step", ["begun", "sent", "offsets"])
def test_a_coordinator_that_is_lost_between_two_steps(troubled, redis_server, name, step):
    """Killed and started again. Whether the transaction outlives it is the broker's to say; it is all or nothing."""
    stream = stream_on(troubled, redis_server, name)

    def lose():
        troubled.kill()
        troubled.start()

    with session_of(stream) as session:
        expected: tuple[list[str], list[int | None]] = (["0 up to 2"], [2, None])
        try:
            answer(session, stream, 0, 2, at(step, lose))
        except (SessionLost, BrokerUnreachable):
            expected = ([], [None, None])
        assert seen(stream) == expected
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (sorted([*expected[0], "1 up to 1"]), [expected[1][0], 1])


def test_a_refused_transaction_after_which_no_producer_can_be_had(troubled, redis_server, name, monkeypatch):
    """The broker dies between its refusal and what ends the transaction."""
    stream = stream_on(troubled, redis_server, name)
    begin = Transactions._begin

    with session_of(stream) as session:

        def die_first(self):
            troubled.kill()
            begin(self)

        monkeypatch.setattr("worker.stream.kafka.connect.BOOTSTRAP_SECONDS", 0.5)
        with monkeypatch.context() as patched:
            patched.setattr(Transactions, "_begin", die_first)
            with pytest.raises(BrokerUnreachable):
                answer(session, stream, 0, 2, at("begun", lambda: throw_out(session, stream)))
        troubled.start()
        with pytest.raises(WorkerError):  # as long as there is no new session, nothing is sent
            answer(session, stream, 0, 2)
    monkeypatch.undo()
    with session_of(stream) as session:
        answer(session, stream, 1, 1)
    assert seen(stream) == (["1 up to 1"], [None, 1])
