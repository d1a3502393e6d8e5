"""Pages in memory: the kernel and Python keep the same, and a page meets what brute force over all pages finds."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.index import IndexSpec, Relation, Unique
from simhash.index.memory import MemoryIndex, StoredInPython, stored
from simhash.index.redis.layout import Layout
from simhash.native import absence
from simhash.relation.tables import design
from tests.pages import banded, crowd, entry, relation

NAMES = ["3", "4", "6", "10", "2-probed", "3-probed"]
needs_kernel = pytest.mark.skipif(bool(absence()), reason="there is no kernel")
kinds = pytest.mark.parametrize("make", [pytest.param(stored, marks=needs_kernel), StoredInPython])


def layout_of(rule: Relation) -> Layout:
    return Layout("memory", IndexSpec({}, rule, 6, 1000))


def pages_of(rule: Relation, count: int, seed: int):
    random = Random(seed)
    return banded(crowd(count, random, rule.design.bits), rule.bands, random)


def record_of(layout, page):
    return bytes(6) + layout.body(page)


def asked(layout, page):
    return page.fingerprint, layout.verifier_of(page)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("bands", "verifier_reach"), [(0, 14), (3, 14), (0, None)])
def test_a_page_meets_all_that_it_matches_and_what_is_forgotten_no_more(make, name, bands, verifier_reach):
    rule = relation(design(name), 12, verifier_reach, bands)
    layout = layout_of(rule)
    pages, kept = make(layout), {}
    for number, page in enumerate(pages_of(rule, 300, bands), start=1):
        if page.fingerprint is not None:
            found, compared = pages.matches(*asked(layout, page), None)
            others = {n: other for n, other in kept.items() if other.fingerprint is not None}
            wanted = [
                (n, (page.fingerprint ^ o.fingerprint).bit_count()) for n, o in others.items() if rule.matches(page, o)
            ]
            assert found == wanted
            assert len(found) <= compared <= len(others)
        assert not pages.add(record_of(layout, page), page.fingerprint is not None)
        kept[number] = page
        if len(kept) > 60:
            oldest = min(kept)
            pages.forget(oldest, kept.pop(oldest).fingerprint is not None)
    assert [pages.record(number) for number in kept] == [record_of(layout, page) for page in kept.values()]


@pytest.mark.slow
@needs_kernel
@given(st.sampled_from(NAMES), st.integers(0, 4), st.integers(1, 4), st.integers(0, 1 << 32), st.integers(1, 40))
def test_the_kernel_and_python_keep_the_same_where_places_are_full(name, bands, limit, seed, most):
    shares = len(design(name).tables) + sum(table.radius for table in design(name).tables) + bands
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simhash.index.interface.LEAST_IN_PLACE", 1)
        patch.setattr("simhash.index.interface.MOST_COMPARED", limit * shares)
        rule = relation(design(name), 12, bands=bands)
        layout = layout_of(rule)
        both, there = (stored(layout), StoredInPython(layout)), {}
        for number, page in enumerate(pages_of(rule, 80, seed), start=1):
            stands = page.fingerprint is not None
            copy = Random(number).choice([None, *(n for n, stood in there.items() if stood)])
            if stands:
                first, second = (each.matches(*asked(layout, page), copy) for each in both)
                assert first == second
                first, second = (each.met(page.fingerprint) for each in both)
                assert first == second
            first, second = (each.add(record_of(layout, page), stands) for each in both)
            assert first == second
            there[number] = stands
            if len(there) > most:
                oldest = min(there)
                stood = there.pop(oldest)
                for each in both:
                    each.forget(oldest, stood)


@needs_kernel
def test_what_is_forgotten_gives_its_memory_back_and_numbers_go_on():
    """Records lie in chunks of 4,096."""
    rule = relation(design("4"))
    layout = layout_of(rule)
    pages, page = stored(layout), pages_of(rule, 1, 0)[0]
    for number in range(1, 10_001):
        pages.add(record_of(layout, page) + b"%d" % number, stands=True)
        if number > 3:
            pages.forget(number - 3, stands=True)
    assert all(pages.record(number).endswith(b"%d" % number) for number in (9_998, 9_999, 10_000))


def test_a_page_that_cannot_be_stored_takes_no_number_and_changes_nothing():
    index = MemoryIndex(IndexSpec({}, relation(design("4")), 6, 1000))
    random = Random(1)
    one, wrong, two = (entry(n, random.getrandbits(64), random.getrandbits(64), partition=None) for n in (1, 2, 3))
    index.check_and_insert([one], {})
    with pytest.raises(UnicodeEncodeError):
        index.check_and_insert([replace(wrong, url="http://x/\ud800")], {})
    assert [answer.decision for answer in index.check_and_insert([two, one, two], {})] == [
        Unique(2),
        Unique(1),
        Unique(2),
    ]
    assert [record.url for _, record in index.scan()] == [one.url, two.url]


def test_wide_fingerprints_are_kept_in_python():
    assert isinstance(stored(layout_of(Relation(design("4", 128), 12, 14, 64))), StoredInPython)
