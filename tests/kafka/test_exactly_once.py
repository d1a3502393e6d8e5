"""The guarantees of the stream, on a real broker and a real Redis, under kills, stops, rebalances and replays."""

import os
import signal
from contextlib import contextmanager, suppress
from random import Random

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from simhash.index import Entry
from tests.copies import REAL_CHILDREN
from tests.processes import descendants
from tests.servers import running_kafka
from tests.stream import Stream, closing_admin, json_page, relation_of_workers, texts, until, working

STEPS = ["polled", "prepared", "judged", "begun", "offsets", "sent", "committed"]
COUNT = 64
URLS = 20


@pytest.fixture
def stream(kafka_server, redis_server, name):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    made.create()
    return made


@pytest.fixture
def wide_stream(kafka_server, redis_server, name):
    # Four workers of a busy machine must not take each other for dead.
    patient = {"session_timeout": "6s"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=8, settings=patient)
    made.create()
    return made


def filled(stream, count=COUNT, seed=1):
    stream.send([json_page(n, text) for n, text in enumerate(texts(count, Random(seed)))])
    return stream


def answered(stream, count):
    """So many pages, and a worker that answered them and was stopped."""
    filled(stream, count)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(count)
        worker.stop()


@pytest.fixture(scope="module")
def undisturbed(kafka_server, redis_server, tmp_path_factory):
    """An input of one partition, and the verdicts' bytes of a run in which nothing happened.

    URLs come again, and verdicts say how much their pages changed.
    """
    name, settings = f"u{tmp_path_factory.getbasetemp().name}", {"previous": "true"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings=settings)
    made.create()
    made.send([json_page(n % URLS, text) for n, text in enumerate(texts(COUNT, Random(1)))])
    worker = made.worker()
    with working(worker):
        made.wait_for(COUNT)
        assert worker.stop()[0] == 0
    return made, sorted(row.value for row in made.committed())


def assert_each_answered_once(stream, count=COUNT):
    answers = stream.answers()
    assert len(answers) == count
    assert set(answers.values()) == {1}
    stream.check()


def assert_guarantees(verdicts):
    """G1 and G2, by brute force over the verdicts of a stream."""
    rule = relation_of_workers()

    def entry_of(v):
        return Entry(
            bytes.fromhex(v["observation"]),
            None,
            v["fingerprint"] and int(v["fingerprint"], 16),
            v["verifier"] and int(v["verifier"], 16),
            v["digest"],
            v["url"],
        )

    unique = {v["seq"]: v for v in verdicts if v["verdict"] == "unique"}
    representatives = [entry_of(v) for v in unique.values()]
    for n, one in enumerate(representatives):
        assert not any(rule.matches(one, other) for other in representatives[:n])
    for v in verdicts:
        if v["verdict"] == "duplicate":
            named = unique[v["match"]["seq"]]
            assert named["url"] == v["match"]["url"]
            assert rule.matches(entry_of(v), entry_of(named))
            distance = int(v["fingerprint"] or "0", 16) ^ int(named["fingerprint"] or "0", 16)
            assert distance.bit_count() == v["match"]["distance"]


def finish(stream, count):
    """One more worker brings the stream to its end; everything is answered once, and rightly."""
    worker = stream.worker()
    with working(worker):
        stream.wait_for(count)
        assert worker.stop()[0] == 0
    assert_each_answered_once(stream, count)
    assert_guarantees(stream.verdicts())


def test_every_record_has_exactly_one_verdict(undisturbed):
    made, _ = undisturbed
    assert_each_answered_once(made)
    assert_guarantees(made.verdicts())
    kinds = {v["verdict"] for v in made.verdicts()}
    assert kinds == {"unique", "duplicate"}
    assert sum(v["previous"] is not None for v in made.verdicts()) == COUNT - URLS


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_between_any_two_steps_loses_and_doubles_nothing(undisturbed, name, step):
    """Restarted, it gives byte for byte the verdicts of the undisturbed run."""
    made, expected = undisturbed
    again = made.beside(name)
    killed = again.worker(stop_at=f"{step}:2")
    with working(killed):
        assert killed.wait()[0] == -signal.SIGKILL
    worker = again.worker()
    with working(worker):
        again.wait_for(COUNT)
        assert worker.stop()[0] == 0
    assert_each_answered_once(again)
    assert sorted(row.value for row in again.committed()) == expected


