"""The loop, step by step, on a real broker: what the guarantees need beyond kills (test_exactly_once.py)."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from random import Random

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, MemberToRemove
from prometheus_client import CollectorRegistry

from benchmarks.walk import Here
from simhash.errors import IndexLost, IndexServerChanged, IndexUnreachable
from simhash.index import IndexSpec, Partition, Relation
from simhash.index.memory import MemoryIndex
from simhash.relation.tables import design
from simhash.signature.profiles import profile
from tests.kafka.test_membership import polled_all_the_time
from tests.servers import KEEPS_ALL, running_redis
from tests.stream import Stream, closing_admin, json_page, texts, until
from worker.errors import BrokerError, BrokerUnreachable, SessionLost, SettingsError
from worker.index.stores import connected_index
from worker.judging.fingerprinters import recipe
from worker.judging.judge import Rejected, prepare
from worker.stream import backoff
from worker.stream.kafka import Session
from worker.stream.loop import Loop, Parts
from worker.stream.metrics import Metrics
from worker.stream.partitions import Standstill
from worker.stream.status import Idleness, Progress, Status

DEFAULT = profile("default")


class Crash(Exception):
    """What a test lets happen in the middle of the loop."""


@pytest.fixture
def stream(kafka_server, redis_server, name):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"unique_topic": f"{name}.unique"})
    made.create(max_message_bytes="1000000")
    return made


@pytest.fixture
def index():
    relation = Relation(design("6"), DEFAULT.reach, DEFAULT.verifier_reach, DEFAULT.verifier_bits, DEFAULT.bands)
    return MemoryIndex(IndexSpec(DEFAULT.recipe(), relation, 8, 1000))


def run(
    stream,
    index,
    count,
    spoil=lambda outcome: outcome,
    crash_at="",
    stop_at="",
    on_step=lambda _: None,
    registry=None,
    name="",
    **more,
):
    """Run the loop in a thread until `count` records are answered, or it crashes or is told to stop at a step."""
    settings, stopping, failure = stream.loaded(**more), threading.Event(), []

    def steps(step):
        on_step(step)
        if step == crash_at:
            raise Crash
        if step == stop_at:
            stopping.set()

    parts = Parts(
        settings=settings,
        profile=DEFAULT,
        index=index,
        fingerprinters=Here(recipe(settings, DEFAULT), lambda record, made: spoil(prepare(record, made))),
        open_session=lambda: Session(settings, name or stream.name),
        metrics=Metrics(registry or CollectorRegistry()),
        status=Status(),
        on_step=steps,
    )

    def work():
        try:
            Loop(parts, stopping).run()
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        if crash_at or stop_at:
            until(lambda: failure or not thread.is_alive(), "the end")
        else:
            stream.wait_for(count, unless=lambda: failure)
    finally:
        stopping.set()
        thread.join(30)
    assert not thread.is_alive()
    if failure and not isinstance(failure[0], Crash):
        raise failure[0]
    return parts


class Attesting(MemoryIndex):
    """Gives a watermark, notes those that are presented, and does not answer when told so."""

    attests, away = "", 0

    def watermark(self):
        return self.attests

    def present(self, watermarks, others=tuple):
        self.presented = [*getattr(self, "presented", []), set(watermarks)]

    def check_and_insert(self, entries, committed):
        if self.away:
            self.away -= 1
            raise IndexUnreachable("away")
        return super().check_and_insert(entries, committed)


def test_who_answers_after_a_failure_is_held_against_what_others_committed_too(kafka_server, redis_server, name, index):
    """Of a partition that came from another worker, and of which this one has committed nothing."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=2)
    stream.create()
    pages = [json_page(n, text) for n, text in enumerate(texts(60, Random(5)))]
    attesting = Attesting(index.spec)
    stream.send(pages[:20])
    attesting.attests = "another worker's"
    run(stream, attesting, 20)
    stream.send(pages[20:], partition=1)
    attesting.attests, attesting.presented, commits = "own", [], []

    def goes_away_once(step):
        if step == "committed":
            commits.append(step)
            attesting.away = int(len(commits) == 1)

    run(stream, attesting, 60, on_step=goes_away_once)
    assert {"another worker's", "own"} in attesting.presented


