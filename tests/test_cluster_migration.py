"""Other tables for a live index on a cluster: no answer is lost, none is wrong, whenever the migration is ended."""

import threading
from contextlib import suppress
from random import Random

import pytest
from click.testing import CliRunner

from simhash.errors import IndexMigrated, IndexMismatch, IndexUnreachable
from simhash.index import Partition, Retention
from simhash.index.cluster import ClusterMigration, existing_cluster_index, open_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.cluster.migration import LEAST_FREE_SECONDS, Pace
from tests.backends import Backend
from tests.crowded_cluster import Crashed
from tests.pages import brute_force, summary
from tests.test_cluster import held_up
from tests.test_migration import RULE, Killed, contents, pages_of, to_design, unlike
from worker.cli.main import commands


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


@pytest.fixture
def small_steps(monkeypatch):
    """Many steps for few pages."""
    monkeypatch.setattr("simhash.index.cluster.migration.NEARLY", 20)
    monkeypatch.setattr("simhash.index.transfer.AT_ONCE", 20)


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
    assert tags(cluster_client, name) == {name, f"{name}~2"}
    with pytest.raises(IndexMigrated):
        old.check_and_insert(pages[120:], {})
    new = opened(cluster_client, name)
    new.present([old.receipt()])
    assert [summary(a.decision) for a in new.check_and_insert(pages[:120], {})] == answers
    new.check_and_insert(pages[120:], {})
    kept = contents(new)
    migrated(cluster_client, name, to_design("4", 5))
    assert contents(whole(cluster_client, name)) == kept
    assert tags(cluster_client, name) == {name, f"{name}~1"}
    assert migrated(cluster_client, name, to_design("4", 5)).bucket_bits == 5


def test_a_migration_that_is_ended_goes_on_from_any_step(cluster_client, name, small_steps):
    """And with it the claims of workers that have died: their pages keep their numbers, removals are done."""
    index, pages = opened(cluster_client, name), pages_of(120, 2)
    expected = brute_force(pages, RULE)
    held = {page.fingerprint for page in pages[100:]}
    unique_pages = [page for page, (verdict, _) in zip(pages, expected, strict=True) if verdict == "unique"]
    gone = next(seq for seq, page in enumerate(unique_pages, 1) if page.fingerprint not in held)
    for at in range(0, 100, 20):
        index.check_and_insert(pages[at : at + 20], {})
    with pytest.raises(Crashed):
        held_up(cluster_client, index, name, 0).check_and_insert(pages[100:], {})
    with pytest.raises(Crashed):
        held_up(cluster_client, index, name, 0).forget([gone])
    steps = []

    def killing(progress):
        steps.append(progress)
        if len(steps) % 30 == 0 or (progress.step == "switching" and progress not in steps[:-1]):
            raise Killed

    for _ in range(10):
        try:
            migrated(cluster_client, name, to_design("10"), killing)
            break
        except Killed:
            with pytest.raises(IndexMismatch, match="finish it as it was begun"):
                migrated(cluster_client, name, to_design("15"))
    assert "switching" in {progress.step for progress in steps}
    again = opened(cluster_client, name)
    assert [summary(a.decision) for a in again.check_and_insert(pages, {})] == expected
    unique = {number for verdict, number in expected if verdict == "unique"}
    assert {record.seq for _, record in whole(cluster_client, name).scan()} == unique - {gone}


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


@pytest.mark.parametrize(("still_seconds", "times"), [(60.0, [1]), (0.0, range(5, 100))])
def test_workers_that_add_more_than_is_copied_wait_for_it(
    cluster_client, name, small_steps, monkeypatch, still_seconds, times
):
    """A page is added for each that is copied while workers go on: it would never end if they did not wait."""
    monkeypatch.setattr("simhash.index.cluster.migration.NEARLY", 2)
    monkeypatch.setattr("simhash.index.cluster.migration.FREE_SECONDS", 0.0)
    monkeypatch.setattr("simhash.index.cluster.migration.STILL_SECONDS", still_seconds)
    random, told = Random(9), []
    old = opened(cluster_client, name)
    old.check_and_insert(unlike(25, random), {})

    def add(progress):
        assert len(told) < 300, "the migration does not end"
        told.append(progress)
        with suppress(IndexUnreachable):
            old.check_and_insert(unlike(1, random), {})

    migration = ClusterMigration(cluster_client, name, add)
    migration.run(to_design("10"))
    assert migration.still.times in times
    there = whole(cluster_client, name)
    assert [record.seq for _, record in contents(there)] == list(range(1, there.documents() + 1))
    assert there.documents() > 25


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


def test_a_missing_index_is_said_to_be_missing(cluster_client, name):
    with pytest.raises(IndexMismatch, match="there is no index"):
        migrated(cluster_client, name, to_design("10"))


def test_the_command_migrates_on_a_cluster_too(cluster, cluster_client, name):
    opened(cluster_client, name).check_and_insert(pages_of(30, 5), {})
    flags = ["--redis-url", f"redis+cluster://{cluster[0].address}", "--index-name", name]
    shown = CliRunner().invoke(commands, ["index", "migrate", "--design", "10", "--bucket-bits", "6", *flags])
    assert shown.stdout == f"index {name}: design 10, 6 bucket bits\n"
    assert shown.stderr.startswith("the index stood still 1 times, ")
    assert whole(cluster_client, name).spec.bucket_bits == 6
