"""Other tables for a live index on a cluster: no answer is lost, none is wrong, whenever the migration is ended."""

import threading
from contextlib import suppress
from dataclasses import replace
from random import Random
from unittest.mock import patch
from uuid import uuid4

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from simhash.errors import IndexBusy, IndexMigrated, IndexMismatch, IndexUnreachable
from simhash.index import Partition, Position, Retention
from simhash.index.cluster import ClusterMigration, existing_cluster_index, open_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.cluster.nodes import Nodes
from tests.backends import Backend
from tests.crowded_cluster import (
    FOR_EVER,
    Crashed,
    Crowd,
    FaultyMigration,
    Group,
    assert_apart,
    assert_guarantees,
    assert_named,
    assert_whole,
    forgetting,
    migrating,
    moving,
    over,
    partitioned,
)
from tests.pages import banded, brute_force, crowd, entry, summary
from tests.test_cluster import SEEDS, held_up
from tests.test_migration import RULE, Killed, contents, pages_of, to_design, unlike
from worker.cli.main import commands

HELD = 0x9E3779B97F4A7C15
"""A fingerprint whose prefixes all differ, as two tables may call the same prefix by one key."""


def opened(client, name, **more):
    return open_cluster_index(client, name, {}, RULE, 1000, **more)


def migrated(client, name, wanted, on_progress=lambda progress: None):
    return ClusterMigration(client, name, on_progress).run(wanted)


def whole(client, name):
    index = existing_cluster_index(client, name)
    found = check(index.inside, lambda _: None)
    assert (found.violations, found.held) == ([], [])
    assert found.records == index.documents()
    return index


def tags(client, name):
    """What the hash tags of all its keys start with."""
    return {key.decode()[1:].partition(":")[0] for key in client.scan_iter(f"{{{name}*", count=1000)}


def placed(client, name):
    """What the hash tags of its groups start with."""
    return existing_cluster_index(client, name).inside.placement.name


@pytest.fixture
def small_steps(monkeypatch):
    """Many steps for few pages."""
    monkeypatch.setattr("simhash.index.cluster.migration.AT_ONCE", 20)


def test_a_migrated_index_has_all_its_pages_in_other_tables_and_nothing_else(cluster_client, name):
    old = opened(cluster_client, name)
    pages = pages_of(200, 1)
    answers = [summary(a.decision) for a in old.check_and_insert(pages[:120], {})]
    old.forget([3, 7])
    kept, marks = contents(old), old.marks()
    spec = migrated(cluster_client, name, to_design("10"))
    assert (spec.relation.design.name, spec.bucket_bits) == ("10", 7)
    assert (contents(whole(cluster_client, name)), existing_cluster_index(cluster_client, name).marks()) == (
        kept,
        marks,
    )
    assert tags(cluster_client, name) == {name, old_tag := placed(cluster_client, name)}
    with pytest.raises(IndexMigrated):
        old.check_and_insert(pages[120:], {})
    new = opened(cluster_client, name)
    new.present([old.receipt()])
    assert [summary(a.decision) for a in new.check_and_insert(pages[:120], {})] == answers
    new.check_and_insert(pages[120:], {})
    kept = contents(new)
    migrated(cluster_client, name, to_design("4", 5))
    assert contents(whole(cluster_client, name)) == kept
    assert tags(cluster_client, name) == {name, placed(cluster_client, name)}
    assert placed(cluster_client, name) != old_tag
    assert migrated(cluster_client, name, to_design("4", 5)).bucket_bits == 5


class Mortal(Nodes):
    """Nodes whose user dies at his nth step: before it is done, or behind it."""

    def __init__(self, client, last, done):
        super().__init__(client)
        self._left, self._done = last, done

    def _step(self, action):
        self._left -= 1
        if self._left == 0 and not self._done:
            raise Killed
        found = action()
        if self._left == 0:
            raise Killed
        return found

    def _each(self, calls):
        return self._step(lambda: super(Mortal, self)._each(calls))

    def hash(self, key):
        return self._step(lambda: super(Mortal, self).hash(key))

    def remove(self, keys):
        return self._step(lambda: super(Mortal, self).remove(keys))

    def drop_field(self, key, field):
        return self._step(lambda: super(Mortal, self).drop_field(key, field))


