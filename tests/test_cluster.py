"""The claim protocol on three real primaries: workers that crash, stall and meet, keys that move, pages forgotten.

CLUSTER_SEEDS=40 runs the random ones with that many seeds."""

import os
from dataclasses import replace
from random import Random

import pytest
import redis

from simhash.errors import IndexBusy, IndexMisconfigured, IndexMismatch, IndexUnreachable
from simhash.index import Duplicate, Partition, Retention, Unique
from simhash.index.cluster import (
    ClusterIndex,
    existing_cluster_index,
    open_cluster_index,
    translated_on_cluster,
)
from simhash.index.cluster.groups import GROUPS, SLOTS, group_tags
from simhash.index.cluster.nodes import Nodes
from simhash.index.memory import MemoryIndex
from simhash.index.opening import open_index
from simhash.tables import design
from tests.crowded_cluster import (
    Crashed,
    Crowd,
    Group,
    assert_apart,
    assert_guarantees,
    assert_named,
    assert_whole,
    forgetting,
    moving,
    partitioned,
)
from tests.pages import PAGES, banded, brute_force, crowd, entry, relation, summary
from tests.test_index import Clock
from worker.settings import load
from worker.stores import connect_cluster

OTHER = Partition("pages", 1)
FOR_EVER = Retention()

SEEDS = range(int(os.environ.get("CLUSTER_SEEDS", "4")))


def crowded(client, name, seed, retention=FOR_EVER, count=120):
    random = Random(seed)
    rule = relation(design("6"), reach=12, bands=2)
    pages = banded(crowd(count, random, short_share=0.15), 2, random)
    index = open_cluster_index(client, name, {}, rule, 1000, retention)
    return Crowd(client, index, name, random, Group(partitioned(pages, 5)), retention)


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_and_stalls_double_lose_and_flip_nothing(cluster_client, name, seed):
    run = crowded(cluster_client, name, seed)
    run.run(3)
    assert run.group.wrong == []
    assert run.index.claims() == []
    assert_guarantees(run.group, run.index.spec.relation)
    assert_whole(run.index)


@pytest.mark.parametrize("seed", SEEDS)
def test_forgetting_among_crashes_leaves_nothing_behind(cluster_client, name, seed):
    """By count and by an operator; with pages of one fingerprint, of which one is forgotten while another comes."""
    run = crowded(cluster_client, name, seed, Retention(max_documents=20))
    run.run(3, forgetting)
    run.index.release([claim.id for claim in run.index.claims() if claim.state == "removal"])
    assert run.group.wrong == []
    assert run.index.claims() == []
    assert_named(run.group, run.index.spec.relation)
    assert_whole(run.index)
    entries = {page.url: page for pages in run.group.pages.values() for page in pages}
    assert_apart([entries[record.url] for _, record in run.index.scan()], run.index.spec.relation)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_slots_that_move_meanwhile_change_nothing(cluster_client, name, seed):
    run = crowded(cluster_client, name, seed, count=80)
    tags = [f"{name}:claim", *group_tags(name)[::16]]
    run.run(3, moving([cluster_client.keyslot(f"{{{tag}}}") for tag in tags]))
    assert run.group.wrong == []
    assert run.index.claims() == []
    assert_guarantees(run.group, run.index.spec.relation)
    assert_whole(run.index)


