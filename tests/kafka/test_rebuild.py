"""An index made afresh from its verdicts gives the answers of the one that was lost."""

import json
import re
import signal
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

import msgspec
import pytest
import redis
from kafka import KafkaProducer, TopicPartition

from simhash.errors import IndexMismatch, IndexUnreachable
from simhash.index import Duplicate, IndexSpec, Partition, Retention, Unique
from simhash.index.redis.layout import bucket_bits
from simhash.index.redis.opening import existing_index
from simhash.index.redis.operators import filling
from simhash.index.redis.operators.filling import Store
from simhash.index.rows import Takedown
from simhash.relation.tables import design
from tests.backends import KINDS, Backend
from tests.kafka.test_exactly_once import finish
from tests.pages import crowd, entry, relation
from tests.servers import running_cluster, running_redis
from tests.stream import Stream, closing_admin, json_page, texts, until, working
from worker.errors import InputError
from worker.index.stores import connect
from worker.rebuilding.build import Needs, Target, build
from worker.rebuilding.collected import CollectedVerdicts
from worker.rebuilding.order import Sorted
from worker.rebuilding.verdict_sources import CommittedVerdict, Settled
from worker.records.verdict import Match, SourceFields, Verdict, hexadecimal
from worker.settings import Settings

WHOLE = Needs()
RULE = relation(design("10"))
PROFILE = "some/1"
TAKEN_DOWN_MS = 1_000_000
"""Later than all verdicts here, where nothing else is said."""


def told(page, decision, written_ms=1_000):
    """The verdict on an entry, as a worker writes it."""
    unique, match = isinstance(decision, Unique), None
    if not unique:
        stored = decision.match
        match = Match(stored.url, stored.id, decision.distance, "near", False, stored.fetched_at, stored.seq)
    where = page.position
    return CommittedVerdict(
        Verdict(
            page.url,
            page.id,
            "unique" if unique else "duplicate",
            match,
            hexadecimal(page.fingerprint, 64),
            hexadecimal(page.verifier, 64),
            page.digest,
            page.features,
            PROFILE,
            decision.seq if unique else None,
            page.fetched_at,
            page.observation.hex(),
            SourceFields(where.partition.topic, where.partition.number, where.offset, None),
        ),
        written_ms + page.position.offset,
    )


@pytest.fixture
def original(backend, name):
    """An index, and the verdicts that were told of it."""
    index = backend.open(name, RULE)
    pages = crowd(400, Random(3))
    answers = index.check_and_insert(pages, {})
    return index, [told(page, answer.decision) for page, answer in zip(pages, answers, strict=True)]


def rebuilt(
    backend,
    name,
    answered,
    takedowns=(),
    retention=None,
    on_record=lambda seq, last: None,
    source="",
    needs=WHOLE,
):
    """The index called `name`, made from these."""
    spec = IndexSpec({}, RULE, bucket_bits(1000, RULE.design), 1000)
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, takedowns, unique)
        for _ in collected.add_all(answered):
            pass
        build(
            Target(partial(backend.store, name), spec, retention or Retention(), source, needs=needs),
            collected,
            on_record,
        )
    return backend.existing(name), collected


def taken_down(told, at=TAKEN_DOWN_MS):
    """What an operator published of a page with that verdict."""
    return Takedown(told.verdict.url, at, told.verdict.seq, told.verdict.observation[:16])


def contents(index):
    """All that it holds, but for the times of insertion."""
    found = [(f, replace(r, inserted_ms=0)) for f, r in index.scan()]
    return sorted(found, key=lambda each: each[1].seq)


def answers(index, pages):
    return [answer.decision for answer in index.check_and_insert(pages, {})]


def without_time(decision):
    return (
        replace(decision, match=replace(decision.match, inserted_ms=0)) if isinstance(decision, Duplicate) else decision
    )


def shuffled(answered, seed=1):
    return Random(seed).sample(answered, len(answered))


def test_a_rebuilt_index_has_the_same_contents_and_gives_the_same_answers(backend, name, original):
    index, answered = original
    again, _ = rebuilt(backend, f"{name}-2", shuffled(answered))
    assert contents(again) == contents(index)
    fresh = crowd(300, Random(8), first=1000)
    assert [*map(without_time, answers(again, fresh))] == [*map(without_time, answers(index, fresh))]