@pytest.mark.parametrize("done", [False, True])
def test_a_migration_ended_anywhere_goes_on_and_workers_do_not_notice(cluster_client, monkeypatch, done):
    """Killed at each of its steps in turn, and carried on by another; the index is in use all the time, and claims of
    workers that died before it began and during it are left: their pages keep their numbers, removals are done."""
    monkeypatch.setattr("simhash.index.cluster.migration.AT_ONCE", 60)
    pages = pages_of(160, 4)
    expected = brute_force(pages, RULE)
    unique = {number for verdict, number in expected if verdict == "unique"}
    later = {page.fingerprint for page in pages[80:]}
    gone = next(
        number
        for page, (verdict, number) in zip(pages, expected, strict=True)
        if verdict == "unique" and page.fingerprint not in later
    )
    for last in range(2 - done, 1000, 9):
        name = f"ended-{done}-{last}"
        index = opened(cluster_client, name)
        index.check_and_insert(pages[:80], {})
        with pytest.raises(Crashed):
            held_up(cluster_client, index, name, 0).check_and_insert(pages[80:90], {})
        with pytest.raises(Crashed):
            held_up(cluster_client, index, name, 0).forget([gone])
        killed = True
        with suppress(Killed):
            FaultyMigration(Mortal(cluster_client, last, done), name).run(to_design("10"))
            killed = False
        present = over(Nodes(cluster_client), name)
        with suppress(IndexMigrated):
            index.check_and_insert(pages[90:110], {})
        present.check_and_insert(pages[90:110], {})
        with pytest.raises(Crashed):
            dying(cluster_client, name).check_and_insert(pages[110:120], {})
        if present.inside.nodes.hash(present.inside.claims.next):
            with pytest.raises(IndexMismatch, match="finish it as it was begun"):
                migrated(cluster_client, name, to_design("15"))
        migrated(cluster_client, name, to_design("10"))
        new = opened(cluster_client, name)
        assert new.spec.relation.design.name == "10"
        assert [summary(a.decision) for a in new.check_and_insert(pages, {})] == expected
        new.release([claim.id for claim in new.claims()])
        assert {record.seq for _, record in whole(cluster_client, name).scan()} == unique - {gone}
        assert tags(cluster_client, name) == {name, placed(cluster_client, name)}
        if not killed:
            break
    assert last > 40


@pytest.mark.parametrize("step", ["copying", "switching"])
def test_a_migration_that_is_given_up_leaves_the_index_as_it_was(cluster_client, name, small_steps, step):
    index, pages = opened(cluster_client, name), pages_of(200, 5)
    answers = [summary(a.decision) for a in index.check_and_insert(pages[:120], {})]
    migration = ClusterMigration(cluster_client, name, lambda progress: None)
    assert not migration.abandon()

    def kill(progress):
        if progress.step == step:
            raise Killed

    with pytest.raises(Killed):
        migrated(cluster_client, name, to_design("10"), kill)
    with pytest.raises(IndexMismatch, match=r"begun, to design 10 with 7 bucket bits for 1,000 pages: .* --abandon"):
        migrated(cluster_client, name, to_design("4", 6))
    assert migration.abandon()
    answers += [summary(a.decision) for a in index.check_and_insert(pages[120:], {})]
    assert answers == brute_force(pages, RULE)
    assert tags(cluster_client, name) == {name}
    migrated(cluster_client, name, to_design("4", 6))
    whole(cluster_client, name)


def test_workers_go_on_while_an_index_is_migrated(cluster, cluster_client, name, small_steps):
    """Stored, forgotten, replayed by one that opens the index again whenever it has another generation."""
    pages, kept = pages_of(400, 3), Retention(max_documents=60)
    opened(cluster_client, name, retention=kept).check_and_insert(pages[:100], {})
    wrong, done, partition = [], threading.Event(), Partition("pages", 0)

    def work():
        with Backend(None, cluster[0].url, True).connected() as own:
            index, at = opened(own.client, name, retention=kept), 100
            while at < len(pages):
                try:
                    first = [a.decision for a in index.check_and_insert(pages[at : at + 10], {partition: at})]
                    if first != [a.decision for a in index.check_and_insert(pages[at : at + 10], {partition: at})]:
                        wrong.append(at)
                    at += 10
                except (IndexMigrated, IndexUnreachable):
                    index = until_opened(own.client)
        done.set()

    def until_opened(client):
        while True:
            try:
                return opened(client, name, retention=kept)
            except IndexUnreachable:
                continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for design in ("10", "4", "10"):
            migrated(cluster_client, name, to_design(design))
    finally:
        thread.join()
    assert done.is_set()
    assert wrong == []
    index = whole(cluster_client, name)
    assert index.spec.relation.design.name == "10"
    assert index.documents() <= 62
    index.check_and_insert([], {partition: len(pages)})


