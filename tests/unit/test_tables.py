"""The permutation tables: what the designs promise, checked against all patterns of differing bits."""

from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import DesignError
from simhash.relation.tables import (
    MOST_K,
    MOST_TABLES,
    Block,
    Table,
    choose,
    cut,
    described,
    design,
    design_for,
    guaranteed,
    nested,
)
from simhash.relation.tables import NAMES as KNOWN

NAMES = [*KNOWN, "5c1", "7c3", "3x5", "8c3r1", "4c2r1", "2(4c3)", "2(2c1)", "16+16r1+32", "10+22+16+16r1"]


def designs(bits: int = 64):
    return st.sampled_from([design(name, bits) for name in NAMES])


@pytest.mark.parametrize(
    ("name", "tables", "k", "prefixes"),
    [
        ("4", 4, 3, {16}),
        ("6", 6, 3, {21, 22}),
        ("8", 8, 3, {24}),
        ("10", 10, 3, {25, 26}),
        ("11", 11, 3, {28, 29, 30}),
        ("14", 14, 3, {32}),
        ("16", 16, 3, {28}),
        ("20", 20, 3, {31, 32, 33}),
        ("15", 15, 4, {20, 21, 22}),
        ("2-probed", 2, 3, {32}),
    ],
)
def test_the_published_designs_have_their_tables_and_prefixes(name, tables, k, prefixes):
    found = design(name)
    assert len(found.tables) == tables
    assert found.k == k
    assert {table.prefix for table in found.tables} == prefixes


def test_a_small_permutation_puts_its_block_in_front():
    table = choose(4, 1, bits=8).tables[2]
    assert table.permute(0b00_01_10_11) == 0b10_00_01_11
    assert table.prefix == 2


@given(designs(), st.integers(0, 2**64 - 1))
def test_restore_is_the_inverse_of_permute(found, fingerprint):
    for table in found.tables:
        assert table.restore(table.permute(fingerprint)) == fingerprint


@given(designs(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_lead_has_the_bits_that_permute_puts_in_front(found, a, b):
    for table in found.tables:
        together = table.permute(a) >> (64 - table.prefix) == table.permute(b) >> (64 - table.prefix)
        assert together == ((a ^ b) & table.lead == 0)


@given(designs(128), st.integers(0, 2**128 - 1))
def test_restore_is_the_inverse_of_permute_at_128_bits(found, fingerprint):
    for table in found.tables:
        assert table.restore(table.permute(fingerprint)) == fingerprint


@given(designs(), st.integers(0, 2**64 - 1), st.data())
def test_any_two_fingerprints_within_k_share_a_prefix_in_some_table(found, fingerprint, data):
    flips = data.draw(st.sets(st.integers(0, 63), max_size=found.k))
    assert found.shares_prefix(fingerprint, fingerprint ^ sum(1 << bit for bit in flips))


@pytest.mark.parametrize("name", NAMES)
def test_k_is_the_largest_that_a_design_guarantees(name):
    """Over 16 bits every pattern of differing bits can be tried."""
    found = design(name, bits=16)
    within = (sum(1 << bit for bit in bits) for count in range(found.k + 1) for bits in combinations(range(16), count))
    assert all(found.shares_prefix(0, pattern) for pattern in within)
    beyond = (sum(1 << bit for bit in bits) for bits in combinations(range(16), found.k + 1))
    assert not all(found.shares_prefix(0, pattern) for pattern in beyond)


@given(st.integers(1, 8), st.data(), st.integers(0, 1))
def test_guaranteed_is_what_the_least_hit_blocks_allow(parts, data, radius):
    """Brute force over how many differing bits fall in each block."""
    lead = data.draw(st.integers(1, parts))
    k = guaranteed(parts, lead, radius)

    def missed(total):
        loads = (load for load in product(range(total + 1), repeat=parts) if sum(load) == total)
        return any(sum(sorted(load)[:lead]) > radius for load in loads)

    if parts <= 4:
        assert not missed(k)
        assert missed(k + 1) or lead == parts


@given(st.integers(0, 40), st.integers(1, 64), st.data())
def test_cut_covers_its_bits_with_nearly_equal_blocks(start, width, data):
    parts = data.draw(st.integers(1, width))
    blocks = cut(start, width, parts)
    assert blocks[0].start == start
    assert all(a.end == b.start for a, b in pairwise(blocks))
    assert blocks[-1].end == start + width
    assert max(b.width for b in blocks) - min(b.width for b in blocks) <= 1


@given(designs())
def test_a_described_design_is_the_design(found):
    assert described(found.describe()) == found


@pytest.mark.parametrize(
    "name", ["", "0c0", "3c4", "c", "4c", "65c1", "99x99", "4x4r1", "2(3c4)", "2(3c2)r1", "four", "4c1r2"]
)
def test_an_impossible_design_is_refused_by_name(name):
    with pytest.raises(DesignError):
        design(name)


@pytest.mark.parametrize(
    ("name", "tables"),
    [("64c3", "41,664"), ("30c15", "155,117,520"), ("36c2r1", "630"), ("2(32c16)", "1,2"), ("25x25", "625")],
)
def test_a_design_of_too_many_tables_is_refused_before_one_is_made(name, tables):
    with pytest.raises(DesignError, match=f"has {tables}.* tables: {MOST_TABLES} are the most"):
        design(name)


def test_numbers_without_an_end_are_no_design():
    with pytest.raises(DesignError, match="unknown design"):
        design(f"{'9' * 5000}c1")


def test_what_is_chosen_for_the_largest_k_has_few_enough_tables():
    assert len(design_for(MOST_K, 64).tables) <= MOST_TABLES


def test_a_table_must_use_every_bit_once():
    with pytest.raises(DesignError, match="exactly once"):
        Table(8, (Block(0, 4), Block(3, 5)), 4)
    for prefix in (0, 9):
        with pytest.raises(DesignError, match=f"a prefix of {prefix} bits does not fit in 8"):
            Table(8, (Block(0, 8),), prefix)
    with pytest.raises(DesignError, match="radius is 0 or 1, not 2"):
        Table(8, (Block(0, 8),), 4, radius=2)


@pytest.mark.slow
def test_nested_cuts_the_rest_again():
    found = nested(4, 4)
    assert len(found.tables) == 16
    assert {table.prefix for table in found.tables} == {28}
