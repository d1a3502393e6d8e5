"""Other tables for a live index: no answer is lost, none is wrong, whenever the migration is ended."""

import itertools
import threading
from contextlib import suppress
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
import redis
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from simhash.errors import IndexMigrated, IndexMismatch, IndexUnreachable
from simhash.index import IndexSpec, Partition, Position, Retention
from simhash.index.redis.faults import translated
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.check import check
from simhash.index.redis.operators.migration import Migration, MigrationProgress, Removal
from simhash.index.redis.operators.takedowns import Found, take_down, under
from simhash.relation.tables import design
from tests.backends import losing
from tests.kafka.test_exactly_once import assert_each_answered_once, assert_guarantees
from tests.pages import banded, brute_force, crowd, entry, relation, summary
from tests.processes import until
from tests.stream import Stream, json_page, texts, working
from worker.cli.main import commands
from worker.cli.migrate import Teller, through_outages

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
    monkeypatch.setattr("simhash.index.redis.operators.walking.STRETCH", 20)
    monkeypatch.setattr("simhash.index.redis.operators.filling.AT_ONCE", 7)
    monkeypatch.setattr("simhash.index.redis.operators.migration.FEW", 15)
    monkeypatch.setattr("simhash.index.redis.operators.migration.PAUSE_SECONDS", 0)


@pytest.mark.parametrize("backend", ["primary"], indirect=True)
def test_a_migration_of_which_any_answer_is_lost_carries_everything_once(backend, monkeypatch):
    """And says that it was done, where the lost one is that of the last step."""
    monkeypatch.setattr("simhash.index.redis.operators.filling.AT_ONCE", 6)
    for answer in itertools.count(1):
        name = f"{backend.name}-{answer}"
        index = backend.open(name, RULE)
        index.check_and_insert(pages_of(60, 1), {})
        take_down(index.inside, [Found(f, record) for f, record in index.scan() if record.seq % 7 == 0])
        before = contents(index)
        with backend.of(name).connected() as there, losing(answer) as lost:
            there.migrate(name, to_design("6"))
        after = backend.existing(name)
        assert contents(after) == before
        assert check(after.inside, lambda findings: None).violations == []
        if not lost:
            break
        after.inside.client.flushall()  # else each migration looks for old tables among more keys
    assert answer > 50


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
    assert {key.decode().partition(":")[0] for key in client.scan_iter(f"{{{name}}}*", count=10_000)} == {
        f"{{{name}}}",
        f"{{{name}}}~2",
    }
    assert {key.decode().split(":")[1] for key in client.scan_iter(f"{{{name}}}:*", count=10_000)} <= {"meta", "j"}
    new = opened(client, name)
    answers += [summary(a.decision) for a in new.check_and_insert(pages[200:], {})]
    assert answers == brute_force(pages, RULE)
    before = contents(new)
    migrated(client, name, to_design("4", 5))
    assert contents(assert_whole(client, name)) == before
    assert {key.decode().partition(":")[0] for key in client.scan_iter(f"{{{name}}}*", count=10_000)} == {
        f"{{{name}}}",
        f"{{{name}}}~1",
    }


def test_an_index_can_have_as_many_tables_as_a_design(backend, name):
    pages = pages_of(12, 1)
    index = backend.open(name, RULE)
    answers = [summary(a.decision) for a in index.check_and_insert(pages[:4], {})]

    def judge(progress):
        if len(answers) == 4:
            answers.extend(summary(a.decision) for a in index.check_and_insert(pages[4:8], {}))

    Migration(backend.client, name, judge).run(to_design("34c2", 2))
    answers += [summary(a.decision) for a in backend.open(name, RULE).check_and_insert(pages[8:], {})]
    assert answers == brute_force(pages, RULE)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--design", "64c3"], 1, "design: '64c3' has 41,664 tables"),
        (["--documents", "9" * 20], 2, "is not in the range"),
        (["--design", "auto", "--k", "33"], 2, "is not in the range"),
    ],
)
def test_more_than_an_index_can_have_is_refused_at_once(redis_server, client, name, arguments, code, said):
    opened(client, name)
    flags = ("--redis-url", redis_server.url, "--index-name", name)
    done = CliRunner().invoke(commands, ["index", "migrate", *arguments, *flags])
    assert done.exit_code == code
    assert said in f"{done.output} {done.exception}"


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
    assert new.journalled({Position(Partition("pages", 0), 50): None})