def test_what_is_lost_between_its_judgement_and_its_commit_is_anothers_to_answer(
    kafka_server, redis_server, name, index, monkeypatch
):
    """A worker stands still with a judged batch of two partitions, until one of them is another member's."""
    quick = {"session_timeout": "3s", "transaction_timeout": "4s", "redis_timeout": "1s"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=2, settings=quick)
    stream.create()
    stream.send([json_page(n, text) for n, text in enumerate(texts(16, Random(6)))])
    ours, steps, first, answered, other, made = [], [], set(), [], ExitStack(), Session

    def session(*given):
        ours.append(made(*given))
        return ours[-1]

    def share(step):
        steps.append(step)
        if steps.count("judged") == 1 and step == "judged":
            joined = other.enter_context(closing(made(stream.loaded(), f"{name}-other")))
            other.enter_context(polled_all_the_time(joined))
            until(lambda: not ours[-1].settled(), "the other joins the group")
        if steps.count("committed") == 1 and step == "committed":
            answered.extend(stream.answers())
            other.close()

    def noted(outcome):
        if steps.count("polled") == 1:
            first.add(outcome.source.partition)
        return outcome

    monkeypatch.setattr(f"{__name__}.Session", session)
    with other:
        run(stream, index, 16, noted, on_step=share)
    assert (first, len(answered)) == ({0, 1}, 8)
    assert set(stream.answers().values()) == {1}


class Restored(Attesting):
    """Does not answer once, and is then one that lacks what it attested."""

    def present(self, watermarks, others=tuple):
        if not self.away and self.attests in set(watermarks):
            raise IndexLost("an older copy")


@pytest.mark.parametrize("away", [0, 1], ids=["that begins", "whose index comes back"])
def test_nothing_is_judged_by_an_index_that_lacks_what_it_attested(stream, index, away):
    """A worker looks before it judges the first page, and each time that it had to wait for the index."""
    attesting = Attesting(index.spec)
    attesting.attests = "what was there"
    pages = [json_page(n, text) for n, text in enumerate(texts(40, Random(5)))]
    stream.send(pages[:20])
    run(stream, attesting, 20)
    restored = Restored(index.spec)
    restored.attests, restored.away = attesting.attests, away
    stream.send(pages[20:])
    with pytest.raises(IndexLost, match="an older copy"):
        run(stream, restored, 40)
    assert restored.documents() == 0
    assert len(stream.verdicts()) == 20


def test_a_worker_that_has_nothing_to_do_says_that_its_index_lacks_what_it_attested(stream, index):
    attesting = Attesting(index.spec)
    stream.send([json_page(0, "a page " * 30)])

    def lacks(*_):
        raise IndexLost("an older copy")

    def restored(step):
        if step == "committed":
            attesting.present = lacks

    with pytest.raises(IndexLost, match="an older copy"):
        run(stream, attesting, 2, on_step=restored)
    assert len(stream.verdicts()) == 1


def test_the_unique_topic_holds_the_unique_pages_as_they_came(stream, index):
    records = [json_page(n, text) for n, text in enumerate(texts(40, Random(5)))]
    stream.send(records, headers=[("traceparent", b"00-1-2-01")])
    run(stream, index, 40)
    unique = [v["source"]["offset"] for v in stream.verdicts() if v["verdict"] == "unique"]
    assert 0 < len(unique) < 40
    found = stream.committed(stream.settings["unique_topic"])
    assert [(row.key, row.value) for row in found] == [records[offset] for offset in sorted(unique)]
    assert all(("traceparent", b"00-1-2-01") in row.headers for row in [*found, *stream.committed()])


def test_a_page_that_the_unique_topic_cannot_take_is_refused_before_the_index(stream, index):
    """An inserted page must never become a dead letter, and a batch must not fail for ever."""
    big = "unlike anything " * 80_000
    stream.send([json_page(0, big), json_page(1, "something small " * 50)])
    run(stream, index, 2)
    (letter,) = stream.committed(stream.dead_letter_topic)
    headers = dict(letter.headers)
    assert stream.settings["unique_topic"].encode() in headers["__connect.errors.exception.message"]
    assert index.documents() == 1


