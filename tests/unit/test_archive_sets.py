"""Directories of compressed tables, asked in every way, held against brute force over what went in."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simhash import native
from simhash.archive import BuildPlan, Effort, Holding, TableSet, build
from simhash.archive.format import keys as arrays
from simhash.archive.lookup.opened import matches, verifier_bytes
from simhash.archive.verify import verify
from simhash.errors import TableMismatch
from simhash.index import IndexSpec
from simhash.index.memory import MemoryIndex
from simhash.relation.tables import NAMES, design
from tests.pages import banded, crowd, entry, flipped, relation, same_delivery
from tests.tables import PROFILE, SMALL, Listed, built, expected_pairs, fingerprints, nothing, pairs, record

# Bare sets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_design_finds_what_brute_force_finds(path_taken, tmp_path, name):
    random = Random(name)
    stored = fingerprints(150, random)
    rule = relation(design(name), 3, None)
    tables = built(tmp_path / "set", stored, rule, Effort(block_keys=16))
    queries = [flipped(random.choice(stored), 64, random.randrange(7), random) for _ in range(101)]
    for reach in (3, 6):
        expected = expected_pairs(queries, stored, rule.design, reach)
        assert len(expected) >= 10
        assert sorted(pairs(tables.near(arrays.from_ints(queries, 64), reach))) == expected
        for number, query in enumerate(queries[:4]):
            single = [(number, *pair[1:]) for pair in pairs(tables.near(arrays.from_ints([query], 64), reach))]
            assert sorted(single) == [pair for pair in expected if pair[0] == number]


@pytest.mark.parametrize("bits", [8, 31, 128, 256])
def test_other_widths_are_found_alike(path_taken, tmp_path, bits):
    random = Random(bits)
    stored = fingerprints(120, random, bits)
    rule = relation(design("4", bits), 3, None)
    tables = built(tmp_path / "set", stored, rule)
    queries = [flipped(random.choice(stored), bits, random.randrange(6), random) for _ in range(96)]
    expected = expected_pairs(queries, stored, rule.design, 3)
    assert sorted(pairs(tables.near(arrays.from_ints(queries, bits)), bits)) == expected
    single = pairs(tables.near(arrays.from_ints(queries[:1], bits)), bits)
    assert sorted(single) == [pair for pair in expected if pair[0] == 0]


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 60),
    name=st.sampled_from(["4", "6", "2-probed", "1c1"]),
    asked=st.integers(1, 192),
    memory=st.sampled_from([1, 500, 1 << 20]),
)
def test_any_crowd_is_found_as_brute_force_finds_it(tmp_path_factory, seed, count, name, asked, memory):
    random = Random(seed)
    stored = fingerprints(count, random)
    rule = relation(design(name), 5, None)
    tables = built(tmp_path_factory.mktemp("any") / "set", stored, rule, Effort(memory, 1, random.randint(1, 9)))
    queries = [flipped(random.choice([*stored, 0]), 64, random.randrange(7), random) for _ in range(asked)]
    found = tables.near(arrays.from_ints(queries, 64))
    assert sorted(pairs(found)) == expected_pairs(queries, stored, rule.design, 5)
    assert list(verify(tables.directory)) == []


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    bits=st.sampled_from([64, 96]),
    name=st.sampled_from(["4", "10", "2-probed"]),
    block_keys=st.sampled_from([1, 3, 8, 64]),
    spread=st.sampled_from([4, 30, 64]),
    clones=st.sampled_from([1, 40]),
)
def test_many_at_once_find_what_brute_force_finds_with_and_without_the_kernel(
    tmp_path_factory, seed, bits, name, block_keys, spread, clones
):
    """Blocks in step, ranges over several blocks, many in one block, prefixes and fingerprints that many share."""
    random = np.random.default_rng(seed)
    some = random.integers(0, 1 << spread, 90, np.uint64).tolist()
    stored = [value << (bits - 64) for value in some] + some[:1] * clones
    rule = relation(design(name, bits), 3, None)
    tables = built(tmp_path_factory.mktemp("many") / "set", stored, rule, Effort(block_keys=block_keys))
    flips = (1 << int(random.integers(bits)) | 1 << int(random.integers(bits)) for _ in stored)
    queries = [value ^ flip for value, flip in zip(stored, flips, strict=True)] + stored[:1] * clones
    expected = expected_pairs(queries, stored, rule.design, 3)
    assert len(expected) >= len(queries)
    for kernel in (native.blocks, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "blocks", kernel)
            found = TableSet(tables.directory).near(arrays.from_ints(queries, bits))
        assert sorted(pairs(found, bits)) == expected


def test_a_prefix_that_all_share_is_searched_in_portions(tmp_path, monkeypatch):
    monkeypatch.setattr("simhash.archive.lookup.ranges.PAIRS_AT_ONCE", 50)
    monkeypatch.setattr("simhash.archive.lookup.ranges.BLOCKS_AT_ONCE", 2)
    stored = list(range(200))
    rule = relation(design("4"), 3, None)
    tables = built(tmp_path / "set", stored, rule)
    queries = list(range(0, 200, 9))
    found = pairs(tables.near(arrays.from_ints(queries, 64)))
    assert sorted(found) == expected_pairs(queries, stored, rule.design, 3)


def test_equal_fingerprints_are_all_kept_and_found_once(tmp_path):
    tables = built(tmp_path / "set", [7] * 50 + [6], relation(design("4"), 3, None))
    assert len(tables) == 51
    assert pairs(tables.near(arrays.from_ints([7], 64))) == [(0, 7, 0), (0, 6, 1)]
    assert sum(map(len, tables.fingerprints())) == 51


def test_a_bare_set_knows_no_records(tmp_path):
    tables = built(tmp_path / "set", [7], relation(design("4"), 3, None))
    with pytest.raises(TableMismatch, match="holds fingerprints alone"):
        tables.neighbours(7)
    with pytest.raises(TableMismatch, match="holds fingerprints alone"):
        tables.matches([entry(1, 7)])


# Records -----------------------------------------------------------------------------------------------------------


def brute_matches(rule, page, stored):
    """Each stored page that matches: distance and seq, lowest seq first."""
    found = []
    for seq, other in enumerate(stored, 1):
        if rule.matches(page, other):
            near = page.fingerprint is not None
            found.append(((page.fingerprint ^ other.fingerprint).bit_count() if near else 0, seq))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bands"), [("6", 3), ("20", 1), ("4", 0), ("2-probed", 2)])
def test_pages_match_as_the_relation_says(path_taken, tmp_path, name, bands):
    rule = replace(relation(design(name), reach=12), bands=bands)
    random = Random(bands)
    pages = banded(crowd(200, random), bands, random)
    stored, asked = pages[:150], pages[120:]
    tables = built(tmp_path / "set", stored, rule, Effort(block_keys=16))
    expected = [brute_matches(rule, page, stored) for page in asked]
    assert sum(map(len, expected)) > 50
    together = [[(distance, found.seq) for distance, found in matches] for matches in tables.matches(asked)]
    assert together == expected
    singly = [[(d, r.seq) for d, r in tables.matches([page])[0]] for page in asked[:12]]
    assert singly == expected[:12]
    if bands:
        without = replace(rule, bands=0, verifier_bits=64 + 32 * bands)
        assert expected != [brute_matches(without, page, stored) for page in asked]


def test_records_come_back_whole(tmp_path):
    rule = replace(relation(design("6"), reach=12), bands=3)
    pages = banded(crowd(200, Random(2)), 3, Random(3))
    tables = built(tmp_path / "set", pages, rule)
    expected = {(page.fingerprint, record(page, seq)) for seq, page in enumerate(pages, 1)}
    assert set(tables.scan()) == expected
    assert tables.has_records
    assert tables.profile == PROFILE
    assert list(verify(tables.directory)) == []


@pytest.mark.slow
def test_neighbours_are_those_of_an_index(tmp_path):
    rule = relation(design("10"))
    pages = crowd(300, Random(4), short_share=0)
    index = MemoryIndex(IndexSpec({}, relation(design("10"), verifier_reach=0), 4, 1000))
    index.check_and_insert(pages, {})
    kept = [page for page in pages if any(same_delivery(r, page) for _, r in index.scan())]
    tables = built(tmp_path / "set", kept, rule)
    for page in pages[:50]:
        found = [(n.distance, n.record.seq, n.fingerprint) for n in tables.neighbours(page.fingerprint)]
        assert found == [(n.distance, n.record.seq, n.fingerprint) for n in index.neighbours(page.fingerprint)]


def test_an_empty_set_answers(tmp_path):
    rule = relation(design("4"))
    plan = BuildPlan(PROFILE, Holding(64, True, verifier_bytes(rule)), lambda _: rule, "job")
    build(tmp_path / "set", Listed([]), plan, SMALL, nothing)
    tables = TableSet(tmp_path / "set")
    assert len(tables) == 0
    pages = [entry(n, n) for n in range(20)] + [entry(99, None)]
    assert tables.matches(pages) == [[] for _ in pages]
    assert list(tables.scan()) == []
    assert list(verify(tables.directory)) == []


def test_queries_of_many_threads_are_answered_alike(tmp_path):
    pages = crowd(300, Random(30))
    tables = built(tmp_path / "set", pages, relation(design("6")))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda at: tables.matches(pages[at : at + 40]), range(0, 300, 40)))
    assert [match for some in found for match in some] == tables.matches(pages)
    assert np.array_equal(next(tables.fingerprints()), next(tables.fingerprints()))


def test_several_threads_give_the_answers_of_one(tmp_path):
    """Enough blocks that the kernel shares them out."""
    stored = fingerprints(3000, Random(31))
    directory = built(tmp_path / "set", stored, relation(design("4"), 3, None), Effort(block_keys=2)).directory
    one, more = (TableSet(directory, threads).near(arrays.from_ints(stored, 64)) for threads in (1, 4))
    assert len(one) >= len(stored)
    assert pairs(more) == pairs(one)


@pytest.mark.parametrize("designs", [("3", "3", "3"), ("3", "10", "3"), ("6", "3", "4")])
def test_sets_asked_together_answer_as_each_does(path_taken, tmp_path, designs):
    pages = banded(crowd(90, Random(33), short_share=0.2), 2, Random(34))
    sets = [
        built(tmp_path / f"{at}", pages[at : at + 40], replace(relation(design(name), reach=12), bands=2))
        for at, name in zip((0, 30, 50), designs, strict=True)
    ]
    for asked in (pages, pages[:1], [page for page in pages if page.fingerprint is None]):
        assert matches(sets, asked) == [tables.matches(asked) for tables in sets]
    assert sum(map(len, matches(sets, pages)[0])) >= 40
