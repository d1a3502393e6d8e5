"""Members of one group that are thrown out, stand still and come back: sessions on a real broker.

A member is thrown out by the broker's own means here: the same comes of standing still for longer than a session.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import kafka.errors as errors
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import MemberState

from simhash.index import Partition
from tests.kafka.test_transactions import answer, at, gain, seen, throw_out
from tests.stream import Stream, json_page, until
from worker.errors import BatchAborted
from worker.stream.kafka import Session
from worker.stream.kafka import session as session_module


@pytest.fixture
def stream(kafka_server, redis_server, name):
    settings = {"session_timeout": "4s", "transaction_timeout": "20s"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, 2, settings=settings)
    made.create()
    made.send([json_page(n, "a page") for n in range(8)])
    return made


@pytest.fixture
def member(stream):
    """Makes sessions of the stream's group, which are closed in the end."""
    with ExitStack() as stack:
        made = []

        def make():
            made.append(stack.enter_context(closing(Session(stream.loaded(), f"{stream.name}-{len(made)}"))))
            return made[-1]

        yield make


class Polls:
    """What polls told each session, by name: who has which partition, since when, and what it lost.

    `poll` asks a session; one that only stays in the group gets no records.
    """

    def __init__(self, poll=lambda session: session.poll(0.1, 10), **sessions):
        self.poll = poll
        self.sessions = sessions
        self.owns = {name: set() for name in sessions}
        self.lost = {name: [] for name in sessions}
        self.begins = {name: {} for name in sessions}

    def once(self, *names):
        """Poll these, all at once: each waits for the others when the group is put together."""
        names = names or tuple(self.sessions)
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda name: self.poll(self.sessions[name]), names))
        for name, polled in zip(names, found, strict=True):
            self.lost[name] += sorted(p.number for p in polled.lost)
            self.owns[name] -= {p.number for p in polled.lost}
            for gained in polled.gained:
                self.owns[name].add(gained.partition.number)
                self.begins[name][gained.partition.number] = gained.position
        return True

    def until(self, condition, what, *names):
        until(lambda: self.once(*names) and condition(), what, pause=0)

    def shared(self, *names):
        """Whether each partition is one of these sessions', and the group stands."""
        return sorted(n for name in names for n in self.owns[name]) == [0, 1] and all(
            self.sessions[name].settled() for name in names
        )


@contextmanager
def polled_all_the_time(session):
    """A session polled by a thread of its own."""
    stopping = threading.Event()

    def poll():
        while not stopping.is_set():
            session.poll(0.1, 10)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def state_of(session):
    return session._consumer.group_metadata().state


def test_a_batch_of_a_former_assignment_is_not_committed_in_the_name_of_the_next(stream, member, monkeypatch):
    """One comes back; the other's client joins the next generation in the middle of a transaction over the last one."""
    sleeper, heir = member(), member()
    gain(sleeper, stream)
    throw_out(sleeper, stream)
    gain(heir, stream)
    answer(heir, stream, 0, 2)
    answer(heir, stream, 1, 2)
    before = heir._consumer.group_metadata().generation_id
    monkeypatch.setattr("worker.stream.kafka.session.JOIN_SECONDS", 0)  # the group takes longer than a poll
    with polled_all_the_time(sleeper):
        until(lambda: heir.poll(0.0, 10) and state_of(heir) is not MemberState.STABLE, "it joins anew", pause=0)

        def wait_for_the_next():
            until(lambda: heir._consumer.group_metadata().generation_id > before, "the next generation")

        with pytest.raises(BatchAborted):
            answer(heir, stream, 0, 4, at("begun", wait_for_the_next))
    assert seen(stream) == (["0 up to 2", "1 up to 2"], [2, 2])
    monkeypatch.undo()
    polls = Polls(sleeper=sleeper, heir=heir)
    polls.owns["heir"] = {0, 1}
    polls.until(lambda: polls.shared("sleeper", "heir"), "each partition is somebody's")
    for name, session in polls.sessions.items():
        for number in polls.owns[name]:
            assert polls.begins[name].get(number, 2) == 2
            answer(session, stream, number, 4)
    assert seen(stream) == (["0 up to 2", "0 up to 4", "1 up to 2", "1 up to 4"], [4, 4])