def test_what_is_under_way_is_finished_when_it_is_told_to_stop(stream, index):
    stream.send([json_page(n, text) for n, text in enumerate(texts(40, Random(5)))])
    steps = []
    run(stream, index, 0, stop_at="polled", on_step=steps.append, batch_pages=2)
    assert steps.count("committed") == steps.count("polled") > 1
    assert 2 < len(stream.verdicts()) < 40


def test_a_topic_of_small_messages_takes_many(kafka_server, redis_server, index, name):
    """All of a batch together is larger than the topic takes at once."""
    small = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"unique_topic": f"{name}.unique"})
    small.create(max_message_bytes="5000")
    small.send([json_page(n, text) for n, text in enumerate(texts(32, Random(5)))])
    run(small, index, 32)
    found = [v["url"].encode() for v in small.verdicts() if v["verdict"] == "unique"]
    assert len(found) > 5
    assert [row.key for row in small.committed(f"{name}.unique")] == found


def test_a_page_that_fitted_when_it_was_judged_is_no_dead_letter(stream, index):
    """The topic of unique pages takes less now; when it takes as much as before, the page goes out."""
    stream.send([json_page(0, "a page that is stored " * 30)])
    run(stream, index, 0, crash_at="begun")
    topic = ConfigResource("topic", stream.settings["unique_topic"])
    prepared = []

    def allow(limit):
        with closing_admin(stream.bootstrap_servers) as admin:
            topic.configs = {"max.message.bytes": limit}
            admin.alter_configs([topic])

    def again(step):
        if step == "prepared":
            prepared.append(step)
        if len(prepared) == 2:
            allow("1000000")

    allow("700")
    run(stream, index, 1, on_step=again)
    assert len(prepared) >= 2
    assert [v["verdict"] for v in stream.verdicts()] == ["unique"]
    assert stream.committed(stream.dead_letter_topic) == []


def test_headers_too_many_for_a_verdict_are_refused_before_the_index(stream, index):
    stream.send([json_page(0, "a page " * 50)], headers=[("x", b"y" * 70_000)])
    run(stream, index, 1)
    (letter,) = stream.committed(stream.dead_letter_topic)
    assert b"max_header_bytes" in dict(letter.headers)["__connect.errors.exception.message"]
    assert index.documents() == 0


def test_a_page_that_is_judged_and_then_fails_by_chance_is_no_dead_letter(stream, index):
    """It is in the index; others may be its duplicates."""
    stream.send([json_page(0, "a page that is stored " * 30)])
    run(stream, index, 0, crash_at="begun")
    assert index.documents() == 1
    spoiled = []

    def once(outcome):
        if spoiled:
            return outcome
        spoiled.append(outcome)
        return Rejected(outcome.source, "extract", "TimeoutError", "took too long, twice", by_chance=True)

    run(stream, index, 1, spoil=once)
    assert [v["verdict"] for v in stream.verdicts()] == ["unique"]
    assert stream.committed(stream.dead_letter_topic) == []


def test_a_page_that_fails_by_chance_and_was_never_judged_is_a_dead_letter(stream, index):
    stream.send([json_page(0, "a page " * 30)])
    run(
        stream,
        index,
        1,
        spoil=lambda o: Rejected(o.source, "extract", "TimeoutError", "took too long, twice", by_chance=True),
    )
    assert len(stream.committed(stream.dead_letter_topic)) == 1


@pytest.mark.parametrize(("setting", "limit"), [("max_page_bytes", 1000), ("max_url_bytes", 10)])
def test_a_page_that_is_judged_and_refused_by_other_settings_is_no_dead_letter(stream, index, setting, limit):
    """The worker died after it was stored; the limit was changed then."""
    stream.send([json_page(0, "a page that is stored " * 100)])
    run(stream, index, 0, crash_at="begun")
    with pytest.raises(SettingsError) as caught:
        run(stream, index, 1, **{setting: str(limit)})
    assert f"{setting} = {limit:,}" in str(caught.value)
    assert f"{stream.input_topic}[0] offset 0 was judged before" in str(caught.value)
    assert stream.answers() == {}
    run(stream, index, 1)
    assert [v["verdict"] for v in stream.verdicts()] == ["unique"]


