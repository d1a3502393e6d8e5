"""Other tables for a live index: no answer is lost, none is wrong, whenever the migration is ended."""

import threading
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
import redis

from simhash.errors import IndexMigrated, IndexMismatch, IndexUnreachable
from simhash.index import IndexSpec, Partition, Position, Retention
from simhash.index.checking import check
from simhash.index.migration import LEAST_FREE_SECONDS, Migration, Pace
from simhash.index.opening import existing_index, open_index
from simhash.index.takedowns import Found, take_down
from simhash.tables import design
from tests.pages import banded, brute_force, crowd, entry, relation, summary
from tests.stream import Stream, json_page, texts, working
from tests.test_exactly_once import assert_each_answered_once, assert_guarantees

BANDS = 2
RULE = relation(design("4"), reach=3, bands=BANDS)
"""Within k all designs find the same pairs: so brute force knows the answers of both generations."""


def opened(client, name, **more):
    return open_index(client, name, {}, RULE, 1000, **more)


def pages_of(count, seed):
    random = Random(seed)
    return banded(crowd(count, random), BANDS, random)


def to_design(name, bucket_bits=7):
    """What a migration is to make of an index."""
    return lambda spec: IndexSpec(spec.profile, replace(spec.relation, design=design(name)), bucket_bits, spec.capacity)


def migrated(client, name, wanted, on_progress=lambda progress: None):
    return Migration(client, name, on_progress).run(wanted)


def contents(index):
    return sorted(index.scan(), key=lambda each: each[1].seq)


def assert_whole(client, name):
    index = existing_index(client, name)
    assert check(index.inside, lambda findings: None).violations == []
    return index


@pytest.fixture
def small_steps(monkeypatch):
    """Many steps for few pages."""
    monkeypatch.setattr("simhash.index.migration.NEARLY", 20)
    monkeypatch.setattr("simhash.index.walking.stretch.__defaults__", (40,))


class Killed(Exception):
    """What ends a migration in the middle."""


def test_a_migrated_index_has_all_its_pages_in_other_tables_and_nothing_else(client, name):
    old = opened(client, name)
    pages = pages_of(300, 1)
    answers = [summary(a.decision) for a in old.check_and_insert(pages[:200], {})]
    before, marks = contents(old), old.marks()
    spec = migrated(client, name, to_design("10"))
    assert (spec.relation.design.name, spec.bucket_bits) == ("10", 7)
    index = assert_whole(client, name)
    assert (contents(index), index.marks()) == (before, marks)
    assert {key.decode().partition(":")[0] for key in client.scan_iter(f"{name}*")} == {name, f"{name}~2"}
    assert {key.decode().split(":")[1] for key in client.scan_iter(f"{name}:*")} <= {"meta", "j"}
    new = opened(client, name)
    answers += [summary(a.decision) for a in new.check_and_insert(pages[200:], {})]
    assert answers == brute_force(pages, RULE)
    before = contents(new)
    migrated(client, name, to_design("4", 5))
    assert contents(assert_whole(client, name)) == before
    assert {key.decode().partition(":")[0] for key in client.scan_iter(f"{name}*")} == {name, f"{name}~1"}


def test_a_worker_of_the_old_generation_is_refused_and_not_believed(client, name):
    old = opened(client, name)
    pages = pages_of(60, 2)
    old.check_and_insert(pages[:50], {})
    migrated(client, name, to_design("10"))
    documents = existing_index(client, name).documents()
    with pytest.raises(IndexMigrated):
        old.check_and_insert(pages[50:], {})
    assert existing_index(client, name).documents() == documents
    # Back to what it was: still not the generation that it knew.
    migrated(client, name, to_design("4", old.spec.bucket_bits))
    with pytest.raises(IndexMigrated):
        old.check_and_insert(pages[50:], {})


def test_what_is_in_the_journal_keeps_its_answer(client, name):
    old = opened(client, name)
    pages = pages_of(80, 3)
    answers = [a.decision for a in old.check_and_insert(pages, {})]
    old.check_and_insert(pages[-1:], {Partition("pages", 0): 10})
    migrated(client, name, to_design("10"))
    new = opened(client, name)
    assert [a.decision for a in new.check_and_insert(pages[10:], {})] == answers[10:]
    assert new.journalled(Position(Partition("pages", 0), 50))