class Dying:
    """A connection that is cut off at its nth command: before the server has it, or before its answer is read."""

    def __init__(self, client, last, answered):
        self._client, self._left, self._answered = client, last, answered
        self._execute = client.execute_command

    def __enter__(self):
        self._client.execute_command = self._counted
        return self

    def __exit__(self, *_):
        del self._client.execute_command

    def _counted(self, *command, **options):
        self._left -= 1
        if self._left == 0 and not self._answered:
            raise Killed
        answer = self._execute(*command, **options)
        if self._left == 0:
            raise Killed
        return answer


@pytest.mark.parametrize("answered", [False, True])
def test_a_migration_ended_anywhere_goes_on_and_workers_do_not_notice(
    redis_server, client, name, small_steps, answered
):
    """Killed at each of its commands in turn, and carried on by another; the index is in use all the time."""
    mine, pages = redis.Redis.from_url(redis_server.url), pages_of(140, 4)
    expected = brute_force(pages, RULE)
    for last in range(1, 1000):
        client.flushall()
        old = opened(client, name)
        answers = [summary(a.decision) for a in old.check_and_insert(pages[:80], {})]
        killed = True
        with Dying(mine, last, answered), suppress(Killed):
            migrated(mine, name, to_design("10"))
            killed = False
        assert_whole(client, name)
        with suppress(IndexMigrated):
            answers += [summary(a.decision) for a in old.check_and_insert(pages[80:110], {})]
        if client.exists(f"{{{name}}}~2:meta"):
            with pytest.raises(IndexMismatch, match="was begun"):
                migrated(client, name, to_design("15"))
        migrated(client, name, to_design("10"))
        assert assert_whole(client, name).spec.relation.design.name == "10"
        answers += [summary(a.decision) for a in opened(client, name).check_and_insert(pages[len(answers) :], {})]
        assert answers == expected
        if not killed:
            break
    assert last > 15


class Turns:
    """Threads that take turns at random: one command of one of them at a time."""

    def __init__(self, seed):
        self._random, self._turn = Random(seed), threading.Condition()
        self._waiting, self._next = {}, None

    def run(self, *jobs):
        """Each job is called with a connection's `execute_command`; what they returned, or what ended them."""
        threads = [threading.Thread(target=self._run, args=(n, job)) for n, job in enumerate(jobs)]
        self._waiting = dict.fromkeys(range(len(jobs)))
        self._next = 0
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return [self._waiting[n] for n in range(len(jobs))]

    def _run(self, n, job):
        try:
            result = job(lambda command: self._after_waiting(n, command))
        except Exception as error:
            result = error
        with self._turn:
            self._waiting[n] = result
            self._choose()

    def _after_waiting(self, n, command):
        with self._turn:
            assert self._turn.wait_for(lambda: self._next == n, 60)
            try:
                return command()
            finally:
                self._choose()

    def _choose(self):
        running = [n for n, result in self._waiting.items() if result is None]
        self._next = self._random.choice(running) if running else None
        self._turn.notify_all()