def test_times_of_insertion_are_those_of_the_verdicts(backend, name, original):
    _, answered = original
    again, _ = rebuilt(backend, f"{name}-2", answered)
    written = {each.verdict.seq: each.written_ms for each in answered if each.verdict.seq}
    assert {record.seq: record.inserted_ms for _, record in again.scan()} == written


def test_marks_are_behind_all_that_was_answered_and_the_journal_is_empty(backend, name, original):
    _, answered = original
    again, _ = rebuilt(backend, f"{name}-2", [*answered, Settled("pages", 0, 900), Settled("pages", 1, 4)])
    assert again.marks() == {Partition("pages", 0): 901, Partition("pages", 1): 5}
    assert again.journalled(dict.fromkeys(p.position for p in crowd(400, Random(3)))) == []


class Killed(Exception):
    """What ends a rebuild in the middle."""


def test_a_rebuild_that_was_killed_goes_on_where_it_was(backend, name, original, monkeypatch):
    index, answered = original
    monkeypatch.setattr("simhash.index.redis.operators.filling.AT_ONCE", 20)
    numbers = []

    def kill(seq, _):
        numbers.append(seq)
        if len(numbers) in (1, 3):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            rebuilt(backend, f"{name}-2", answered, on_record=kill)
    again, _ = rebuilt(backend, f"{name}-2", answered, on_record=kill)
    assert numbers == sorted(set(numbers))
    assert contents(again) == contents(index)


@pytest.mark.parametrize("other", [{"retention": Retention(max_documents=50)}, {"source": "other.jsonl"}])
def test_a_rebuild_is_not_gone_on_with_from_something_else(backend, name, original, other, monkeypatch):
    """Another one would leave out, or keep, pages before the place where the first was ended."""
    _, answered = original
    monkeypatch.setattr("simhash.index.redis.operators.filling.AT_ONCE", 20)

    def kill(seq, _):
        raise Killed

    with pytest.raises(Killed):
        rebuilt(backend, f"{name}-2", answered, on_record=kill, **other)
    with pytest.raises(IndexMismatch, match="of another import or rebuild that was ended"):
        rebuilt(backend, f"{name}-2", answered)


def test_a_half_built_index_is_refused_by_workers(backend, name, original):
    _, answered = original

    def kill(seq, _):
        raise Killed

    with pytest.raises(Killed):
        rebuilt(backend, f"{name}-2", answered, on_record=kill)
    with pytest.raises(IndexMismatch, match="is not complete"):
        backend.open(f"{name}-2", RULE)


def test_what_was_taken_down_stays_out_also_when_it_was_stored_before(backend, name, original):
    index, answered = original
    gone = [each for each in answered if each.verdict.seq][3:20:4]

    def kill(seq, _):
        raise Killed

    with pytest.raises(Killed):
        rebuilt(backend, f"{name}-2", answered, on_record=kill)
    again, collected = rebuilt(backend, f"{name}-2", answered, [*map(taken_down, gone)])
    assert len(collected.taken_down) == len(gone)
    seqs = {each.verdict.seq for each in gone}
    assert contents(again) == [each for each in contents(index) if each[1].seq not in seqs]
    assert answers(again, crowd(50, Random(9), first=2000, short_share=1))


def test_what_was_taken_down_and_is_told_unique_again_is_stored(backend, name):
    """A rewind, or the same file once more: the page has a later number."""
    first, again = (told(page, Unique(1)) for page in crowd(2, Random(5), short_share=0))
    later = CommittedVerdict(structs_replaced(first.verdict, seq=7), TAKEN_DOWN_MS + 1)
    takedowns = [taken_down(first), taken_down(first, at=5)]
    index, collected = rebuilt(
        backend,
        name,
        [first, CommittedVerdict(structs_replaced(again.verdict, seq=2), 5), later],
        takedowns,
        needs=None,
    )
    assert [record.seq for _, record in contents(index)] == [2, 7]
    assert [row.seq for row in collected.taken_down] == [1]


