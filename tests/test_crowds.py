"""Pages that meet more others than one call of the script may compare: judged alone, by the same relation."""

from random import Random

import pytest

from simhash.index import Retention, Unique
from simhash.index.opening import existing_index, open_index
from simhash.index.surroundings import Reading
from simhash.tables import design
from tests.pages import banded, brute_force, crowd, entry, relation, summary


@pytest.fixture
def small_crowds(monkeypatch):
    """Three stored pages are a crowd."""
    monkeypatch.setattr("simhash.index.redis.CROWD", 2)


@pytest.mark.usefixtures("small_crowds")
@pytest.mark.parametrize("name_of_design", ["4", "2-probed"])
@pytest.mark.parametrize(("bands", "verifier_reach"), [(0, 14), (3, 14), (0, None)])
def test_a_crowd_is_judged_as_brute_force_does(client, name, name_of_design, bands, verifier_reach):
    rule = relation(design(name_of_design), 12, verifier_reach, bands)
    pages = banded(crowd(150, Random(bands)), bands, Random(7))
    index = open_index(client, name, {}, rule, 40)
    answers = index.check_and_insert(pages, {})
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)
    assert int(client.hget(f"{name}:meta", "crowds")) > 0


@pytest.mark.usefixtures("small_crowds")
def test_the_same_delivery_of_a_page_in_a_crowd_is_unique_again(client, name):
    pages = alike(20, Random(1))
    index = open_index(client, name, {}, relation(design("4")), 10)
    first = index.check_and_insert(pages, {})
    client.delete(*client.keys(f"{name}:j:*"))
    again = index.check_and_insert(pages, {})
    assert [each.decision for each in again] == [each.decision for each in first]


def alike(count, random, first=0):
    """Pages under one prefix that do not match each other: what a template makes."""
    return [entry(first + n, random.getrandbits(40), random.getrandbits(64)) for n in range(count)]


def after(monkeypatch, name, action):
    """Do something once, behind what `Reading` does under this name."""
    actions = [action]
    original = getattr(Reading, name)

    def reading(self, page):
        found = original(self, page)
        found = list(found) if name == "near" else found
        if actions:
            actions.pop()()
        return found

    monkeypatch.setattr(Reading, name, reading)


IN_ALL_BLOCKS = 0x1_0003_0003_0001
"""Bits in all four blocks of design 4: who differs by them shares no prefix."""


@pytest.mark.usefixtures("small_crowds")
@pytest.mark.parametrize("others", [0, 400])
@pytest.mark.parametrize("during", ["near", "surroundings"])
@pytest.mark.parametrize(
    ("spread", "band", "found"),
    [(0, 8, True), (0b11, 8, True), (0b101_0011, 8, True), (IN_ALL_BLOCKS, 9, True), (IN_ALL_BLOCKS, 8, False)],
)
def test_a_match_that_is_stored_meanwhile_is_found(client, name, monkeypatch, spread, band, found, during, others):
    """By another worker, while a crowd is read or behind that; `others` come with it."""
    rule = relation(design("4"), 12, 14, 1)
    index, other = open_index(client, name, {}, rule, 10), existing_index(client, name)
    index.check_and_insert(alike(10, Random(2)), {})
    page, elder = entry(500, 5, 7 << 32 | 9), entry(501, 5 ^ spread, 7 << 32 | band)
    more = [entry(600 + n, Random(n).getrandbits(64), Random(n).getrandbits(96)) for n in range(others)]
    after(monkeypatch, during, lambda: other.check_and_insert([elder, *more], {}))
    (answer,) = index.check_and_insert([page], {})
    assert summary(answer.decision) == (("duplicate", 11) if found else ("unique", 12 + others))


@pytest.mark.usefixtures("small_crowds")
@pytest.mark.parametrize("named", [100, 1])
def test_a_match_that_is_forgotten_meanwhile_is_none(client, name, monkeypatch, named):
    """The oldest match goes; the next one, also there when the crowd was read, takes its place; then none is left.

    Where only the oldest was named to the script, the crowd is read again.
    """
    monkeypatch.setattr("simhash.index.surroundings.MOST_MATCHES", named)
    rule = relation(design("4"))
    index = open_index(client, name, {}, rule, 10, Retention(max_documents=12))
    other = open_index(client, name, {}, rule, 10, Retention(max_documents=12))
    oldest, next_one = entry(1, 0b11, 0), entry(2, 0b11 << 40, 0xFFFF)
    index.check_and_insert([oldest, next_one, *alike(10, Random(3), 10)], {})
    page = entry(100, 0b10 << 40 | 0b1, 0xFF)
    after(monkeypatch, "surroundings", lambda: other.check_and_insert(alike(1, Random(4), 50), {}))
    (answer,) = index.check_and_insert([page], {})
    assert summary(answer.decision) == ("duplicate", 2)
    after(monkeypatch, "surroundings", lambda: other.check_and_insert(alike(1, Random(5), 60), {}))
    (answer,) = index.check_and_insert([entry(101, 0b10 << 40 | 0b1, 0xFF)], {})
    assert isinstance(answer.decision, Unique)


def stored(index, pages, first):
    """Store pages without judging them, from number `first` on."""
    for at in range(0, len(pages), 200):
        rows = [
            b"r" + (first + at + n).to_bytes(6) + bytes(6) + index.inside.layout.page(page, 0)
            for n, page in enumerate(pages[at : at + 200])
        ]
        index.inside.run(("judging", "loading"), *rows)


def test_the_script_compares_none_of_a_large_crowd(client, name):
    """20,000 pages under one prefix: the script lets go at a thousand, and each page finds its match all the same."""
    index = open_index(client, name, {}, relation(design("4")), 10_000_000)
    pages = alike(20_000, Random(6))
    index.check_and_insert(pages[:900], {})
    assert client.hget(f"{name}:meta", "crowds") is None
    stored(index, pages[900:], 901)
    like = pages[12_345]
    near = entry(30_000, like.fingerprint ^ 0b111, like.verifier)
    found, new = index.check_and_insert([near, entry(30_001, 7, 5)], {})
    assert summary(found.decision) == ("duplicate", 12_346)
    assert found.candidates > 20_000
    assert summary(new.decision) == ("unique", 20_001)
    assert int(client.hget(f"{name}:meta", "crowds")) == 2
