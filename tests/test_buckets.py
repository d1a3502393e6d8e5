"""Buckets: members of equal size in strings, which become sorted sets when they outgrow them."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simhash.index import Retention
from simhash.index.buckets import OUTGROWN, members_in, times_in
from simhash.index.memory import MemoryIndex
from simhash.index.opening import open_index
from simhash.index.primary import PrimaryOperations
from simhash.index.surroundings import Reading
from simhash.tables import design
from tests.pages import banded, crowd, entry, relation


def of_size(size):
    """Members, many of them made of few different bytes: they are found in each other's midst."""
    byte = st.sampled_from([0, 255]) | st.integers(0, 255)
    return st.lists(byte, min_size=size, max_size=size).map(bytes)


@given(st.lists(of_size(3), min_size=1, max_size=9), of_size(3))
def test_members_come_back_from_a_string_and_are_counted(members, other):
    value = b"".join(members)
    assert members_in(value, 3) == members
    assert times_in(value, other) == members.count(other)


@pytest.mark.parametrize("value", [b"", b"abcd"])
def test_what_is_no_bucket_is_refused(value):
    with pytest.raises(ValueError, match="no bucket"):
        members_in(value, 3)


@pytest.fixture
def short_strings(monkeypatch):
    """Strings hold few members: what takes hundreds takes a handful."""
    monkeypatch.setattr("simhash.index.layout.MOST_BYTES", 40)


@pytest.mark.usefixtures("short_strings")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.sampled_from(["4", "10", "2-probed", "6"]), st.sampled_from([1, 40, 10**6]))
def test_buckets_that_outgrow_their_strings_lose_nothing(client, seed, name_of_design, capacity):
    """Against the index in memory, while retention empties what was filled."""
    random, name = Random(seed), f"outgrown-{seed}-{name_of_design}-{capacity}"
    if left := client.keys(f"{name}:*"):
        client.delete(*left)
    rule = relation(design(name_of_design), 6, bands=2)
    kept = Retention(max_documents=random.choice([5, 60, 1000]))
    ours = open_index(client, name, {}, rule, capacity, kept, lambda: 0)
    model = MemoryIndex(ours.spec, kept, lambda: 0)
    pages = banded([*crowd(60, random), *(entry(100 + n, random.getrandbits(9), 0) for n in range(30))], 2, random)
    for at in range(0, len(pages), 30):
        batch = pages[at : at + 30]
        assert [a.decision for a in ours.check_and_insert(batch, {})] == [
            a.decision for a in model.check_and_insert(batch, {})
        ]
    assert PrimaryOperations(ours).check(lambda _: None).violations == []
    stored = {f for f, _ in ours.scan() if f is not None}
    for fingerprint in random.sample(sorted(stored), min(5, len(stored))):
        near = {f for f in stored if (f ^ fingerprint).bit_count() <= 6 and rule.design.shares_prefix(f, fingerprint)}
        assert set(Reading(ours.inside).near(fingerprint)) == near


@pytest.mark.usefixtures("short_strings")
def test_a_bucket_that_outgrew_its_string_goes_with_its_last_member(client, name):
    index = open_index(client, name, {}, relation(design("4")), 10**6, Retention(max_documents=30))
    random = Random(1)
    index.check_and_insert([entry(n, n, random.getrandbits(64)) for n in range(30)], {})
    outgrown = client.keys(f"{name}:t:*")
    fields = [bytes.fromhex(key.decode().removeprefix(f"{name}:t:")) for key in outgrown]
    assert client.hmget(f"{name}:t", fields) == [OUTGROWN] * 3
    index.check_and_insert([entry(100 + n, random.getrandbits(64), random.getrandbits(64)) for n in range(60)], {})
    assert not client.exists(*outgrown)
    assert client.hmget(f"{name}:t", fields) == [None] * 3
