"""How long pages are, to a byte; what they have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.relation.overlap import MOST_CODE, code_of, contained, features_of, is_longer, rounded

LARGEST = features_of(MOST_CODE)
counts = st.integers(1, LARGEST)


@given(st.integers(0, LARGEST))
def test_a_byte_holds_a_length_to_within_a_29th_and_is_its_own_again(features):
    assert abs(rounded(features) - features) <= features / 29
    assert rounded(rounded(features)) == rounded(features)


def test_every_byte_is_a_length_of_its_own():
    assert [code_of(features_of(code)) for code in range(MOST_CODE + 1)] == list(range(MOST_CODE + 1))
    assert code_of(1 << 60) == MOST_CODE
    assert [code_of(features) for features in (88, 91)] == [50, 50]


@given(counts, counts)
def test_who_is_called_longer_is_longer(features, other):
    if is_longer(features, rounded(other)):
        assert features > other
    else:
        assert features <= 1.07 * other


@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40), min_size=1))
def test_what_two_sets_share_follows_from_their_similarity_and_sizes(a, b):
    similarity = len(a & b) / len(a | b)
    assert contained(similarity, len(a), len(b)) == pytest.approx(len(a & b) / len(a))


def test_of_a_page_without_features_nothing_is_told():
    assert contained(1.0, 0, 5) is contained(1.0, 5, 0) is is_longer(5, 0) is is_longer(0, 5) is None


@given(st.floats(0, 1), counts, counts)
def test_no_page_holds_more_of_another_than_there_is(similarity, features, other):
    share = contained(similarity, features, other)
    assert 0 <= share <= min(1.0, other / features)
