"""Other tables for a live index on a cluster: no answer is lost, none is wrong, whenever the migration is ended."""

import threading
from contextlib import suppress
from random import Random
from unittest.mock import patch
from uuid import uuid4

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from simhash.errors import IndexMigrated, IndexMismatch, IndexUnreachable
from simhash.index import Partition, Retention
from simhash.index.cluster import ClusterMigration, existing_cluster_index, open_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.cluster.nodes import Nodes
from simhash.index.migration import Progress, Removal
from tests.backends import Backend
from tests.crowded_cluster import (
    Crashed,
    FaultyMigration,
    over,
)
from tests.pages import brute_force, summary
from tests.test_cluster import held_up
from tests.test_migration import RULE, InUse, Killed, contents, pages_of, to_design, unlike
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


def placed(client, name):
    """What the hash tags of its groups start with."""
    return existing_cluster_index(client, name).inside.placement.name


class Stalling(Nodes):
    """Nodes on which something happens before the first write."""

    def __init__(self, client, happens):
        super().__init__(client)
        self._happens = [happens]

    def write(self, *arguments):
        if self._happens:
            self._happens.pop()()
        return super().write(*arguments)


def dying(client, name):
    """The index as it is now, for a worker that dies before it writes."""

    def die():
        raise Crashed

    return over(Stalling(client, die), name)


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


def test_what_is_done_is_told_until_the_old_tables_are_gone(cluster_client, name, small_steps):
    opened(cluster_client, name).check_and_insert(pages_of(120, 5), {})
    told = []
    migrated(cluster_client, name, to_design("10"), told.append)
    copied = [each.copied for each in told if isinstance(each, Progress)]
    assert copied == sorted(copied)
    assert copied[-1] >= opened(cluster_client, name).documents() > 0
    removed = [each.keys for each in told if isinstance(each, Removal)]
    assert removed == sorted(removed)
    assert len(removed) > 1
    assert told[-1] == Removal(removed[-1])


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
    names = [f"{uuid4().hex}-{which}" for which in ("moved", "still")]

    def forget(index, found):
        return index.forget([record.seq for _, record in found])

    use = InUse(lambda name, **more: opened(cluster_client, name, retention=kept, **more), names, forget, seed)
    with patch("simhash.index.cluster.migration.AT_ONCE", 10):
        use.through(lambda wanted, go_on: migrated(cluster_client, names[0], wanted, go_on))
    assert contents(whole(cluster_client, names[0])) == contents(whole(cluster_client, names[1]))


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