@pytest.mark.parametrize("seed", range(24))
def test_two_migrations_at_once_lose_nothing(redis_server, client, name, small_steps, seed):
    """Begun at once, or given up meanwhile: who was overtaken says so and changes nothing."""
    old, pages = opened(client, name), pages_of(150, 6)
    answers = [summary(a.decision) for a in old.check_and_insert(pages[:110], {})]
    before = [record.seq for _, record in contents(old)]

    def migrates(mine):
        return migrated(mine, name, to_design("10"))

    def gives_up(mine):
        return str(Migration(mine, name, lambda progress: None).abandon())

    def gives_up_and_begins(mine):
        return gives_up(mine) and migrates(mine)

    def of_its_own(act):
        def job(turn):
            mine = redis.Redis.from_url(redis_server.url)
            execute = mine.execute_command
            mine.execute_command = lambda *command, **options: turn(lambda: execute(*command, **options))
            return act(mine) or "done"

        return job

    others = [migrates, gives_up, gives_up_and_begins]
    if seed % 2:  # one that was killed is found by both
        mine = redis.Redis.from_url(redis_server.url)
        with Dying(mine, 10 + seed, True), suppress(Killed):
            migrates(mine)
    results = Turns(seed).run(of_its_own(migrates), of_its_own(others[seed // 2 % 3]))
    for result in results:
        if isinstance(result, Exception):
            assert isinstance(result, IndexMismatch), repr(result)
            assert "taken over by somebody else" in str(result)
    assert_whole(client, name)
    migrated(client, name, to_design("10"))
    assert [record.seq for _, record in contents(assert_whole(client, name))] == before
    assert not list(client.scan_iter(f"{{{name}}}:[tbrx]*:*", count=10_000))
    assert not list(client.scan_iter(f"{{{name}}}~2:meta"))
    answers += [summary(a.decision) for a in opened(client, name).check_and_insert(pages[110:], {})]
    assert answers == brute_force(pages, RULE)


def test_what_was_opened_before_a_migration_does_not_take_its_old_tables_for_empty(backend, name):
    index = backend.open(name, RULE)
    pages = pages_of(40, 6)
    index.check_and_insert(pages, {})
    stored = contents(index)
    found = [under(index.inside, f, r.digest, {r.url}) for f, r in stored]
    assert found == [[Found(f, r)] for f, r in stored]
    backend.migrate(name, to_design("10"))
    with pytest.raises(IndexMigrated):
        list(index.scan())
    for fingerprint, record in stored:
        with pytest.raises(IndexMigrated), translated():
            under(index.inside, fingerprint, record.digest, {record.url})
    with pytest.raises(IndexMigrated):
        index.neighbours(next(fingerprint for fingerprint, _ in stored if fingerprint is not None))


def test_tables_that_were_replaced_and_not_removed_are_noted_by_a_check(redis_server, client, name, small_steps):
    def killed(progress):
        if isinstance(progress, Removal):
            raise Killed

    def said(*words):
        done = CliRunner().invoke(commands, ["index", *words, "--redis-url", redis_server.url, "--index-name", name])
        assert done.exit_code == 0, done.output
        return done.output

    opened(client, name).check_and_insert(pages_of(80, 5), {})
    with patch("simhash.index.redis.operators.migration.KEYS_AT_ONCE", 10), pytest.raises(Killed):
        migrated(client, name, to_design("10"), killed)
    assert "keys are of tables that a migration has replaced: `simhash-dedup index migrate` with" in said("check")
    said("migrate", "--design", "10", "--bucket-bits", "7")
    assert "replaced" not in said("check")


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
    assert list(client.scan_iter(f"{{{name}}}~*", count=10_000)) == []
    migrated(client, name, to_design("4", 6))
    assert_whole(client, name)


def test_who_carries_a_migration_on_that_others_ended_is_told(client, name, small_steps):
    index, pages = opened(client, name), pages_of(300, 6)
    index.check_and_insert(pages, {})
    documents = index.documents()
    other = Migration(client, name, lambda progress: None)
    with pytest.raises(IndexMismatch, match="given up"):
        migrated(client, name, to_design("10"), lambda progress: other.abandon())
    assert_whole(client, name)
    with pytest.raises(IndexMismatch, match="given up"), patch.object(Migration, "_without_removed", given_up(other)):
        migrated(client, name, to_design("10"))
    with pytest.raises(IndexMismatch, match="ended"):
        migrated(client, name, to_design("10"), lambda progress: other.run(to_design("10")))
    assert assert_whole(client, name).spec.relation.design.name == "10"
    assert assert_whole(client, name).documents() == documents


def given_up(other):
    """Instead of a migration's last step of a pass: the same, and then somebody else gives it up."""
    before = Migration._without_removed

    def step(*arguments):
        state = before(*arguments)
        other.abandon()
        return state

    return step


def test_workers_that_write_all_the_time_lose_no_answer(redis_server, client, name):
    """One goes on through two migrations, opening the index again each time that it is told to."""
    pages, answers, failures, pauses = pages_of(1500, 5), [], [], []
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
            except IndexMigrated:
                index = opened(mine, name)
            except IndexUnreachable:
                pauses.append(len(answers))
            except Exception as error:
                failures.append(error)
                ready.set()
                raise

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    migrated(client, name, to_design("10"))
    migrated(client, name, to_design("8", 6))
    thread.join(120)
    assert not failures
    assert answers == brute_force(pages, RULE)
    assert assert_whole(client, name).spec.relation.design.name == "8"


def test_workers_that_store_faster_than_a_migration_carries_are_held_back(client, name, small_steps, monkeypatch):
    """Five times as fast, whenever they are let: without that it would never end."""
    monkeypatch.setattr("simhash.index.redis.operators.migration.PAUSE_SECONDS", 5)
    old, random, held = opened(client, name), Random(10), []
    old.check_and_insert(unlike(100, random), {})

    def store(progress):
        try:
            old.check_and_insert(unlike(100, random), {})
        except IndexUnreachable:
            held.append(progress.step)
        except IndexMigrated:
            return
        assert old.documents() < 3000

    migrated(client, name, to_design("10"), store)
    assert "copying" in held
    index = assert_whole(client, name)
    assert index.spec.relation.design.name == "10"
    assert [record.seq for _, record in contents(index)] == list(range(1, index.documents() + 1))


def test_an_index_that_counts_other_records_than_it_has_is_no_reason_to_go_on_for_ever(client, name):
    """Workers are not kept waiting for that, and the migration can be given up."""
    old = opened(client, name)
    old.check_and_insert(unlike(20, Random(8)), {})
    client.hincrby(f"{{{name}}}:meta", "documents", 1)
    with pytest.raises(IndexMismatch, match="does not have the 21 records that it counts"):
        migrated(client, name, to_design("10"))
    assert len(old.check_and_insert(unlike(1, Random(9)), {})) == 1
    assert Migration(client, name, lambda progress: None).abandon()


def test_what_is_stored_and_removed_meanwhile_is_carried_too(client, name, small_steps):
    """Behind what was copied already, and before it."""
    old = opened(client, name)
    old.check_and_insert(unlike(100, Random(8)), {})
    before, steps = contents(old), []

    def change(progress):
        if progress.step == "copying" and len(steps) < 3:
            take_down(old.inside, [Found(*before[(90, 3, 50)[len(steps)]])])
            old.check_and_insert(unlike(10, Random(len(steps))), {})
            take_down(old.inside, [Found(*contents(old)[-1])])
            steps.append(progress.copied)

    migrated(client, name, to_design("10"), change)
    expected = [n for n in range(1, 131) if n not in (91, 4, 51, 110, 120, 130)]
    assert [record.seq for _, record in contents(assert_whole(client, name))] == expected


def test_what_is_stored_behind_the_last_look_is_copied_before_the_index_stands_still(client, name, monkeypatch):
    monkeypatch.setattr("simhash.index.redis.operators.migration.FEW", 5)
    old = opened(client, name)
    old.check_and_insert(unlike(20, Random(8)), {})
    seen = []

    def store(progress):
        if str(progress) == "copying: number 20 of 20":
            old.check_and_insert(unlike(10, Random(9)), {})
        seen.append(str(progress))

    migrated(client, name, to_design("10"), store)
    assert "copying: number 30 of 30" in seen
    index = assert_whole(client, name)
    assert (index.spec.relation.design.name, index.documents()) == ("10", 30)


def test_what_is_removed_just_before_the_switch_is_carried_too(client, name, monkeypatch):
    """The switch sees it, and what there is is carried over once more."""
    old = opened(client, name)
    old.check_and_insert(unlike(20, Random(8)), {})
    gone, removed = Found(*contents(old)[6]), Migration._without_removed
    states = []

    def late(self, live, new, store):
        states.append(removed(self, live, new, store))
        if len(states) == 2:  # of all that was copied, and of what came behind that
            take_down(old.inside, [gone])
        return states[-1]

    monkeypatch.setattr(Migration, "_without_removed", late)
    migrated(client, name, to_design("10"))
    assert len(states) > 2
    expected = [n for n in range(1, 21) if n != gone.record.seq]
    assert [record.seq for _, record in contents(assert_whole(client, name))] == expected


def test_the_index_stands_still_for_the_last_records_and_no_longer_than_told(client, name, monkeypatch):
    """A worker waits meanwhile; a migration that dies then holds nobody up for good."""
    monkeypatch.setattr("simhash.index.redis.operators.migration.PAUSE_SECONDS", 2)
    old = opened(client, name)
    old.check_and_insert(unlike(20, Random(8)), {})

    def die(progress):
        if progress.step == "switching":
            with pytest.raises(IndexUnreachable, match="being moved to other tables"):
                old.check_and_insert(unlike(1, Random(9)), {})
            raise Killed

    with pytest.raises(Killed):
        migrated(client, name, to_design("10"), die)
    until(lambda: answered(old), "the pause is over")
    migrated(client, name, to_design("10"))
    assert assert_whole(client, name).documents() == 21


def answered(index):
    with suppress(IndexUnreachable):
        return index.check_and_insert(unlike(1, Random(9)), {})
    return None


class InUse:
    """Two indexes, one of which is migrated, that must answer alike: judged, replayed and taken down between the steps.

    Args:
        opened: an index by its name, as it is now, with this clock.
        names: of the one that is migrated, and of the other.
        forget: removes what was found from an index; says how many there were.
    """

    def __init__(self, opened, names, forget, seed):
        self._random, self._now, self._told = Random(seed), 1_000, 0
        self._opened = lambda name: opened(name, clock=lambda: self._now)
        self._name, self._forget = names[0], forget
        self._pages = iter(pages_of(700, seed))
        self._moved, self._still = map(self._opened, names)

    def through(self, migrate):
        """Use both before the migration, between its steps and behind it."""
        self._judge(120)
        migrate(to_design(self._random.choice(["10", "8", "15"]), self._random.choice([4, 7])), self._go_on)
        self._moved = self._opened(self._name)
        self._judge(50)

    def _judge(self, count):
        some = [next(self._pages) for _ in range(count)]
        some += self._random.sample(some, count // 5)
        answers, expected = ([a.decision for a in i.check_and_insert(some, {})] for i in (self._moved, self._still))
        assert answers == expected

    def _take_some(self):
        found = contents(self._still)[: 5 * self._random.randrange(1, 4) : 5]
        assert self._forget(self._moved, found) == self._forget(self._still, found)

    def _go_on(self, progress):
        self._told += 1
        if progress.step == "copying" and self._told < 25:
            self._now += self._random.randrange(60)
            self._random.choice([lambda: self._judge(15), self._take_some, lambda: None])()


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), kept=st.sampled_from([Retention(), Retention(max_documents=90), Retention(500)]))
def test_an_index_in_use_becomes_what_it_is_without_a_migration(redis_server, seed, kept):
    """Pages of all kinds, replays, takedowns and retention between its steps; beside one that is not migrated."""
    client, name = redis.Redis.from_url(redis_server.url), f"both-{seed}"
    client.flushall()

    def forget(index, found):
        return take_down(index.inside, [Found(*each) for each in found])

    use = InUse(lambda name, **more: opened(client, name, retention=kept, **more), (name, "still"), forget, seed)
    with patch("simhash.index.redis.operators.walking.STRETCH", 10):
        use.through(lambda wanted, go_on: migrated(client, name, wanted, go_on))
    assert contents(assert_whole(client, name)) == contents(assert_whole(client, "still"))


def unlike(count, random):
    """Pages each of which is new."""
    return [entry(random.getrandbits(40), random.getrandbits(64), random.getrandbits(64)) for _ in range(count)]


def test_what_is_done_is_told_until_the_old_tables_are_gone(client, name, small_steps):
    old = opened(client, name)
    old.check_and_insert(unlike(60, Random(1)), {})
    keys = [key for key in client.scan_iter(f"{{{name}}}:*", count=10_000) if key.split(b":")[1][:1] in b"tbrx"]
    told = []
    migrated(client, name, to_design("10"), told.append)
    copied = [each.copied for each in told if isinstance(each, MigrationProgress)]
    assert copied == sorted(copied)
    assert copied[-1] == 60
    assert isinstance(told[-1], Removal)
    assert told[-1].keys == len(keys)


def test_a_redis_that_is_away_for_a_moment_is_waited_for(client, name, small_steps):
    """Once something has been done; one that never answered is told at once."""
    old = opened(client, name)
    pages = pages_of(140, 9)
    old.check_and_insert(pages, {})
    before, away, answering = contents(old), [], client.execute_command
    teller = Teller()

    def execute(*command, **options):
        if teller.steps in away:
            away.remove(teller.steps)
            raise redis.ConnectionError("gone")
        return answering(*command, **options)

    client.execute_command = execute
    away[:] = [0]
    with pytest.raises(IndexUnreachable, match="gone"):
        through_outages(lambda: Migration(client, name, teller).run(to_design("10")), teller)
    away[:] = [1, 2, 2]
    through_outages(lambda: Migration(client, name, teller).run(to_design("10")), teller)
    assert away == []
    assert contents(assert_whole(client, name)) == before


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
    too_many = stream.command("index", "migrate", "--bucket-bits", "32", "--design", "4")
    assert (too_many.returncode, "design 4 can have 1 to 16" in too_many.stderr) == (2, True)
    too_far = stream.command("index", "migrate", "--design", "1c1")
    assert (too_far.returncode, "1c1 guarantees 0 bits, profile default of this index needs 3" in too_far.stderr) == (
        2,
        True,
    )
    nothing = stream.command("index", "migrate")
    assert (nothing.returncode, "say what to change" in nothing.stderr) == (2, True)