def test_an_answer_to_a_join_that_comes_between_two_polls_is_not_waited_for_without_end(stream, member, monkeypatch):
    """The topic has changed, so the client joins anew; it forgets that it did, once the broker has answered."""
    session = member()
    gain(session, stream)
    monkeypatch.setattr("worker.stream.kafka.session.JOIN_SECONDS", 0)  # the group takes longer than a poll
    with closing(KafkaAdminClient(bootstrap_servers=stream.bootstrap_servers)) as admin:
        admin.create_partitions({stream.input_topic: 3})
    until(lambda: session.poll(0.0, 10) and state_of(session) is MemberState.REBALANCING, "it joins anew", pause=0)
    attempt = session._consumer._coordinator._join_task
    until(lambda: attempt.is_done, "the broker's answer")
    monkeypatch.undo()
    until(lambda: session.poll(0.1, 10) and len(session._consumer.assignment()) == 3, "the third partition")
    assert session.settled()


def test_one_that_comes_back_takes_nothing_that_another_has(stream, member):
    """It claims nothing of what it had; so the other first gives a partition up, then it is given away."""
    polls = Polls(sleeper=member(), heir=member())
    gain(polls.sessions["sleeper"], stream)
    polls.owns["sleeper"] = {0, 1}
    throw_out(polls.sessions["sleeper"], stream)
    polls.until(lambda: polls.shared("heir"), "the heir has both", "heir")

    def settled():
        if polls.lost["sleeper"]:  # it was told by now
            assert not polls.owns["sleeper"] & polls.owns["heir"]
        return polls.shared("sleeper", "heir")

    polls.until(settled, "they share")
    assert polls.lost["sleeper"] == [0, 1]
    assert len(polls.lost["heir"]) == 1


@pytest.mark.parametrize("comes_back", [False, True])
def test_one_that_is_thrown_out_while_it_joins_again_forgets_what_it_had(stream, member, comes_back):
    """The client does not say that anything was lost then, and goes on where it was, also if it is given it again."""
    polls = Polls(first=member(), second=member(), third=member())
    first = polls.sessions["first"]
    polls.until(lambda: polls.shared("first", "second"), "two share", "first", "second")
    (had,) = polls.owns["first"]
    until(lambda: polls.once("third") and polls.once("third"), "the third asks to join")
    until(lambda: first.poll(0.0, 10) and state_of(first) is MemberState.REBALANCING, "the first joins again", pause=0)
    throw_out(first, stream)
    polls.until(lambda: polls.shared("second", "third"), "the others have its partition", "second", "third")
    heir = next(name for name in ("second", "third") if had in polls.owns[name])
    answer(polls.sessions[heir], stream, had, 2)
    if comes_back:
        for name in ("second", "third"):
            polls.sessions.pop(name).close()
    polls.once("first")
    polls.until(lambda: all(each.settled() for each in polls.sessions.values()), "the group stands")
    if comes_back:
        polls.until(lambda: polls.owns["first"] == {0, 1}, "it has all")
    assert had in polls.lost["first"]
    assert seen(stream) == ([f"{had} up to 2"], [2 if n == had else None for n in (0, 1)])
    assert polls.begins["first"].get(had) in (0, 2)
    if had in polls.owns["first"]:
        assert polls.begins["first"][had] == 2


def test_a_poll_that_changes_nothing_keeps_what_was_polled_before_committable(stream, member):
    session = member()
    gain(session, stream)
    for _ in range(3):
        session.poll(0.0, 10)
    answer(session, stream, 0, 2)
    assert seen(stream) == (["0 up to 2"], [2, None])


