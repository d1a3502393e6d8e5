"""Pages on a cluster that meet more others than one call may read: read in parts, judged by the same relation."""

from random import Random

import pytest

from simhash.index.cluster import ClusterIndex, nodes, open_cluster_index
from simhash.index.cluster.nodes import Nodes
from simhash.index.cluster.statistics import statistics
from simhash.tables import design
from tests.pages import banded, brute_force, crowd, entry, relation, summary
from tests.test_crowds import alike

BOUND = 7
"""So many members a call gives in these tests."""


class Watched(Nodes):
    """Calls of which the largest is remembered: in members of buckets, in records."""

    def __init__(self, client):
        super().__init__(client)
        self.members = self.records = 0

    def _each(self, calls):
        found = super()._each(calls)
        for call, answer in zip(calls, found, strict=True):
            if call[0] == self._sha(nodes.GROUP) and isinstance(answer, list):
                self.members = max(self.members, sum(len(each) for each in answer if isinstance(each, list)))
                self.records = max(self.records, sum(isinstance(each, bytes) for each in answer))
        return found


@pytest.fixture
def small_calls(monkeypatch):
    """A call gives few members and few records; meeting four pages is meeting a crowd."""
    bounded = nodes.GROUP.replace("MOST_MEMBERS = 1000", f"MOST_MEMBERS = {BOUND}")
    assert bounded != nodes.GROUP
    monkeypatch.setattr("simhash.index.cluster.nodes.GROUP", bounded)
    monkeypatch.setattr("simhash.index.cluster.reading.RECORDS_AT_ONCE", 10)
    monkeypatch.setattr("simhash.index.cluster.crowds.CROWD", 3)


def watched(client, name, rule, capacity):
    index = open_cluster_index(client, name, {}, rule, capacity)
    return ClusterIndex(Watched(client), name, index.spec, index.generation)


@pytest.mark.usefixtures("small_calls")
@pytest.mark.parametrize("name_of_design", ["4", "2-probed"])
@pytest.mark.parametrize("bands", [0, 2])
def test_a_crowd_on_a_cluster_is_judged_as_brute_force_does(cluster_client, name, name_of_design, bands):
    rule = relation(design(name_of_design), 12, bands=bands)
    pages = banded(crowd(200, Random(bands)), bands, Random(7))
    index = watched(cluster_client, name, rule, 10)
    answers = [a for at in range(0, 200, 25) for a in index.check_and_insert(pages[at : at + 25], {})]
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)
    assert statistics(index.inside, 1, Random(1)).cuts > 0


@pytest.mark.usefixtures("small_calls")
def test_no_call_gives_more_than_its_bound_and_nothing_of_a_crowd_is_lost(cluster_client, name):
    index = watched(cluster_client, name, relation(design("4")), 10_000)
    pages = alike(120, Random(6))
    pages += [entry(200 + n, pages[99].fingerprint ^ 1 << n, Random(n).getrandbits(64)) for n in range(40)]
    for at in range(0, 160, 20):
        index.check_and_insert(pages[at : at + 20], {})
    assert index.documents() == 160, "pages that lie near each other have other texts"
    before = statistics(index.inside, 1, Random(1))
    seen = index.inside.nodes
    seen.members = seen.records = 0
    near = entry(1000, pages[99].fingerprint ^ 0b111, pages[99].verifier)
    (answer,) = index.check_and_insert([near], {})
    assert summary(answer.decision) == ("duplicate", 100)
    assert answer.candidates >= 120
    found = index.neighbours(near.fingerprint)
    assert 100 in {each.record.seq for each in found}
    assert BOUND < seen.members <= BOUND + 25  # each bucket that is left out, or was cut, has a mark of it
    assert 0 < seen.records <= 10
    after = statistics(index.inside, 1, Random(1))
    assert after.crowds == before.crowds + 1
    assert after.cuts >= before.cuts + 120 // BOUND
    assert after.most_candidates == answer.candidates


def test_what_pages_meet_is_counted_as_on_one_primary(cluster_client, name):
    """The most of all workers; a worker that comes anew takes nothing back."""
    rule = relation(design("4"))
    pages = alike(30, Random(8))
    index = open_cluster_index(cluster_client, name, {}, rule, 10_000)
    index.check_and_insert(pages, {})
    another = open_cluster_index(cluster_client, name, {}, rule, 10_000)
    most = [answer.candidates for answer in another.check_and_insert(alike(1, Random(9), 100), {})]
    another.check_and_insert([entry(200, 0xFFFF_FFFF_FFFF_FFFF, 1)], {})
    third = open_cluster_index(cluster_client, name, {}, rule, 10_000)
    third.check_and_insert([entry(201, 0xFFFF_FFFF_FFFF_FFFE, 1 << 60)], {})
    found = statistics(index.inside, 1, Random(1))
    assert found.most_candidates == max(most) >= 30
    assert (found.crowds, found.cuts) == (0, 0)