def test_what_stands_under_a_new_number_can_be_taken_down(backend, name):
    """Also by who goes on with a rebuild that stored it."""
    pages = [told(page, Unique(1), written_ms) for written_ms, page in enumerate(crowd(3, Random(5), short_share=0))]
    index, _ = rebuilt(backend, name, pages)
    assert [record.seq for _, record in contents(index)] == [1, 2, 3]
    again, collected = rebuilt(backend, f"{name}-2", pages, [taken_down(pages[1])])
    assert [record.seq for _, record in contents(again)] == [1, 3]
    assert [row.seq for row in collected.taken_down] == [2]


def test_retention_is_honoured(backend, name, original):
    index, answered = original
    whole = contents(index)
    again, _ = rebuilt(backend, f"{name}-2", answered, retention=Retention(max_documents=50))
    assert contents(again) == whole[-50:]
    assert answers(again, crowd(1, Random(77), first=5000))[0].seq == whole[-1][1].seq + 1
    none_left, _ = rebuilt(backend, f"{name}-3", answered, retention=Retention(max_age_ms=1000))
    assert contents(none_left) == []
    assert answers(none_left, crowd(1, Random(77), first=5000))[0].seq == whole[-1][1].seq + 1


def test_pages_told_unique_again_are_stored_once_and_doubled_numbers_lose_no_page(backend, name, original):
    """An announced rewind tells the same again; a Redis that had lost its end gave numbers a second time."""
    index, answered = original
    unique = [each for each in answered if each.verdict.seq]
    last = unique[-1].verdict.seq
    other = crowd(3, Random(70), first=7000, short_share=0)
    doubled = [
        told(page, Unique(seq), written_ms=900_000) for page, seq in zip(other, (last - 1, last - 1, last), strict=True)
    ]
    again, collected = rebuilt(backend, f"{name}-2", [*doubled, *answered, *shuffled(unique)])
    assert collected.counts.renumbered == 3
    assert contents(again)[: len(unique)] == contents(index)
    assert [record.url for _, record in contents(again)[len(unique) :]] == [page.url for page in other]


def of_topic(topic, numbers, first):
    pages = crowd(len(numbers), Random(first), first=first, short_share=0)
    answered = [told(page, Unique(seq)) for page, seq in zip(pages, numbers, strict=True)]
    return [
        each._replace(verdict=structs_replaced(each.verdict, source=structs_replaced(each.verdict.source, topic=topic)))
        for each in answered
    ]


def test_the_verdicts_of_two_indexes_are_not_made_one(backend, name):
    """They write to one topic by mistake; what pages of both are like would be found by either."""
    both = [*of_topic("news", (1, 2, 3, 5), 100), *of_topic("shops", (4, 5), 200)]
    with pytest.raises(InputError, match=r"pages of news and shops have been given the same numbers \(1 of them\)"):
        rebuilt(backend, name, both)
    assert rebuilt(backend, name, both, needs=None)[0].documents() == 6


def test_one_index_that_has_read_two_topics_is_made_again(backend, name):
    """The second after the first, and the first once more; and a Redis that had lost its end."""
    assert rebuilt(backend, name, [*of_topic("old", (1, 2, 4), 100), *of_topic("new", (3, 5), 200)])[0].documents() == 5
    lost = [*of_topic("old", (1, 2), 100), *of_topic("new", (3, 4), 200), *of_topic("new", (4, 5), 300)]
    assert rebuilt(backend, f"{name}-2", lost)[0].documents() == 6


def test_a_short_page_whose_text_came_again_after_its_age_has_the_later_number(backend, name, monkeypatch):
    """A digest leads to one record, the latest; what stood there before waits for retention, as in the index itself."""
    monkeypatch.setattr("simhash.index.redis.operators.filling.AT_ONCE", 3)
    digests = [0, 1, 0, 0, 1, 2]
    pages = [entry(n, None, digest=f"text:{digest:032x}") for n, digest in enumerate(digests)]
    again, _ = rebuilt(backend, name, [told(page, Unique(seq)) for seq, page in enumerate(pages, 1)])
    assert again.documents() == 6
    assert backend.operations(again).check(lambda _: None).violations == []
    asked = [entry(n + 100, None, digest=pages[n].digest) for n in (0, 1, 5)]
    assert [answer.match.seq for answer in answers(again, asked)] == [4, 5, 6]


