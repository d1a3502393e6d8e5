"""All pairs of Jaccard >= 0.5: none missed, none too many, each at its true similarity."""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.evaluation import joining
from simhash.evaluation.joining import joined, shingles_of
from simhash.explaining import token_grams
from simhash.signature.profiles import DEFAULT
from tests.stream import texts


def by_brute_force(sets):
    """Of Python's own sets, every pair compared."""
    found = {}
    for (i, a), (j, b) in combinations(enumerate(map(set, sets)), 2):
        if a and b and 2 * len(a & b) >= len(a | b):
            found[i, j] = len(a & b) / len(a | b)
    return found


def arrays(sets):
    return [np.array(sorted(each), dtype=np.uint64) for each in sets]


@given(st.lists(st.sets(st.integers(0, 12), max_size=9), max_size=12))
def test_small_sets_are_joined_as_by_comparing_all(sets):
    assert joined(arrays(sets)) == by_brute_force(sets)


@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
def test_versions_of_texts_are_joined_as_by_comparing_all_however_few_are_counted_at_once(monkeypatch, at_once):
    monkeypatch.setattr(joining, "SHINGLES_AT_ONCE", at_once)
    pages = texts(120, Random(5))
    found = joined([shingles_of(text) for text in pages])
    assert found == pytest.approx(by_brute_force([token_grams(text, DEFAULT) for text in pages]))
    assert len(found) > 100
    assert len({round(value, 2) for value in found.values()}) > 10


def test_nothing_is_no_pair():
    assert joined([]) == joined(arrays([[], []])) == {}