@pytest.mark.parametrize("calls", [1, 2, 3, 4, 5, 6])
def test_a_migration_ended_anywhere_goes_on_and_the_index_is_never_two(client, name, small_steps, calls):
    """Between the two runs workers go on, or wait where the index stands still."""
    old = opened(client, name)
    pages = pages_of(400, 4)
    answers = [summary(a.decision) for a in old.check_and_insert(pages[:200], {})]
    made = 0

    def kill(progress):
        nonlocal made
        made += 1
        if made == calls:
            raise Killed

    with pytest.raises(Killed):
        migrated(client, name, to_design("10"), kill)
    try:
        answers += [summary(a.decision) for a in old.check_and_insert(pages[200:300], {})]
    except IndexUnreachable:
        with pytest.raises(IndexUnreachable):
            opened(client, name)
    with pytest.raises(IndexMismatch, match="was begun"):
        migrated(client, name, to_design("15"))
    migrated(client, name, to_design("10"))
    assert_whole(client, name)
    new = opened(client, name)
    answers += [summary(a.decision) for a in new.check_and_insert(pages[len(answers) :], {})]
    assert answers == brute_force(pages, RULE)


@pytest.mark.parametrize("step", ["copying", "switching"])
def test_a_migration_that_is_given_up_leaves_the_index_as_it_was(client, name, small_steps, step):
    """Whether it was ended while it was copying, or while the index stood still."""
    old, pages = opened(client, name), pages_of(300, 5)
    answers = [summary(a.decision) for a in old.check_and_insert(pages[:200], {})]
    migration = Migration(client, name, lambda progress: None)
    assert not migration.abandon()

    def kill(progress):
        if progress.step == step:
            raise Killed

    with pytest.raises(Killed):
        migrated(client, name, to_design("10"), kill)
    with pytest.raises(IndexMismatch, match=r"begun, to design 10 with 7 bucket bits for 1,000 pages: .* --abandon"):
        migrated(client, name, to_design("4", 6))
    assert migration.abandon()
    answers += [summary(a.decision) for a in old.check_and_insert(pages[200:], {})]
    assert answers == brute_force(pages, RULE)
    assert_whole(client, name)
    assert list(client.scan_iter(f"{name}~*")) == []
    migrated(client, name, to_design("4", 6))
    assert_whole(client, name)


def test_who_carries_a_migration_on_that_others_gave_up_is_told(client, name, small_steps):
    index, pages = opened(client, name), pages_of(300, 6)
    index.check_and_insert(pages, {})
    other = Migration(client, name, lambda progress: None)
    with pytest.raises(IndexMismatch, match="given up"):
        migrated(client, name, to_design("10"), lambda progress: other.abandon())
    assert_whole(client, name)


def test_workers_that_write_all_the_time_lose_no_answer(redis_server, client, name):
    """One goes on through two migrations, opening the index again each time that it is told to."""
    pages, answers, failures = pages_of(1500, 5), [], []
    ready = threading.Event()

    def work():
        mine = redis.Redis.from_url(redis_server.url)
        index = opened(mine, name)
        while len(answers) < len(pages):
            try:
                some = index.check_and_insert(pages[len(answers) : len(answers) + 10], {})
                answers.extend(summary(a.decision) for a in some)
                if len(answers) >= 200:
                    ready.set()
            except IndexUnreachable:
                continue
            except IndexMigrated:
                index = reopened(mine)
            except Exception as error:
                failures.append(error)
                ready.set()
                raise

    def reopened(mine):
        while True:
            try:
                return opened(mine, name)
            except IndexUnreachable:
                continue

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    migrated(client, name, to_design("10"))
    migrated(client, name, to_design("8", 6))
    thread.join(120)
    assert not failures
    assert answers == brute_force(pages, RULE)
    assert assert_whole(client, name).spec.relation.design.name == "8"