def test_verdicts_of_another_profile_are_left_out(backend, name, original):
    _, answered = original
    others = [
        CommittedVerdict(structs_replaced(each.verdict, profile="other/2"), each.written_ms) for each in answered[:100]
    ]
    again, collected = rebuilt(backend, f"{name}-2", [*others, *answered[100:]], needs=None)
    assert collected.counts.other_profile == 100
    assert again.documents() == sum(1 for each in answered[100:] if each.verdict.seq)


def structs_replaced(verdict, **changes):
    return msgspec.structs.replace(verdict, **changes)


@pytest.fixture(params=KINDS)
def flushable(request, name, tmp_path):
    """A server of its own, or a cluster: its primaries, and how the index of this test is opened there."""
    if request.param == "primary":
        with running_redis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
            yield [server], Backend(client, server.url, name)
        return
    with running_cluster(tmp_path) as nodes:
        url = "redis+cluster://" + ",".join(node.address for node in nodes)
        yield nodes, Backend(connect(Settings(redis_url=url, index_name=name)), url, name)


def test_a_flushed_index_is_noticed_rebuilt_and_worked_on(kafka_server, name, flushable):
    servers, backend = flushable
    stream = Stream(name, kafka_server.bootstrap_servers, backend.url, partitions=3)
    stream.create()
    pages = texts(150, Random(4))
    stream.send([*[json_page(n, text) for n, text in enumerate(pages[:90])], (b"x", b"no page")])
    worker = stream.worker()
    with working(worker):
        stream.wait_for(91)
        assert worker.stop()[0] == 0
    lost = backend.existing(name)
    before, marks = contents(lost), lost.marks()
    for server in servers:
        redis.Redis.from_url(server.url).flushall()
    stopped = stream.worker()
    with working(stopped):
        code, written = stopped.wait()
    assert (code, "simhash-dedup rebuild" in written) == (5, True)
    backend.client.flushall()
    done = stream.command("rebuild")
    assert done.returncode == 0, done.stderr
    assert "read 90 verdicts and 1 dead letters" in done.stdout
    found = backend.existing(name)
    assert contents(found) == before
    assert all(found.marks()[partition] >= mark for partition, mark in marks.items())
    assert backend.operations(found).check(lambda _: None).violations == []
    refused = stream.command("rebuild")
    assert (refused.returncode, "is not empty" in refused.stderr) == (5, True)
    stream.send([json_page(n, text) for n, text in enumerate(pages[90:], 100)])
    finish(stream, 151)


def test_files_of_verdicts_are_enough(redis_server, client, name, tmp_path):
    pages = tmp_path / "pages.jsonl"
    rows = [{"url": f"http://a/{n}", "text": text} for n, text in enumerate(texts(40, Random(6)))]
    pages.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stream = Stream(name, "127.0.0.1:1", redis_server.url)
    verdicts = tmp_path / "verdicts.jsonl"
    judged = stream.command("file", str(pages), "--out", str(verdicts), "--redis-url", redis_server.url)
    assert judged.returncode == 0, judged.stderr
    done = stream.command("rebuild", "--from", str(verdicts), "--index-name", f"{name}-2")
    assert done.returncode == 0, done.stderr
    assert contents(existing_index(client, f"{name}-2")) == contents(existing_index(client, name))
    lines = verdicts.read_text().splitlines(keepends=True)
    verdicts.write_text("".join(line for line in lines if json.loads(line)["seq"] not in (3, 4, 5)))
    refused = stream.command("rebuild", "--from", str(verdicts), "--index-name", f"{name}-4")
    assert refused.returncode == 3
    assert "numbers are in no verdict, the first 3 to 5: verdicts were deleted" in refused.stderr
    told_so = stream.command("rebuild", "--from", str(verdicts), "--index-name", f"{name}-4", "--partial")
    assert (told_so.returncode, "stored" in told_so.stdout) == (0, True), told_so.stderr
    verdicts.write_text("{}\n")
    broken = stream.command("rebuild", "--from", str(verdicts), "--index-name", f"{name}-3")
    assert (broken.returncode, "line 1 is no verdict" in broken.stderr) == (3, True)