def test_from_its_begin_on_every_call_writes_to_both(cluster_client, name, small_steps):
    """Also what was not carried yet is judged, stored and removed at once, where it is."""
    old, told = opened(cluster_client, name), []
    old.check_and_insert(unlike(100, Random(8)), {})
    added = unlike(30, Random(9))

    def stored(page):
        """Whether the next generation has all of a page, or nothing."""
        inside = old.inside
        next_one = inside.placement.next
        (record,) = inside.nodes.hashes([next_one.records_of(page.fingerprint).spot.key])
        members, bands = next_one.members(page.fingerprint, [page.verifier])
        there = {inside.nodes.is_member(member.spot.key, member.member) for member in members | bands}
        assert there == {next_one._layout.key_of(page.fingerprint) in record}
        return there == {True}

    def add(progress):
        told.append(progress)
        if len(told) > 1:
            return
        old.forget([91])
        old.check_and_insert(added, {})
        assert all(map(stored, added))
        assert old.forget([130]) == 1
        assert not stored(added[-1])
        assert check(old.inside, lambda _: None).violations == []

    migrated(cluster_client, name, to_design("10"), add)
    numbers = [record.seq for _, record in contents(whole(cluster_client, name))]
    assert numbers == [*range(1, 91), *range(92, 130)]
    assert len(told) > 3


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), kept=st.sampled_from([Retention(), Retention(max_documents=90), Retention(500)]))
def test_an_index_in_use_becomes_what_it_is_without_a_migration(cluster_client, seed, kept):
    """Pages of all kinds, replays, takedowns and retention between its steps; beside one that is not migrated."""
    random, clock, run = Random(seed), [1_000], uuid4().hex
    pages = iter(pages_of(700, seed))
    names = [f"{run}-moved", f"{run}-still"]
    moved, still = (opened(cluster_client, each, retention=kept, clock=lambda: clock[0]) for each in names)
    told = []

    def judge(count):
        some = [next(pages) for _ in range(count)]
        some += random.sample(some, count // 5)
        answers, expected = ([a.decision for a in index.check_and_insert(some, {})] for index in (moved, still))
        assert answers == expected

    def forget():
        seqs = [record.seq for _, record in contents(still)[: 5 * random.randrange(1, 4) : 5]]
        assert moved.forget(seqs) == still.forget(seqs)

    def go_on(progress):
        told.append(progress)
        if progress.step == "copying" and len(told) < 25:
            clock[0] += random.randrange(60)
            random.choice([lambda: judge(15), forget, lambda: None])()

    judge(120)
    with patch("simhash.index.cluster.migration.AT_ONCE", 10):
        migrated(cluster_client, names[0], to_design(random.choice(["10", "8", "15"]), random.choice([4, 7])), go_on)
    moved = opened(cluster_client, names[0], retention=kept, clock=lambda: clock[0])
    judge(50)
    assert contents(whole(cluster_client, names[0])) == contents(whole(cluster_client, names[1]))


class Stalling(Nodes):
    """Nodes on which something happens before the first write that meets a condition."""

    def __init__(self, client, happens, when=lambda operations: True):
        super().__init__(client)
        self._happens, self._when = [happens], when

    def write(self, placement, operations, *others):
        if self._happens and self._when(operations):
            self._happens.pop()()
        return super().write(placement, operations, *others)


def test_a_record_that_is_removed_while_it_is_carried_does_not_come_back(cluster_client, name, small_steps):
    """It was read, then it was removed, then it would be written to the next generation."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(30, Random(1)), {})
    removed = []
    stalling = Stalling(cluster_client, lambda: removed.append(old.forget([3, 7])))
    FaultyMigration(stalling, name).run(to_design("10"))
    assert removed == [2]
    assert [record.seq for _, record in contents(whole(cluster_client, name))] == [
        seq for seq in range(1, 31) if seq not in (3, 7)
    ]


def test_a_record_that_is_being_removed_is_not_carried(cluster_client, name, small_steps):
    """Its removal began before the stretch, so it bars nobody; it would be read before that, and written behind it."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(30, Random(1)), {})
    claimed, read = threading.Event(), threading.Event()

    def stand_still():
        claimed.set()
        assert read.wait(60)

    remover = threading.Thread(target=over(Stalling(cluster_client, stand_still), name).forget, args=([3],))
    remover.start()
    assert claimed.wait(60)

    def let_it_go_on():
        read.set()
        remover.join()

    FaultyMigration(Stalling(cluster_client, let_it_go_on), name).run(to_design("10"))
    assert [record.seq for _, record in contents(whole(cluster_client, name))] == [1, 2, *range(4, 31)]


def test_a_removal_that_the_switch_comes_between_is_brought_to_its_end(cluster_client, name):
    opened(cluster_client, name).check_and_insert(unlike(30, Random(1)), {})
    remover = over(Stalling(cluster_client, lambda: migrated(cluster_client, name, to_design("10"))), name)
    with pytest.raises(IndexMigrated):
        remover.forget([3])
    assert [record.seq for _, record in contents(whole(cluster_client, name))] == [1, 2, *range(4, 31)]


def test_who_wakes_up_after_another_has_carried_the_migration_on_changes_nothing(cluster_client, name, small_steps):
    """Whether that one is at it still, has ended it, or has given it up."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(50, Random(2)), {})
    kept = contents(old)

    def others(progress):
        if progress.copied >= 40:
            raise Killed

    def carry_on_and_remove():
        with pytest.raises(Killed):
            migrated(cluster_client, name, to_design("10"), others)
        old.forget([5])

    with pytest.raises(IndexMismatch, match="carried on by somebody else"):
        FaultyMigration(Stalling(cluster_client, carry_on_and_remove), name).run(to_design("10"))
    migrated(cluster_client, name, to_design("10"))
    whole(cluster_client, name)
    for ended in (
        lambda: ClusterMigration(cluster_client, name, lambda progress: None).abandon(),
        lambda: migrated(cluster_client, name, to_design("4")),
    ):
        with pytest.raises(IndexMismatch, match="by somebody else"):
            FaultyMigration(Stalling(cluster_client, ended), name).run(to_design("4"))
        assert contents(whole(cluster_client, name)) == [each for each in kept if each[1].seq != 5]
        assert tags(cluster_client, name) == {name, placed(cluster_client, name)}


def test_a_page_whose_worker_has_not_heard_of_it_is_in_the_next_generation_as_well(cluster_client, name):
    """It was numbered before the migration began; its worker writes it then, or only when the switch is over."""
    for ended in (False, True):
        index = f"{name}-{ended}"
        opened(cluster_client, index).check_and_insert(unlike(20, Random(3)), {})

        def happens(index=index, ended=ended):
            if ended:
                migrated(cluster_client, index, to_design("10"))
            else:
                with pytest.raises(Killed):
                    migrated(cluster_client, index, to_design("10"), kill)

        (page,) = unlike(1, Random(4))
        late = over(Stalling(cluster_client, happens), index)
        if ended:
            with pytest.raises(IndexMigrated):
                late.check_and_insert([page], {})
        else:
            assert summary(late.check_and_insert([page], {})[0].decision) == ("unique", 21)
            migrated(cluster_client, index, to_design("10"))
        assert summary(opened(cluster_client, index).check_and_insert([page], {})[0].decision) == ("unique", 21)
        assert whole(cluster_client, index).documents() == 21


def kill(progress):
    raise Killed


def test_a_page_that_is_held_at_the_switch_is_in_the_way_of_its_like_by_the_new_tables(cluster_client, name):
    """Both would be unique otherwise: the one is judged by the old generation, the other by the new one."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(20, Random(3)), {})

    def hold(progress):
        if progress.step == "switching":
            with pytest.raises(Crashed):
                dying(cluster_client, name).check_and_insert([entry(100, HELD, 0)], {})

    migrated(cluster_client, name, to_design("10"), hold)
    new = opened(cluster_client, name)
    (claim,) = new.claims()
    assert claim.state == "numbered"
    like = replace(entry(101, HELD ^ 2, 0), position=Position(Partition("other", 0), 0))
    with pytest.raises(IndexBusy):
        new.check_and_insert([like], {})
    assert summary(new.check_and_insert([entry(100, HELD, 0)], {})[0].decision) == ("unique", 21)
    assert summary(new.check_and_insert([like], {})[0].decision) == ("duplicate", 21)
    whole(cluster_client, name)


def test_a_page_that_was_numbered_before_the_begin_is_brought_to_its_end_before_the_switch(cluster_client, name):
    """Its claim is met by the old tables only."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(20, Random(3)), {})
    with pytest.raises(Crashed):
        dying(cluster_client, name).check_and_insert([entry(100, HELD, 0)], {})
    migrated(cluster_client, name, to_design("10"))
    new = opened(cluster_client, name)
    like = replace(entry(101, HELD ^ 2, 0), position=Position(Partition("other", 0), 0))
    assert summary(new.check_and_insert([like], {})[0].decision) == ("duplicate", 21)
    assert summary(new.check_and_insert([entry(100, HELD, 0)], {})[0].decision) == ("unique", 21)
    whole(cluster_client, name)


def test_a_short_page_whose_place_was_taken_leaves_its_number_to_retention(cluster_client, name, small_steps):
    """Its text came again after its age: of it there is the log's entry, and no record."""
    clock = [1_000]
    index = opened(cluster_client, name, retention=Retention(max_age_ms=100), clock=lambda: clock[0])
    first, again = entry(0, None, digest=f"text:{1:032x}"), entry(1, None, digest=f"text:{1:032x}")
    index.check_and_insert([first], {})
    clock[0] += 1_000
    with patch("simhash.index.cluster.index.EXPIRE_PER_PAGE", 0):
        index.check_and_insert([again], {})
    migrated(cluster_client, name, to_design("10"))
    new = opened(cluster_client, name, retention=Retention(max_age_ms=100), clock=lambda: clock[0])
    new.check_and_insert([entry(2, None, digest=f"text:{2:032x}")], {})
    assert [record.seq for _, record in contents(whole(cluster_client, name))] == [2, 3]
    clock[0] += 1_000
    new.check_and_insert(unlike(3, Random(5)), {})
    assert new.inside.claims.audit().first == 4


def test_a_short_page_whose_place_is_taken_while_it_is_carried_does_not_take_it_back(cluster_client, name):
    clock = [1_000]
    index = opened(cluster_client, name, retention=Retention(max_age_ms=100), clock=lambda: clock[0])
    first, again = entry(0, None, digest=f"text:{1:032x}"), entry(1, None, digest=f"text:{1:032x}")
    index.check_and_insert([first], {})

    def come_again():
        clock[0] += 1_000
        with patch("simhash.index.cluster.index.EXPIRE_PER_PAGE", 0):
            index.check_and_insert([again], {})

    FaultyMigration(Stalling(cluster_client, come_again), name).run(to_design("10"))
    there = existing_cluster_index(cluster_client, name)
    assert [record.seq for _, record in contents(there)] == [2]
    assert check(there.inside, lambda _: None).violations == []


@pytest.mark.parametrize("seed", SEEDS)
def test_migrations_among_crashes_and_stalls_double_lose_and_flip_nothing(cluster_client, name, seed, small_steps):
    """With removals, and two operators who migrate it, give it up and die over it; slots move."""
    random = Random(seed)
    index = opened(cluster_client, name, retention=Retention(max_documents=60) if seed % 2 else FOR_EVER)
    pages = banded(crowd(260, random, short_share=0.15), 2, random)
    group = Group(partitioned(pages, 5))
    run = Crowd(cluster_client, index, name, random, group, index._retention, share=0.03, migrations_wanted=4)
    migrations = migrating([to_design("10"), to_design("4"), to_design("8", 5)])
    others = [migrations, migrations, *([forgetting] if seed % 2 else [])]
    others.append(moving([cluster_client.keyslot(f"{{{name}:claim}}")]))
    run.run(3, *others)
    assert run.migrations >= 3
    assert group.wrong == []
    ClusterMigration(cluster_client, name, lambda progress: None).abandon()
    left = existing_cluster_index(cluster_client, name)
    left.release([claim.id for claim in left.claims() if claim.state == "removal"])
    if seed % 2:
        assert_named(group, RULE)
        entries = {page.url: page for page in pages}
        assert_apart([entries[record.url] for _, record in left.scan()], RULE)
    else:
        assert_guarantees(group, RULE)
    assert_whole(left)
    # Of a generation that one operator was about to begin when another swept it away this may be left, if he died then.
    kept = {name, placed(cluster_client, name)}
    keys = [key.decode() for key in cluster_client.scan_iter(f"{{{name}*", count=1000)]
    assert [key for key in keys if key[1:].partition(":")[0] not in kept and not key.endswith(":written")] == []


def dying(client, name):
    """The index as it is now, for a worker that dies before it writes."""

    def die():
        raise Crashed

    return over(Stalling(client, die), name)


def test_a_missing_index_is_said_to_be_missing(cluster_client, name):
    with pytest.raises(IndexMismatch, match="there is no index"):
        migrated(cluster_client, name, to_design("10"))


def test_the_command_migrates_on_a_cluster_too(cluster, cluster_client, name):
    opened(cluster_client, name).check_and_insert(pages_of(30, 5), {})
    flags = ["--redis-url", f"redis+cluster://{cluster[0].address}", "--index-name", name]
    shown = CliRunner().invoke(commands, ["index", "migrate", "--design", "10", "--bucket-bits", "6", *flags])
    assert shown.stdout == f"index {name}: design 10, 6 bucket bits\n"
    assert shown.stderr == ""
    assert whole(cluster_client, name).spec.bucket_bits == 6
