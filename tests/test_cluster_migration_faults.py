"""A migration on a cluster among workers, removers and operators who die, or wake up late."""

import threading
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from simhash.errors import IndexBusy, IndexMigrated, IndexMismatch
from simhash.index import Partition, Position, Retention
from simhash.index.cluster import ClusterMigration, existing_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.migration import Progress
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
from tests.pages import banded, crowd, entry, summary
from tests.test_cluster import SEEDS
from tests.test_cluster_migration import Stalling, dying, migrated, opened, placed, tags, whole
from tests.test_migration import RULE, Killed, contents, to_design, unlike

HELD = 0x9E3779B97F4A7C15
"""A fingerprint whose prefixes all differ, as two tables may call the same prefix by one key."""


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    """Many steps for few pages."""
    monkeypatch.setattr("simhash.index.cluster.migration.AT_ONCE", 20)


def test_a_record_that_is_removed_while_it_is_carried_does_not_come_back(cluster_client, name):
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


def test_a_record_that_is_being_removed_is_not_carried(cluster_client, name):
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


def test_who_wakes_up_after_another_has_carried_the_migration_on_changes_nothing(cluster_client, name):
    """Whether that one is at it still, has ended it, or has given it up."""
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(50, Random(2)), {})
    kept = contents(old)

    def others(progress):
        if isinstance(progress, Progress) and progress.copied >= 40:
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


def test_a_short_page_whose_place_was_taken_leaves_its_number_to_retention(cluster_client, name):
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
def test_migrations_among_crashes_and_stalls_double_lose_and_flip_nothing(cluster_client, name, seed):
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