def test_the_same_command_goes_on_with_a_rebuild_that_was_ended(say, redis_server, client, name, tmp_path, monkeypatch):
    """With design = auto it takes the half-built index's own spec, which must not look like another one."""
    pages, verdicts = tmp_path / "pages.jsonl", tmp_path / "verdicts.jsonl"
    rows = [{"url": f"http://a/{n}", "text": text} for n, text in enumerate(texts(40, Random(6)))]
    pages.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert say("file", pages, "--out", verdicts, "--redis-url", redis_server.url, "--index-name", name)[0] == 0
    rebuild = ("rebuild", "--from", verdicts, "--redis-url", redis_server.url, "--index-name", f"{name}-2")
    store, times = Store.store, count(1)

    def store_once(self, steps):
        if next(times) > 1:
            raise IndexUnreachable("Redis is away")
        store(self, steps)

    with monkeypatch.context() as patch:
        patch.setattr(filling, "AT_ONCE", 5)
        patch.setattr(Store, "store", store_once)
        assert say(*rebuild)[0] == 7
    code, _, said = say(*rebuild)
    assert code == 0, said
    assert contents(existing_index(client, f"{name}-2")) == contents(existing_index(client, name))


def test_topics_from_which_something_was_deleted_are_not_taken_for_all(kafka_server, redis_server, name):
    """Also before: topics that would lose what a rebuild needs are told of by `topics` and by each worker."""
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    stream.create()
    stream.send([json_page(n, text) for n, text in enumerate(texts(20, Random(9)))])
    worker = stream.worker()
    with working(worker):
        stream.wait_for(20)
        assert f"topic {stream.verdict_topic}: retention.ms is " in worker.stop()[1]
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(stream.verdict_topic, 0): 3})
    again = ("rebuild", "--index-name", f"{name}-2")
    refused = stream.command(*again)
    assert (refused.returncode, "numbers are in no verdict, the first 1 to " in refused.stderr) == (3, True)
    assert "retention" not in stream.command("topics", "--dry-run", "--max-age", "2d").stdout
    assert "the index remembers for ever" in stream.command("topics", "--dry-run").stdout
    assert stream.command(*again, "--partial").returncode == 0
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers)
    producer.send(stream.verdict_topic, b"of somebody else")
    producer.close()
    refused = stream.command("rebuild", "--index-name", f"{name}-3")
    assert refused.returncode == 3
    assert re.search(rf"{stream.verdict_topic}\[0\] offset \d+ is no verdict: .* \(--partial goes on", refused.stderr)
    done = stream.command("rebuild", "--index-name", f"{name}-3", "--partial")
    assert (done.returncode, "left out: 1 records that are neither" in done.stdout) == (0, True), done.stderr
    with redis.Redis.from_url(redis_server.url) as client:
        assert contents(existing_index(client, f"{name}-3")) == contents(existing_index(client, f"{name}-2"))


def test_of_the_numbers_that_only_duplicates_name_the_last_ones_count(monkeypatch):
    monkeypatch.setattr("worker.rebuilding.collected.UNDER_WAY", 10)

    def named(seq):
        verdict = told(entry(100 + seq, seq), Unique(seq)).verdict
        match = Match(f"http://a/{seq}", None, 0, "near", False, None, seq)
        return CommittedVerdict(msgspec.structs.replace(verdict, verdict="duplicate", seq=None, match=match), 1_000)

    unique = [told(entry(n, n), Unique(n)) for n in range(1, 51) if n not in (3, 45, 49)]
    with Sorted() as rows:
        collected = CollectedVerdicts(PROFILE, [], rows)
        for _ in collected.add_all([named(3), named(44), *unique, named(3), named(45), named(52), named(49)]):
            assert len(collected._named) + len(collected._unique_of_late) <= 2 * (2 * 10 + 1)
        assert list(collected.only_named()) == [45, 49, 52]
        collected.archived = 45
        assert list(collected.only_named()) == [49, 52]
        for each in collected.only_named().values():
            collected.add_unique(each, each.verdict.match.seq)
        assert (list(collected.only_named()), collected.last_seq) == ([], 52)