def test_a_worker_killed_again_and_again_comes_to_the_same_verdicts(undisturbed, name):
    made, expected = undisturbed
    again = made.beside(name)
    for step in ("judged:1", "offsets:1", "judged:2"):
        killed = again.worker(stop_at=step)
        with working(killed):
            assert killed.wait()[0] == -signal.SIGKILL
    worker = again.worker()
    with working(worker):
        again.wait_for(COUNT)
        worker.stop()
    assert sorted(row.value for row in again.committed()) == expected


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_at_once_on_chains_of_near_duplicates(wide_stream, workers):
    """Rebalances happen on the way: the workers join one after the other, in the middle of batches."""
    filled(wide_stream, 400, seed=workers)
    running = [wide_stream.worker() for _ in range(workers)]
    with working(*running):
        wide_stream.wait_for(400)
        for worker in running:
            assert worker.stop()[0] == 0
    assert_each_answered_once(wide_stream, 400)
    assert_guarantees(wide_stream.verdicts())


def test_a_killed_worker_among_others_changes_no_decision(wide_stream):
    killed = wide_stream.worker(stop_at="offsets:2")
    other = wide_stream.worker()
    with working(killed, other):
        wide_stream.wait_for_members(2)
        filled(wide_stream, 300, seed=9)
        assert killed.wait()[0] == -signal.SIGKILL
        wide_stream.wait_for(300)
        other.stop()
    assert_each_answered_once(wide_stream, 300)
    assert_guarantees(wide_stream.verdicts())


@pytest.mark.parametrize("step", ["prepared:2", "judged:2", "sent:2", "offsets:2"])
def test_a_stopped_worker_that_wakes_up_is_fenced(undisturbed, name, step):
    """Its partition has moved and its records are answered; what it had begun must come to nothing."""
    made, expected = undisturbed
    again = made.beside(name)
    sleeper = again.worker(stop_at=step, signal_number=signal.SIGSTOP)
    with working(sleeper):
        until(sleeper.stopped, "the worker stands still")
        heir = again.worker()
        with working(heir):
            again.wait_for(COUNT)
            sleeper.process.send_signal(signal.SIGCONT)
            code, written = sleeper.stop()  # it finishes the step it was in, whatever it is told meanwhile
            assert code == 0, written
            heir.stop()
    assert_each_answered_once(again)
    assert sorted(row.value for row in again.committed()) == expected


def test_a_broker_that_is_gone_is_told_in_lines_of_ours_and_the_stream_goes_on(redis_server, name, tmp_path):
    """The client's own lines come ten a second."""
    with running_kafka(tmp_path) as broker:
        made = Stream(name, broker.bootstrap_servers, redis_server.url)
        made.create()
        filled(made, 32)
        worker = made.worker()
        with working(worker):
            made.wait_for(32)
            broker.kill()
            worker.says(f"Kafka at {broker.bootstrap_servers} does not answer")
            broker.start()
            made.send([json_page(n, text) for n, text in enumerate(texts(16, Random(8)), start=32)])
            made.wait_for(48)
            code, written = worker.stop()
        assert code == 0
        assert_each_answered_once(made, 48)
    lines = [line for line in written.splitlines() if "error" in line.lower()]
    assert len(lines) < 20
    assert all("[kafka" not in line for line in lines)


def test_sigterm_leaves_no_gap(stream):
    filled(stream, 300)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(20)
        assert worker.stop()[0] == 0
    stream.send([json_page(n, text) for n, text in enumerate(texts(20, Random(8)), start=300)])
    finish(stream, 320)


def rewound_exit(stream):
    """A worker finds its group below the mark: one clear line, exit code 6, nothing judged."""
    before = len(stream.verdicts())
    worker = stream.worker()
    with working(worker):
        assert "index rewind" in worker.refusal(6)
    assert len(stream.verdicts()) == before


def test_a_group_whose_offsets_are_forgotten_goes_on_behind_what_was_answered(stream):
    filled(stream)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(COUNT)
        refused = stream.command("index", "resume", stream.input_topic, "--execute")
        assert (refused.returncode, "has 1 members: stop all workers first" in refused.stderr) == (4, True)
        worker.stop()
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_groups([stream.name])
    more = [json_page(n, text) for n, text in enumerate(texts(20, Random(8)), start=COUNT)]
    stream.send(more)
    goes_on(stream, COUNT, "")
    again = stream.worker()
    with working(again):
        stream.wait_for(COUNT + len(more))
        again.stop()
    assert set(stream.answers().values()) == {1}
    stream.check()
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_groups([stream.name])
        stream.send(more)
        admin.delete_records({TopicPartition(stream.input_topic, 0): COUNT + 2 * len(more)})
    # No page comes any more, and all the same it is said.
    goes_on(stream, COUNT + 2 * len(more), f"; what lay from {COUNT + len(more)} on is deleted")