def made_again(stream):
    """The input topic is another one of that name."""
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_topics([stream.input_topic])
        until(lambda: stream.input_topic not in admin.list_topics(), "the topic to go")
    stream.create()


@pytest.mark.parametrize("by_chance", [True, False])
def test_a_record_at_the_offset_of_another_that_was_judged_is_a_dead_letter(stream, index, by_chance):
    """A journal that outlived its topic."""
    stream.send([json_page(0, "a page that is stored " * 30)])
    run(stream, index, 0, crash_at="begun")
    made_again(stream)
    stream.send([json_page(1, "another page " * 30)])
    refused = partial(Rejected, stage="extract", error="TimeoutError", message="too long", by_chance=by_chance)
    run(stream, index, 1, spoil=lambda outcome: refused(outcome.source))
    assert len(stream.committed(stream.dead_letter_topic)) == 1


def test_a_tombstone_at_the_offset_of_a_page_that_was_judged_is_a_dead_letter(stream, index):
    """It was never a page."""
    stream.send([json_page(0, "a page that is stored " * 30)])
    run(stream, index, 0, crash_at="begun")
    made_again(stream)
    stream.send([(b"key", None)])
    run(stream, index, 1)
    assert len(stream.committed(stream.dead_letter_topic)) == 1


def test_a_page_whose_child_ends_together_with_the_worker_is_no_dead_letter(stream, index):
    """SIGTERM to all processes of a group ends the children too; the next worker reads the page again."""
    stream.send([json_page(0, "a page " * 30)])
    ended = partial(Rejected, stage="extract", error="ChildLost", message="ended its process", by_chance=True)
    run(stream, index, 0, stop_at="polled", spoil=lambda outcome: ended(outcome.source))
    assert stream.answers() == {}
    run(stream, index, 1)
    assert [v["verdict"] for v in stream.verdicts()] == ["unique"]


def test_what_takes_longer_than_a_transaction_may_is_committed_in_parts(stream, index, monkeypatch):
    """As behind a broker's quota. Read again as large as before, it would never be committed."""
    monkeypatch.setattr(backoff, "SHORTEST_PAUSE_SECONDS", 0.0)
    whole, sizes = Session.send, []

    def send(session, outgoing, *rest):
        if len(outgoing) > 12:
            raise BrokerUnreachable("the end of a transaction, within 15 s")
        sizes.append(len(outgoing))
        whole(session, outgoing, *rest)

    monkeypatch.setattr(Session, "send", send)
    stream.send([json_page(n, text) for n, text in enumerate(texts(40, Random(5)))])
    run(stream, index, 40)
    assert len(stream.verdicts()) == 40
    assert max(sizes) > 6  # no smaller than they must be


def test_a_crash_before_the_commit_leaves_nothing_to_see(stream, index):
    stream.send([json_page(n, text) for n, text in enumerate(texts(10, Random(2)))])
    run(stream, index, 0, crash_at="offsets")
    assert stream.committed() == []
    run(stream, index, 10)
    assert sorted(stream.answers().values()) == [1] * 10


def test_records_of_an_aborted_producer_are_never_read(stream, index):
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, transactional_id=f"{stream.name}-upstream")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(stream.input_topic, value=json_page(0, "aborted " * 40)[1])
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(stream.input_topic, value=json_page(1, "committed " * 40)[1])
    producer.commit_transaction()
    producer.close()
    run(stream, index, 1)
    assert [v["id"] for v in stream.verdicts()] == ["1"]


def test_pages_come_in_any_of_kafkas_compressions(stream, index):
    """What the client cannot unpack would stop the partition for good."""
    codecs = ["gzip", "snappy", "lz4", "zstd"]
    for n, codec in enumerate(codecs):
        producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, compression_type=codec)
        producer.send(stream.input_topic, value=json_page(n, f"packed by {codec} " * 40)[1])
        producer.close()
    run(stream, index, len(codecs))
    assert [v["id"] for v in stream.verdicts()] == ["0", "1", "2", "3"]