@pytest.mark.parametrize("batch", [1, 2])
def test_numbers_of_a_worker_that_was_killed_with_a_batch_under_way_are_no_lost_verdicts(
    kafka_server, redis_server, name, batch
):
    """Two crawls judge by one index. What one was at has numbers that no verdict has, before the other's or between."""
    outputs = {"verdict_topic": f"{name}.verdicts", "dead_letter_topic": f"{name}.dlq"}

    def crawl(own, index):
        shared = {"index_name": index} | outputs
        return Stream(f"{name}{own}", kafka_server.bootstrap_servers, redis_server.url, settings=shared)

    both = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    both.create()
    pages = texts(60, Random(11))
    for own, at in (("a", 0), ("b", 30)):
        crawl(own, name).create()
        crawl(own, name).send([json_page(n, pages[n]) for n in range(at, at + 30)])
    killed = crawl("a", name).worker(stop_at=f"judged:{batch}")
    with working(killed):
        assert killed.wait()[0] == -signal.SIGKILL
    other = crawl("b", name).worker()
    with working(other):
        until(lambda: len(both.committed()) == 30 + 16 * (batch - 1), "the other crawl's verdicts")
        assert other.stop()[0] == 0
    numbers = {json.loads(row.value)["seq"] for row in both.committed()}
    assert set(range(1, max(filter(None, numbers)))) - numbers
    done = crawl("b", f"{name}-2").command("rebuild")
    assert done.returncode == 0, done.stderr
    again = crawl("a", f"{name}-2").worker()
    with working(again):
        until(lambda: len(both.committed()) == 60, "verdicts of the pages that come again")
        assert again.stop()[0] == 0
    done = crawl("b", f"{name}-3").command("rebuild")
    assert done.returncode == 0, done.stderr
    client = redis.Redis.from_url(redis_server.url)
    assert contents(existing_index(client, f"{name}-3")) == contents(existing_index(client, f"{name}-2"))


def test_a_page_that_only_a_duplicate_names_keeps_its_number(kafka_server, name, tmp_path):
    """Its worker was killed with it under way, and Redis has lost it: what is left of it is its record."""
    with running_redis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        settings = {"session_timeout": "10s"}
        stream = Stream(name, kafka_server.bootstrap_servers, server.url, 2, settings=settings)
        stream.create()
        pages = texts(40, Random(12))
        stream.send([json_page(n, text) for n, text in enumerate(pages)])
        survivor = stream.worker()
        with working(survivor):
            stream.wait_for(40)
            killed = stream.worker(stop_at="judged:1")
            with working(killed):
                killed.says("] is ours")
                theirs = int(f"{stream.input_topic}[1] is ours" in killed.written())
                survivor.says(f"partitions lost: {stream.input_topic}[{theirs}]")
                news = [" ".join(f"new{n}x{word}" for word in range(90)) for n in range(3)]
                with KafkaProducer(bootstrap_servers=stream.bootstrap_servers, linger_ms=60_000) as together:
                    for key, value in (json_page(40 + n, news[n]) for n in range(3)):
                        together.send(stream.input_topic, key=key, value=value, partition=theirs)
                assert killed.wait()[0] == -signal.SIGKILL
            stream.send([json_page(50, news[1]), json_page(51, news[2] + " and a word more")], partition=1 - theirs)
            stream.wait_for(42)
            assert survivor.stop()[0] == 0
        named = {v["match"]["seq"] for v in stream.verdicts() if v["id"] in ("50", "51")}
        client.flushall()
        done = stream.command("rebuild")
        assert "2 pages without a verdict are named by duplicates: 2 were found" in done.stdout, done.stderr
        finish(stream, 45)
        assert {v["seq"] for v in stream.verdicts() if v["id"] in ("41", "42")} == named
        stream.check()