def goes_on(stream, offset, lost):
    """A worker ends, and names the command that sets its group's offset to this one."""
    stopped = stream.worker()
    with working(stopped):
        told = stopped.refusal(6)
    assert f"group {stream.name} has no offset of {stream.input_topic}[0]" in told
    assert f"simhash-dedup index resume {stream.input_topic} --execute" in told
    for execute, said in ([], "would be set to"), (["--execute"], "set to"):
        done = stream.command("index", "resume", stream.input_topic, *execute)
        expected = f"{stream.input_topic}[0]: offset none {said} {offset}{lost}\n"
        assert (done.returncode, done.stdout) == (0, expected), done


def test_what_other_producers_transactions_leave_behind_is_no_page_that_was_missed(stream):
    """Retention removes it with the pages before it, and the group must not stand below what is left."""
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, transactional_id=stream.name)
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for key, value in (json_page(n, text) for n, text in enumerate(texts(20, Random(1)))):
            producer.send(stream.input_topic, value, key)
        producer.flush()
        end()
    worker = stream.worker()
    with working(worker), closing_admin(stream.bootstrap_servers) as admin:
        stream.wait_for(20)
        offsets = lambda: admin.list_group_offsets(stream.name)[stream.name].values()  # noqa: E731
        until(lambda: [at.offset for at in offsets()] == [42], "the group stands behind what is no page")
        worker.stop()
        admin.delete_records({TopicPartition(stream.input_topic, 0): 42})
    stream.send([json_page(99, "a page behind all that " * 5)])
    again = stream.worker()
    with working(again):
        stream.wait_for(21)
        again.stop()
    assert set(stream.answers().values()) == {1}


def test_a_group_does_not_go_on_in_a_topic_that_was_made_again(stream):
    answered(stream, 32)
    for topic in (stream.verdict_topic, stream.input_topic):
        nothing = stream.command("index", "resume", topic)
        assert (nothing.returncode, "nothing to set" in nothing.stderr) == (1, True), topic
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_topics([stream.input_topic])
        until(lambda: stream.input_topic not in admin.list_topics(), "the topic is gone")
    stream.create()
    refused = stream.command("index", "resume", stream.input_topic, "--execute")
    assert (refused.returncode, "ends at offset 0 of partition 0, below the mark 32" in refused.stderr) == (4, True)


def test_a_new_group_may_begin_at_the_latest_page_and_misses_none_from_then_on(stream):
    """Not what comes in before the first commit while no worker runs, nor in a partition that is added later."""
    filled(stream, 10)
    stream.settings["start"] = "latest"
    worker = stream.worker()
    with working(worker):
        worker.says(f"{stream.input_topic}[0] is ours, from offset 10")
        worker.stop()
    pages = [json_page(n, text) for n, text in enumerate(texts(40, Random(8)), start=10)]
    stream.send(pages[:20])
    again = stream.worker()
    with working(again):
        stream.wait_for(20)
        with closing_admin(stream.bootstrap_servers) as admin:
            admin.create_partitions({stream.input_topic: 2})
        stream.send(pages[20:], partition=1)
        stream.wait_for(40)
        again.stop()
    expected = {(0, offset) for offset in range(10, 30)} | {(1, offset) for offset in range(20)}
    assert stream.answers() == dict.fromkeys(expected, 1)
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_groups([stream.name])
    stream.send([json_page(99, "a page that must not be passed over " * 5)])
    stopped = stream.worker()
    with working(stopped):
        assert "index resume" in stopped.refusal(6)


def test_a_rewound_group_is_noticed_and_right_after_it_is_announced(stream):
    answered(stream, COUNT)
    first = {v["source"]["offset"]: v for v in stream.verdicts()}
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_groups([stream.name])
    rewound_exit(stream)
    shown = stream.command("index", "rewind", stream.input_topic)
    assert (shown.returncode, "would be lowered to 0" in shown.stdout) == (0, True), shown.stderr
    rewound_exit(stream)
    announced = stream.command("index", "rewind", stream.input_topic, "--execute")
    assert announced.returncode == 0, announced.stderr
    again = stream.worker()
    with working(again):
        stream.wait_for(2 * COUNT)
        again.stop()
    second = {v["source"]["offset"]: v for v in stream.verdicts()[COUNT:]}
    assert second == first


def test_beside_a_live_group_neither_rewind_nor_accept_do_anything(stream):
    filled(stream, 16)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(16)
        for asked in (["rewind", stream.input_topic], ["accept"]):
            refused = stream.command("index", *asked, "--execute")
            assert refused.returncode == 4, asked
            assert f"group {stream.name} has 1 members: stop all workers first" in refused.stderr
        worker.stop()