def test_lag_and_commits_are_measured(stream, index):
    stream.send([json_page(n, text) for n, text in enumerate(texts(10, Random(3)))])
    parts = run(stream, index, 10)
    value = parts.metrics.registry.get_sample_value
    judged = sum(json.loads(row.value)["verdict"] == "unique" for row in stream.committed())
    assert value("simhash_dedup_pages_total", {"verdict": "unique", "kind": ""}) == judged
    assert value("simhash_dedup_last_commit_timestamp_seconds") > 1.7e9
    assert value("simhash_dedup_stage_seconds_count", {"stage": "commit"}) >= 1
    # Its partitions are others' by now, and so is their lag.
    assert value("simhash_dedup_consumer_lag", {"topic": stream.input_topic, "partition": "0"}) == 0


def lag_of(stream, registry):
    return registry.get_sample_value("simhash_dedup_consumer_lag", {"topic": stream.input_topic, "partition": "0"})


def test_the_lag_grows_while_the_index_does_not_answer(kafka_server, redis_server, name, tmp_path, caplog):
    """Nothing is fetched meanwhile, so that nothing tells where the partition ends, but the broker when it is asked."""
    registry = CollectorRegistry()
    stopped = []
    with running_redis(tmp_path) as server, ThreadPoolExecutor() as pool:
        stream = Stream(name, kafka_server.bootstrap_servers, server.url)
        stream.create()
        pages = [json_page(n, text) for n, text in enumerate(texts(90, Random(5)))]
        stream.send(pages[:20])

        def grows():
            stream.send(pages[20:])
            until(lambda: (lag_of(stream, registry) or 0) >= 80, "a lag")
            server.start()

        def stop_once(step):
            if step == "prepared" and not stopped:
                server.stop()
                stopped.append(pool.submit(grows))

        run(stream, connected_index(stream.loaded(), DEFAULT), 90, on_step=stop_once, registry=registry)
        stopped[0].result()
    assert set(stream.answers().values()) == {1}
    said = [line for line in caplog.messages if "waiting for the index" in line]
    assert said, "an operator is told"
    assert len(said) == len(set(said)), "once"


class Moved(Attesting):
    """Is on another server when the first batch is about to be committed."""

    looks = 0

    def unchanged(self):
        self.looks += 1
        if self.looks == 1:
            raise IndexServerChanged("another server")


def test_a_batch_is_not_committed_when_its_index_is_on_another_server_by_then(stream, index):
    moved, steps = Moved(index.spec), []
    stream.send([json_page(n, text) for n, text in enumerate(texts(20, Random(5)))])
    run(stream, moved, 20, on_step=steps.append)
    assert moved.looks == steps.count("offsets") == steps.count("committed") + 1
    assert steps.count("sent") == steps.count("committed"), "nobody was sent what is not committed"
    assert set(stream.answers().values()) == {1}


class Unlooked(Attesting):
    """Does not answer any more when a batch is about to be committed."""

    def unchanged(self):
        raise IndexUnreachable("away")


@pytest.mark.parametrize(("kind", "said"), [(Attesting, "all that was judged is committed"), (Unlooked, "pages of ")])
def test_the_last_line_says_that_all_is_committed_only_if_it_is(stream, index, caplog, kind, said):
    caplog.set_level("INFO", logger="worker")
    stream.send([json_page(n, text) for n, text in enumerate(texts(20, Random(5)))])
    parts = run(stream, kind(index.spec), 20, stop_at="judged")
    (last,) = [line for line in caplog.messages if line.startswith("stopped: ")]
    assert last.startswith(f"stopped: {said}")
    judged = parts.metrics.registry.get_sample_value
    timed = judged("simhash_dedup_stage_seconds_count", {"stage": "commit"})
    assert bool(timed) == (kind is Attesting), "a failure is not timed"