@pytest.mark.parametrize("name_of_design", ["4", "14", "1c1"])
@pytest.mark.parametrize("step", [1, 7, 300])
def test_a_cluster_agrees_with_brute_force(cluster_client, name, name_of_design, step):
    """As every backend does, on a selection of designs, in batches of every kind."""
    rule = relation(design(name_of_design), bands=1)
    pages = banded(crowd(40 if step == 1 else 300, Random(step)), 1, Random(1))
    index = open_cluster_index(cluster_client, name, {}, rule, 1_000_000)
    answers = [a for at in range(0, len(pages), step) for a in index.check_and_insert(pages[at : at + step], {})]
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_agrees_with_memory_under_retention_replays_and_moving_marks(cluster_client, name, seed):
    random, clock = Random(seed), Clock()
    bands = random.choice([0, 2])
    rule = relation(design(random.choice(["4", "10", "2-probed"])), random.choice([3, 6, 12]), bands=bands)
    kept = Retention(random.choice([None, 500]), random.choice([None, 40]))
    ours = open_cluster_index(cluster_client, name, {}, rule, random.choice([50, 10**6]), kept, clock)
    model = MemoryIndex(ours.spec, kept, clock)
    pages = banded(crowd(180, random), bands, random)
    committed = 0
    for at in range(0, len(pages), 30):
        clock.now += random.choice([0, 50, 200])
        again = random.randrange(committed, at + 1)
        batch, marks = pages[again : at + 30], {PAGES: committed}
        batch += random.sample(batch, random.choice([0, 3]))
        assert [a.decision for a in ours.check_and_insert(batch, marks)] == [
            a.decision for a in model.check_and_insert(batch, marks)
        ]
        assert ours.documents() == model.documents()
        committed = random.choice([committed, again])
    assert sorted(map(repr, ours.scan())) == sorted(map(repr, model.scan()))
    assert_whole(ours)


@pytest.mark.parametrize(("name_of_design", "pages"), [("6", 94), ("10", 76), ("8c2", 41), ("2-probed", 20)])
def test_a_call_to_the_claim_slot_has_fewer_pages_when_each_has_more_keys(cluster_client, name, name_of_design, pages):
    index = open_cluster_index(cluster_client, name, {}, relation(design(name_of_design)), 1000)
    called = []
    claim = index.inside.claims.claim
    index.inside.claims.claim = lambda entries, *others: called.append(len(entries)) or claim(entries, *others)
    assert len(index.check_and_insert(crowd(100, Random(1)), {})) == 100
    assert called[0] == pages
    assert sum(called) >= 100


def held_up(client, index, name, calls):
    """A second worker's index whose n-th round of calls to the groups never comes: it dies holding its claims."""

    class Dying(Nodes):
        left = calls

        def write(self, *arguments):
            self.left -= 1
            if self.left < 0:
                raise Crashed
            return super().write(*arguments)

    return ClusterIndex(Dying(client), name, index.spec, index.generation)


def test_a_page_like_one_that_a_dead_worker_holds_waits_until_that_is_read_again(cluster_client, name):
    index = open_cluster_index(cluster_client, name, {}, relation(design("4")), 1000)
    with pytest.raises(Crashed):
        held_up(cluster_client, index, name, 0).check_and_insert([entry(0, 7)], {})
    like, unlike = entry(0, 5, partition=OTHER), entry(1, 0xFFF << 50, partition=OTHER)
    like = replace(like, observation=b"another delivery")
    with pytest.raises(IndexBusy):
        index.check_and_insert([like, unlike], {})
    assert index.journalled(unlike.position)
    assert [a.decision for a in index.check_and_insert([entry(0, 7)], {})] == [Unique(1)]
    decisions = [a.decision for a in index.check_and_insert([like, unlike], {})]
    assert isinstance(decisions[0], Duplicate)
    assert decisions[1] == Unique(2)


def test_who_reads_a_partition_ends_what_its_last_worker_left_there(cluster_client, name):
    """Even when the page in its way lies behind one that it has to judge first."""
    index = open_cluster_index(cluster_client, name, {}, relation(design("4")), 1000)
    with pytest.raises(Crashed):
        held_up(cluster_client, index, name, 0).check_and_insert([entry(0, 7)], {})
    like = replace(entry(0, 5, partition=OTHER), observation=b"another delivery")
    (answer,) = index.check_and_insert([like], {PAGES: 0})
    assert isinstance(answer.decision, Duplicate)
    assert [a.decision for a in index.check_and_insert([entry(0, 7)], {})] == [Unique(1)]


def insert_and_forget(index, page):
    index.check_and_insert([page], {})
    index.forget([1])


