"""Fingerprints as values, and distances between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import WidthError
from simhash.relation import hamming

words_of_64_bits = st.integers(0, 2**64 - 1)


@given(words_of_64_bits, words_of_64_bits)
def test_the_distance_counts_the_positions_that_differ_in_print(a: int, b: int) -> None:
    in_print = zip(hamming.to_binary(a, 64), hamming.to_binary(b, 64), strict=True)
    assert hamming.distance(a, b, 64) == sum(x != y for x, y in in_print)


@pytest.mark.parametrize(("k", "near"), [(2, False), (3, True), (4, True)])
def test_k_is_inclusive_at_three_bits(k: int, near: bool) -> None:
    assert hamming.near(0b1110, 0b0000, k, bits=64) is near


@pytest.mark.parametrize(("k", "near"), [(3, False), (4, True), (5, True)])
def test_k_is_inclusive_at_four_bits(k: int, near: bool) -> None:
    assert hamming.near(0b1111, 0b0000, k, bits=64) is near


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_number_that_does_not_fit_the_width_is_no_fingerprint(value: int) -> None:
    for compare in (hamming.distance, hamming.near):
        with pytest.raises(WidthError, match="64 bits"):
            compare(value, 0, bits=64)