def test_the_lag_stays_while_there_is_no_session(stream, index, monkeypatch):
    """The brokers are away: an alert looks at the lag."""
    registry, lags, opened, real = CollectorRegistry(), [], [], Session

    def session(settings, name):
        opened.append(name)
        if 1 < len(opened) < 4:
            lags.append(lag_of(stream, registry))
            raise BrokerUnreachable("away")
        return real(settings, name)

    def lose(step):
        if step == "judged" and len(opened) == 1 and lag_of(stream, registry):
            raise SessionLost("away")

    monkeypatch.setattr(f"{__name__}.Session", session)
    monkeypatch.setattr(backoff, "LONGEST_PAUSE_SECONDS", 0.1)
    stream.send([json_page(n, text) for n, text in enumerate(texts(90, Random(5)))])
    run(stream, index, 90, on_step=lose, registry=registry, batch_pages="5")
    assert len(lags) == 2
    assert all(lag > 0 for lag in lags)


def test_a_worker_that_has_lost_its_partitions_is_not_ready(stream, index):
    parts = run(stream, index, 0)
    loop, partition = Loop(parts, threading.Event()), Partition("pages", 0)
    loop._partitions.gained(partition, 0, "")
    parts.status.ready(assigned=True, index=True)
    assert parts.status.why_not_ready() is None
    loop._drop(frozenset([partition]))
    assert parts.status.why_not_ready() == "no partitions assigned yet"


def test_a_batch_is_judged_again_when_its_index_was_restored_before_it_is_committed(kafka_server, name, tmp_path):
    """Else verdicts are out of pages that the index lacks, and other workers may have judged without them."""
    prepared = []
    # The server ends with the thread that started it: not the loop's.
    with running_redis(tmp_path / "redis", KEEPS_ALL) as server, ThreadPoolExecutor() as pool:
        stream = Stream(name, kafka_server.bootstrap_servers, server.url, settings={"batch_pages": "20"})
        stream.create()
        data, copy = server.directory / "redis-data", tmp_path / "copy"

        def restore():
            server.kill()
            shutil.rmtree(data)
            shutil.copytree(copy, data)
            server.start()

        def restore_once(step):
            prepared.extend([step] if step == "prepared" else [])
            if step == "prepared" and len(prepared) == 2:
                shutil.copytree(data, copy)
            if step == "offsets" and len(prepared) == 2:
                pool.submit(restore).result()

        stream.send([json_page(n, text) for n, text in enumerate(texts(60, Random(5)))])
        index = connected_index(stream.loaded(), DEFAULT)
        run(stream, index, 60, on_step=restore_once)
        stored = {record.seq for _, record in index.scan()}
    assert len(prepared) > 3, "20 pages at a time, and some once more"
    assert stored == {verdict["seq"] for verdict in stream.verdicts() if verdict["verdict"] == "unique"}
    assert set(stream.answers().values()) == {1}


class Frozen(MemoryIndex):
    """Lets something happen before it is asked for a mark for the first time."""

    meanwhile = None

    def mark(self, partition):
        if happens := self.meanwhile:
            self.meanwhile = None
            happens()
        return super().mark(partition)


def test_a_worker_that_waits_for_its_index_stays_in_its_group(stream, index, caplog):
    """For longer than the group lets a member go without a poll: 1 s, three calls to Redis and a transaction."""
    away = Attesting(index.spec)
    away.away = 6  # with pauses of .1, .2, .4, .8, 1.6 and 3.2 s
    stream.send([json_page(0, "a page " * 30)])
    with caplog.at_level("INFO"):
        run(stream, away, 1, session_timeout="1s", redis_timeout="500ms", transaction_timeout="1s")
    assert caplog.text.count(f"partition {stream.input_topic}[0] is ours") == 1
    assert "partitions lost" not in caplog.text


def test_a_worker_that_waits_for_its_index_ends_when_it_is_told_to(stream, index):
    away = Attesting(index.spec)
    away.away = 1_000_000
    stream.send([json_page(0, "a page " * 30)])
    run(stream, away, 0, stop_at="prepared")
    assert not stream.verdicts()
    run(stream, index, 1)