def test_a_topic_made_again_is_noticed_and_right_after_it_is_announced(stream):
    answered(stream, 32)
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_topics([stream.input_topic])
        until(lambda: stream.input_topic not in admin.list_topics(), "the topic is gone")
    stream.create()
    filled(stream, 32)
    rewound_exit(stream)
    assert stream.command("index", "rewind", stream.input_topic, "--execute").returncode == 0
    again = stream.worker()
    with working(again):
        stream.wait_for(64)
        again.stop()
    made_again = stream.verdicts()[32:]
    assert {v["verdict"] for v in made_again} == {"duplicate"}
    assert {v["match"]["same_url"] for v in made_again if v["match"]["distance"] == 0} >= {True}


def test_a_replay_after_retention_took_its_elder_says_what_was_said_first(stream, tmp_path):
    """Judged, not committed; then its elder is forgotten: the journal answers, not the index as it is now."""
    page = texts(1, Random(3))[0]
    elder, younger = json_page(0, page), json_page(1, page + " changed")
    stream.send([elder])
    worker = stream.worker()
    with working(worker):
        stream.wait_for(1)
        worker.stop()
    stream.send([younger])
    killed = stream.worker(stop_at="judged:1")
    with working(killed):
        assert killed.wait()[0] == -signal.SIGKILL
    others = tmp_path / "others.jsonl"
    vocabulary = Random(4)
    others.write_bytes(b"\n".join(json_page(n, texts(1, vocabulary)[0])[1] for n in range(100, 110)))
    few = {"SIMHASH_DEDUP_MAX_DOCUMENTS": "3"}
    judged = stream.command(
        "file", str(others), "--redis", stream.redis_url, "--out", str(tmp_path / "verdicts"), env=few
    )
    assert judged.returncode == 0, judged.stderr
    assert stream.command("inspect", elder[0].decode()).returncode == 1
    stream.settings["max_documents"] = "3"
    stream.send([json_page(2, page + " changed once more")])
    again = stream.worker()
    with working(again):
        stream.wait_for(3)
        assert again.stop()[0] == 0
    first, replayed, later = sorted(stream.verdicts(), key=lambda v: int(v["id"]))
    assert (first["verdict"], replayed["verdict"], later["verdict"]) == ("unique", "duplicate", "unique")
    assert replayed["match"]["seq"] == first["seq"]


def test_two_pages_under_one_fingerprint_are_told_apart_by_the_verifier(stream):
    """The same words in another order: the same features, and hardly a run of five words in common."""
    words = texts(1, Random(5))[0].split()
    orders = [Random(seed).sample(words, len(words)) for seed in (1, 2)]
    stream.send([json_page(n, " ".join(orders[n % 2])) for n in range(4)])
    worker = stream.worker()
    with working(worker):
        stream.wait_for(4)
        assert worker.stop()[0] == 0
    verdicts = stream.verdicts()
    assert len({v["fingerprint"] for v in verdicts}) == 1
    assert [v["verdict"] for v in verdicts] == ["unique", "unique", "duplicate", "duplicate"]
    assert [v["match"]["url"][-1] for v in verdicts[2:]] == ["0", "1"]


@contextmanager
def another_member(stream):
    """A member of the stream's group that commits nothing."""
    consumer = KafkaConsumer(
        stream.input_topic,
        bootstrap_servers=stream.bootstrap_servers,
        group_id=stream.name,
        enable_auto_commit=False,
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def standing_still(processes):
    """Processes that do nothing meanwhile; one that was left so could not end."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def test_a_rebalance_in_the_middle_of_a_batch(kafka_server, redis_server, name, monkeypatch):
    """While a batch is being fingerprinted its partition becomes another member's, who gives it back unread."""
    monkeypatch.setenv(REAL_CHILDREN, "yes")
    patient = {"session_timeout": "10s", "page_deadline": "120s"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=4, settings=patient)
    made.create()
    pages = [json_page(n, text) for n, text in enumerate(texts(33, Random(2)))]
    worker = made.worker(stop_at="polled:2", signal_number=signal.SIGSTOP)
    with working(worker):
        made.send(pages[:1], partition=0)
        made.wait_for(1)
        made.send(pages[1:17], partition=3)
        until(worker.stopped, "the worker stands still, with the batch in its hand")
        with another_member(made) as member:

            def holds_half():  # it must go on polling, as members do, or the group waits for it
                member.poll(100)
                return len(member.assignment()) == 2

            with standing_still(descendants(worker.process.pid)):
                worker.process.send_signal(signal.SIGCONT)
                until(holds_half, "half of the partitions have moved")
                assert TopicPartition(made.input_topic, 3) in member.assignment()
            made.send(pages[17:], partition=0)
            until(lambda: holds_half() and sum(made.answers().values()) >= 17, "its other partitions go on")
            assert {v["source"]["partition"] for v in made.verdicts()} == {0}
        made.wait_for(33)
        code, written = worker.stop()
    assert (code, "partitions lost" in written) == (0, True)
    assert_each_answered_once(made, 33)
    assert_guarantees(made.verdicts())