def test_a_batch_of_a_partition_that_stays_is_committed_under_the_next_generation(stream, member):
    polls = Polls(first=member(), second=member())
    gain(polls.sessions["first"], stream)
    polls.owns["first"] = {0, 1}
    polls.until(lambda: polls.shared("first", "second"), "they share")
    (kept,) = polls.owns["first"]
    assert polls.lost["first"] == [1 - kept]
    answer(polls.sessions["first"], stream, kept, 2)
    assert seen(stream) == ([f"{kept} up to 2"], [2 if n == kept else None for n in (0, 1)])


def test_the_committed_offset_is_that_of_now(stream, member):
    """The client gives the answer to a question of before, which nobody waited for, to whoever asks next."""
    session = member()
    gain(session, stream)
    tp = TopicPartition(stream.input_topic, 0)
    with pytest.raises(errors.KafkaTimeoutError):
        session._consumer.committed(tp, timeout_ms=0)
    answer(session, stream, 0, 2)
    assert session._committed(tp).offset == 2


def test_partitions_are_begun_though_each_answer_takes_longer_than_is_usual(stream, member, monkeypatch):
    """As with a quota, or far away."""
    first = member()
    gain(first, stream)
    answer(first, stream, 0, 2)
    first.close()
    monkeypatch.setattr(session_module, "ANSWER_MS", 0.1)
    second, gained = member(), []
    until(lambda: gained.extend(second.poll(0.1, 10).gained) or len(gained) == 2, "both are begun", pause=0)
    assert {each.partition.number: each.position for each in gained} == {0: 2, 1: 0}


def test_a_poll_ends_in_time_though_many_partitions_are_to_be_begun(stream, member, monkeypatch):
    monkeypatch.setattr(session_module, "BEGIN_SECONDS", 0.0)
    session, polls = member(), []
    until(lambda: polls.append(session.poll(0.1, 10)) or sum(len(p.gained) for p in polls) == 2, "all begin", pause=0)
    assert max(len(polled.gained) for polled in polls) == 1


@pytest.mark.parametrize("step", ["offsets", "sent"])
def test_a_partition_of_which_a_transaction_is_open_is_taken_over_when_it_is_known_where_it_stands(
    stream, member, step
):
    """Its next owner would read once more what is committed a moment later."""
    first, second = member(), member()
    gain(first, stream)
    gained = []

    def moves():
        throw_out(first, stream)
        until(lambda: second.poll(0.1, 10) and second._consumer.assignment(), "the second is given them", pause=0)
        gained.extend(second.poll(0.1, 10).gained)
        assert Partition(stream.input_topic, 0) not in {each.partition for each in gained}

    answer(first, stream, 0, 2, at(step, moves))
    until(lambda: gained.extend(second.poll(0.1, 10).gained) or len(gained) == 2, "both are taken over", pause=0)
    assert {each.partition.number: each.position for each in gained} == {0: 2, 1: 0}


def test_what_came_before_a_pause_is_read_after_it_though_a_partition_was_gained_meanwhile(stream, member):
    """The client sets aside what it has of a paused partition; beside what it reads of another it would forget it."""
    stream.send([json_page(n, "a page") for n in range(100)])
    first, second = member(), member()
    polls = Polls(poll=lambda session: session.stay(0.1), first=first, second=second)
    polls.until(lambda: polls.shared("first", "second"), "each has one")
    read = {0: [], 1: []}

    def seen(polled):
        polls.owns["first"] |= {gained.partition.number for gained in polled.gained}
        for each in polled.received:
            read[each.record.source.partition].append(each.record.source.offset)
        return polled.received

    until(lambda: seen(first.poll(0.5, 1)), "a first record", pause=0)
    answer(second, stream, *polls.owns["second"], 0)  # so the client knows where it begins, and fetches it at once
    second.close()
    until(lambda: not seen(first.stay(0.5)) and polls.owns["first"] == {0, 1}, "it gains the other's", pause=0)
    assert not any(seen(first.stay(0.5)) for _ in range(3))
    until(lambda: seen(first.poll(0.5, 10)) is not None and sum(map(len, read.values())) == 108, "all is read", pause=0)
    assert all(offsets == [*range(len(offsets))] for offsets in read.values())