def test_one_that_stood_still_before_it_checked_its_offset_accuses_nobody(stream, index):
    """Its group has put it out, and another worker has read on: the mark is above what the offset was."""
    frozen = Frozen(index.spec)
    stream.send([json_page(n, text) for n, text in enumerate(texts(40, Random(5)))])

    def read_on():
        with closing_admin(stream.bootstrap_servers) as admin:
            (member,) = admin.describe_groups([stream.name])[stream.name]["members"]
            admin.remove_group_members(stream.name, [MemberToRemove(member_id=member["member_id"])])
        run(stream, frozen, 40, name=f"{stream.name}-other")

    frozen.meanwhile = read_on
    run(stream, frozen, 40)
    assert set(stream.answers().values()) == {1}
    assert len(stream.answers()) == 40


def test_two_workers_of_one_transactional_id_end_with_a_clear_line(stream, index, monkeypatch):
    """They fence each other for ever otherwise, each as often as it commits."""
    monkeypatch.setattr("worker.stream.loop.LONGEST_PAUSE_SECONDS", 0.1)
    stream.send([json_page(0, "a page " * 50)])
    settings = stream.loaded()

    def fence(step):
        if step == "begun":
            Session(settings, stream.name).close()

    with pytest.raises(BrokerError, match="transactional id"):
        run(stream, index, 1, on_step=fence)


def test_why_there_is_nothing_to_do_is_told_ever_less_often(monkeypatch):
    told = []
    for level in ("info", "warning"):
        monkeypatch.setattr(f"worker.stream.status.log.{level}", lambda line, *values: told.append(line % values))
    idleness = Idleness(patience=10)
    for second in range(100):
        idleness.look(float(second), "because")
    idleness.look(100.0, "")
    assert told == [f"nothing to do for {n} s: because" for n in (10, 20, 40, 80)] + ["goes on after 100 s"]
    idleness.look(101.0, "again")
    idleness.look(102.0, "")
    assert len(told) == 5


def test_progress_is_told_now_and_then(monkeypatch):
    told = []
    monkeypatch.setattr("worker.stream.status.log.info", lambda line, *values: told.append(line % values))
    progress = Progress(since=0.0)
    progress.add(3, 2, 1)
    progress.tell(29.0, 5)
    assert told == []
    progress.tell(30.0, 5)
    assert told == ["6 pages in 30 s (0/s): 3 unique, 2 duplicate, 1 dead letters; 5 to go"]
    progress.tell(90.0, 5)
    assert len(told) == 1


def test_a_client_that_brings_nothing_though_there_is_something_is_replaced(stream, index, monkeypatch, caplog):
    """As it did of a partition that it had set aside."""
    monkeypatch.setattr("worker.stream.loop.STANDSTILL_SECONDS", 3.0)
    stream.send([json_page(n, text) for n, text in enumerate(texts(10, Random(3)))])
    opened = []

    class Forgetful(Session):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if not opened:
                monkeypatch.setattr(self._consumer._fetcher, "_fetchable_partitions", list)
            opened.append(self)

    monkeypatch.setattr("tests.kafka.test_loop.Session", Forgetful)
    run(stream, index, 10)
    assert f"no record comes of {stream.input_topic}[0], though there are some" in caplog.text
    assert len(opened) == 2


def test_a_partition_stands_still_when_none_of_its_records_comes_for_long_though_it_was_asked():
    standstill, one, other = Standstill(patience=10), Partition("t", 0), Partition("t", 1)
    assert standstill.look(0.0, {one: 5, other: 0}) == []
    standstill.came(4.0, [one])
    assert standstill.look(9.0, {one: 5, other: 0}) == []
    assert standstill.look(13.0, {one: 5, other: 7}) == []
    assert standstill.look(14.0, {one: 5, other: 0}) == [one]
    assert standstill.look(23.0, {one: 0, other: 0}) == []
    assert standstill.look(32.0, {one: 9, other: 9}) == []
    standstill.excuse()
    assert standstill.look(40.0, {one: 9, other: 9}) == []
    assert standstill.look(50.0, {one: 9, other: 9}) == [one, other]
    assert standstill.look(51.0, {other: 9}) == [other]