@pytest.mark.parametrize(("still_seconds", "times"), [(60.0, [1]), (0.0, range(3, 20))])
def test_workers_that_add_more_than_is_copied_wait_for_it(client, name, small_steps, monkeypatch, still_seconds, times):
    """Fifty pages for forty copied: it would never end if they did not; and no more is copied at once than may be."""
    monkeypatch.setattr("simhash.index.migration.FREE_SECONDS", 0.0)
    monkeypatch.setattr("simhash.index.migration.STILL_SECONDS", still_seconds)
    random, told = Random(8), []
    old = opened(client, name)
    old.check_and_insert(unlike(120, random), {})
    frozen = 0

    def add(progress):
        nonlocal frozen
        assert len(told) < 200, "the migration does not end"
        told.append(progress)
        try:
            old.check_and_insert(unlike(50, random), {})
            frozen = 0
        except IndexUnreachable:
            frozen += 1
            assert (
                still_seconds or frozen <= 3
            )  # one stretch; when little is left behind it, the last one, and the switch

    migration = Migration(client, name, add)
    migration.run(to_design("10"))
    assert migration.still.times in times
    stored = [record.seq for _, record in contents(assert_whole(client, name))]
    assert stored == list(range(1, old.documents() + 1))


def test_workers_keep_half_of_the_time_while_less_is_left_each_time():
    """And are left ever less when not even then less is left, so that the migration ends."""
    pace = Pace(1.0)
    for left in (9000, 8000, 8000):
        pace.behind(left)
    assert pace.free_seconds == 0.5
    for left in range(7900, 7000, -100):
        pace.behind(left)
    assert pace.free_seconds == LEAST_FREE_SECONDS
    pace.behind(7100)
    pace.behind(7100)
    assert pace.free_seconds == LEAST_FREE_SECONDS / 4


def unlike(count, random):
    """Pages each of which is new."""
    return [entry(random.getrandbits(40), random.getrandbits(64), random.getrandbits(64)) for _ in range(count)]


def test_what_is_taken_down_while_it_is_copied_does_not_come_back(client, name, small_steps):
    old = opened(client, name)
    old.check_and_insert(pages_of(200, 6), {})
    found = [Found(*each) for each in contents(old)[5:60:10]]

    def take(progress):
        if progress.step == "copying" and found:
            with suppress(redis.ResponseError):  # it is frozen just now
                take_down(old.inside, found[:2])
                gone.update(each.record.seq for each in found[:2])
                del found[:2]

    gone, before = set(), contents(old)
    migrated(client, name, to_design("10"), take)
    assert len(gone) > 2
    assert contents(assert_whole(client, name)) == [each for each in before if each[1].seq not in gone]


def test_what_is_forgotten_while_it_is_copied_stays_forgotten(client, name, small_steps):
    clock = [1_000_000]
    kept = Retention(max_age_ms=1000)
    old = opened(client, name, retention=kept, clock=lambda: clock[0])
    old.check_and_insert(pages_of(150, 7), {})
    clock[0] += 2000
    made = []

    def go_on(progress):
        if not made:
            made.append(old.check_and_insert(crowd(40, Random(70), first=5000), {}))

    migrated(client, name, to_design("10"), go_on)
    index = open_index(client, name, {}, RULE, 1000, kept, lambda: clock[0])
    for n in range(8):
        index.check_and_insert(crowd(20, Random(71 + n), first=6000 + 20 * n), {})
    assert_whole(client, name)
    assert all(record.inserted_ms == clock[0] for _, record in index.scan())


def test_a_stream_goes_on_through_a_migration(kafka_server, redis_server, name):
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=2)
    stream.create()
    pages = texts(120, Random(4))
    stream.send([json_page(n, text) for n, text in enumerate(pages[:60])])
    worker = stream.worker()
    with working(worker):
        stream.wait_for(60)
        done = stream.command("index", "migrate", "--bucket-bits", "9")
        assert done.returncode == 0, done.stderr
        stream.send([json_page(n, text) for n, text in enumerate(pages[60:], 60)])
        stream.wait_for(120)
        code, written = worker.stop()
    assert code == 0
    assert "opening it again" in written
    assert_each_answered_once(stream, 120)
    assert_guarantees(stream.verdicts())
    nothing = stream.command("index", "migrate")
    assert (nothing.returncode, "say what to change" in nothing.stderr) == (2, True)