@pytest.mark.parametrize("calls", [0, 1])
def test_an_operator_releases_a_claim(cluster_client, name, calls):
    """A numbered page is unique for good, and a removal is done."""
    index = open_cluster_index(cluster_client, name, {}, relation(design("4")), 1000)
    dying = held_up(cluster_client, index, name, calls)
    with pytest.raises(Crashed):
        insert_and_forget(dying, entry(0, 7))
    (claim,) = index.claims()
    assert claim.state == ("removal" if calls else "numbered")
    assert index.release([claim.id]) == 1
    assert index.claims() == []
    assert index.documents() == 1 - calls
    assert [a.decision for a in index.check_and_insert([entry(0, 7)], {})] == [Unique(1)]
    assert_whole(index)


def test_forgotten_records_are_gone(cluster_client, name):
    index = open_cluster_index(cluster_client, name, {}, relation(design("4")), 1000)
    far = (1 << 64) - 1
    index.check_and_insert([entry(0, 77, 0), entry(1, 77, far), entry(2, None), entry(3, 0xFFF << 40)], {})
    assert index.forget([1, 3, 99]) == 2
    assert [record.seq for _, record in sorted(index.scan(), key=lambda row: row[1].seq)] == [2, 4]
    assert_whole(index)


def test_a_cluster_index_is_found_again_as_it_was(cluster_client, name):
    made = open_cluster_index(cluster_client, name, {"name": "p"}, relation(design("16"), reach=5), 5000)
    made.check_and_insert(crowd(50, Random(0)), {PAGES: 0})
    again = existing_cluster_index(cluster_client, name)
    assert again.spec == made.spec
    assert again.documents() == made.documents()
    assert again.marks() == {PAGES: 0}
    again.ping()
    with pytest.raises(IndexMismatch, match="reach: index 5, worker 6"):
        open_cluster_index(cluster_client, name, {"name": "p"}, relation(design("16"), reach=6), 5000)
    with pytest.raises(IndexMismatch, match="no index 'other'"):
        existing_cluster_index(cluster_client, "other")


def test_each_backend_refuses_the_others_server(cluster, redis_server, name):
    rule = relation(design("4"))
    with redis.Redis.from_url(cluster[0].url) as client, pytest.raises(IndexMisconfigured, match=r"redis\+cluster://"):
        open_index(client, name, {}, rule, 1000)
    alone = load({"redis_url": redis_server.url.replace("redis://", "redis+cluster://")})
    with pytest.raises(IndexMisconfigured, match="is no cluster: name it by a redis://"):
        connect_cluster(alone)


def test_a_primary_that_would_evict_is_refused(cluster, cluster_client, name):
    with redis.Redis.from_url(cluster[1].url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(IndexMisconfigured, match="allkeys-lru"):
            open_cluster_index(cluster_client, name, {}, relation(design("4")), 1000)
        client.config_set("maxmemory-policy", "noeviction")


def test_a_cluster_that_does_not_answer_is_said_to(tmp_path):
    settings = load({"redis_url": "redis+cluster://:secret@127.0.0.1:1,127.0.0.1:2/0"})
    with pytest.raises(IndexUnreachable):
        connect_cluster(settings)


def test_a_cluster_that_refuses_the_login_is_said_to(cluster):
    settings = load({"redis_url": f"redis+cluster://nobody:sesame@{cluster[0].address}"})
    with pytest.raises(IndexMisconfigured, match="Redis refuses the login: ") as caught:
        connect_cluster(settings)
    assert "sesame" not in str(caught.value)


def test_groups_lie_evenly_over_the_slots():
    slots = sorted(redis.crc.key_slot(f"{{{tag}}}".encode()) for tag in group_tags("dedup"))
    assert [slot * GROUPS // SLOTS for slot in slots] == list(range(GROUPS))


def test_a_cluster_that_is_down_is_worth_waiting_for():
    with pytest.raises(IndexUnreachable, match="cannot be used now"), translated_on_cluster():
        raise redis.exceptions.ClusterDownError("The cluster is down")
