"""Fingerprints as values, and distances between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import WidthError
from simhash.relation import hamming
from simhash.relation.hamming import Fingerprint

words_of_64_bits = st.integers(0, 2**64 - 1)


@given(words_of_64_bits, words_of_64_bits)
def test_the_distance_counts_the_positions_that_differ_in_print(a: int, b: int) -> None:
    in_print = zip(hamming.to_binary(a, 64), hamming.to_binary(b, 64), strict=True)
    assert hamming.distance(a, b, 64) == sum(x != y for x, y in in_print)


@given(words_of_64_bits, st.lists(words_of_64_bits))
def test_distances_to_many_are_the_distances_to_each(one: int, many: list[int]) -> None:
    expected = [hamming.distance(one, other, 64) for other in many]
    assert hamming.distances(one, many).tolist() == expected
    assert hamming.distances(one, np.array(many, dtype=np.uint64)).tolist() == expected


@pytest.mark.parametrize(("k", "near"), [(2, False), (3, True), (4, True)])
def test_k_is_inclusive_at_three_bits(k: int, near: bool) -> None:
    assert hamming.near(0b1110, 0b0000, k, bits=64) is near
    assert Fingerprint(64, 0b1110).near(Fingerprint(64, 0), k) is near


@pytest.mark.parametrize(("k", "near"), [(3, False), (4, True), (5, True)])
def test_k_is_inclusive_at_four_bits(k: int, near: bool) -> None:
    assert hamming.near(0b1111, 0b0000, k, bits=64) is near


def test_fingerprints_of_unequal_width_cannot_be_compared() -> None:
    with pytest.raises(WidthError, match=r"64 bits.*128"):
        Fingerprint(64, 1).distance(Fingerprint(128, 1))


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_number_that_does_not_fit_the_width_is_no_fingerprint(value: int) -> None:
    for compare in (hamming.distance, hamming.first_difference):
        with pytest.raises(WidthError, match="64 bits"):
            compare(value, 0, 64)
    with pytest.raises(WidthError):
        Fingerprint(64, value)
    with pytest.raises(WidthError):
        hamming.distances(value, [0])


@given(
    st.integers(2, 64)
    .map(lambda quarter: 4 * quarter)
    .flatmap(lambda b: st.tuples(st.just(b), st.integers(0, 2**b - 1)))
)
def test_print_is_read_back_with_its_width(fingerprint: tuple[int, int]) -> None:
    known = Fingerprint(*fingerprint)
    assert Fingerprint.from_hex(str(known)) == known
    assert Fingerprint.from_binary(hamming.to_binary(known.value, known.bits)) == known


def test_hex_has_a_digit_for_four_bits_zero_padded() -> None:
    assert hamming.to_hex(0xAB, 64) == "00000000000000ab"
    assert hamming.to_hex(1, 128) == "0" * 31 + "1"
    assert hamming.to_hex(1, 10) == "001"


@given(words_of_64_bits, words_of_64_bits)
def test_the_first_difference_is_the_first_in_print(a: int, b: int) -> None:
    in_print = zip(hamming.to_binary(a, 64), hamming.to_binary(b, 64), strict=True)
    positions = [i for i, (x, y) in enumerate(in_print) if x != y]
    assert hamming.first_difference(a, b, 64) == (positions[0] if positions else None)
