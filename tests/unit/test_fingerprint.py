"""The simhash against a straightforward one, and against the law that makes it useful."""

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simhash.errors import ProfileError
from simhash.features import hashes
from simhash.signature import fingerprint as module
from simhash.signature.fingerprint import bit_sums, fingerprint, simhash
from simhash.signature.vectors import Vector, vector_fingerprint
from tests.references import dot_fingerprint, fingerprint_with_a_hash_per_bit, hyperplane_fingerprint

Reference = Callable[[Vector, int], int | None]

texts = st.text(st.characters(codec=None), max_size=8)
counts = st.integers(0, 20).map(float)
reals = st.floats(-1e30, 1e30)
# Few distinct values, so that sums cancel to zero, exactly or but for the last digit.
cancelling = st.sampled_from([0.1, 0.2, 0.3, -0.3, 0.30000000000000004, 1e16, 1.0, -1e16, 5e-324])
bags = st.one_of(*(st.dictionaries(texts, weights, max_size=40) for weights in (counts, reals, cancelling)))


def naive(bag: dict[str, float], hash_: hashes.Hash, bits: int, zero_sum: int) -> int | None:
    """Simhash as the papers put it, in exact fractions."""
    if not any(bag.values()):
        return None
    result = 0
    for i in range(bits):
        total = sum(Fraction(w) * (1 if hash_(feature) >> i & 1 else -1) for feature, w in bag.items())
        result |= (1 if total > 0 else zero_sum if total == 0 else 0) << i
    return result


@given(bags, st.sampled_from(["xxh3_64", "string_256", "md5"]), st.sampled_from([8, 13, 64]), st.integers(0, 1))
def test_the_fingerprint_is_the_naive_one(bag: dict[str, float], name: str, bits: int, zero_sum: int) -> None:
    hash_ = hashes.named(name)
    assert fingerprint(bag, hash_, bits, zero_sum) == naive(bag, hash_, bits, zero_sum)


@settings(max_examples=20)
@given(bags, st.sampled_from([65, 128, 200, 256]))
def test_wide_fingerprints_are_the_naive_ones(bag: dict[str, float], bits: int) -> None:
    hash_ = hashes.named("string_256")
    assert fingerprint(bag, hash_, bits) == naive(bag, hash_, bits, 0)


@given(bags, st.randoms(use_true_random=False))
def test_the_order_of_features_does_not_matter(bag: dict[str, float], random: Random) -> None:
    items = list(bag.items())
    random.shuffle(items)
    assert fingerprint(dict(items)) == fingerprint(bag)


def test_pages_longer_than_one_chunk_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bag = {str(i): float(i % 7) + 0.1 for i in range(100)}
    whole = fingerprint(bag)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    assert fingerprint(bag) == whole


def test_a_four_bit_hash_stands_for_plus_and_minus_one() -> None:
    sums = bit_sums(np.array([0b1010], dtype=np.uint64), np.ones(1), bits=4)
    assert sums[::-1].tolist() == [1, -1, 1, -1]  # leftmost bit first


@pytest.mark.parametrize(("zero_sum", "expected"), [(0, 0b00001111), (1, 0b11111111)])
def test_a_sum_of_zero_gives_zero_unless_one_is_asked_for(zero_sum: int, expected: int) -> None:
    cancel = np.array([0b11111111, 0b00001111], dtype=np.uint64)
    assert simhash(cancel, np.array([2.0, 2.0]), 8, zero_sum) == expected


def test_a_sum_that_is_zero_only_by_rounding_keeps_its_sign() -> None:
    # 0.1 + 0.2 as doubles is above 0.3 by less than a sum of doubles shows when the largest comes first.
    hashed = np.array([0, 0xFF, 0xFF, 0xFF, 0], dtype=np.uint64)
    weights = np.array([1e16, 1e16, 0.1, 0.2, 0.3])
    assert simhash(hashed, weights, 8) == 0xFF
    assert simhash(hashed[::-1].copy(), weights[::-1].copy(), 8) == 0xFF


def test_the_low_bits_of_a_wider_hash_count() -> None:
    words = hashes.as_words([(0xAB << 64) | 0xCD], 128)
    assert simhash(words, np.ones(1), 64) == 0xCD
    assert simhash(words, np.ones(1), 72) == (0xAB << 64) | 0xCD


@pytest.mark.parametrize("bag", [{}, {"a": 0.0}, {"a": 0.0, "b": 0.0}])
def test_nothing_has_no_fingerprint(bag: dict[str, float]) -> None:
    assert fingerprint(bag) is None
    assert fingerprint_with_a_hash_per_bit(bag) is None


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_no_hashes_add_up_to_nothing(kind: type[np.int64] | type[np.float64]) -> None:
    assert simhash(np.empty(0, dtype=np.uint64), np.empty(0, dtype=kind), 64) == 0
    assert simhash(np.empty((0, 2), dtype=np.uint64), np.empty(0, dtype=kind), 128, zero_sum=1) == 2**128 - 1


@given(st.lists(st.integers(-3000, 3000), max_size=30), st.sampled_from([8, 64]))
def test_whole_weights_add_up_as_real_ones_do(weights: list[int], bits: int) -> None:
    hashed = hashes.named("xxh3_64").words([str(number) for number in range(len(weights))])
    whole = bit_sums(hashed, np.array(weights, dtype=np.int64), bits)
    assert whole.tolist() == bit_sums(hashed, np.array(weights, dtype=np.float64), bits).tolist()


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, 1.7e308])
def test_weights_that_cannot_be_added_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        fingerprint({"a": weight, "b": 1.0})


def test_a_bag_is_refused_a_hash_too_narrow() -> None:
    with pytest.raises(ProfileError, match="crc32 has 32 bits"):
        fingerprint({"a": 1.0}, "crc32", 64)


def test_negative_weights_turn_the_fingerprint_over() -> None:
    plain = fingerprint({"a": 1.0, "b": 2.5, "c": 0.7})
    assert plain is not None
    assert fingerprint({"a": -1.0, "b": -2.5, "c": -0.7}) == plain ^ (2**64 - 1)


def test_vectors_of_any_dimension_need_no_matrix() -> None:
    vector = {3: 0.5, 10**18: -2.0, 2**200: 0.25}
    assert vector_fingerprint(vector) == fingerprint({str(d): value for d, value in vector.items()})
    assert vector_fingerprint({7: 0.0}) is None
    assert hyperplane_fingerprint({7: 0.0}) is None


def test_scaling_a_vector_keeps_its_fingerprint() -> None:
    vector = {i: math.sin(i + 1) for i in range(50)}
    larger = {i: 3.7 * value for i, value in vector.items()}
    assert vector_fingerprint(larger) == vector_fingerprint(vector)
    assert hyperplane_fingerprint(larger) == hyperplane_fingerprint(vector)


def test_dot_products_with_given_directions_put_the_first_leftmost() -> None:
    directions = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    assert dot_fingerprint([2.0, -1.0], directions) == 0b100


def pair_at(angle: float, seed: int, dimensions: int = 400) -> tuple[Vector, Vector]:
    """Two random vectors of many dimensions with this angle between them."""
    generator = np.random.default_rng(seed)
    a, b = generator.standard_normal((2, dimensions))
    a /= np.linalg.norm(a)
    b -= (a @ b) * a
    b /= np.linalg.norm(b)
    turned = math.cos(angle) * a + math.sin(angle) * b
    return dict(enumerate(a.tolist())), dict(enumerate(turned.tolist()))


def of_vector_with_a_hash_per_bit(vector: Vector, seed: int) -> int | None:
    return fingerprint_with_a_hash_per_bit({f"{seed} {d}": value for d, value in vector.items()})


def of_vector_with_one_hash(vector: Vector, seed: int) -> int | None:
    return vector_fingerprint(vector, hashes.of_callable(lambda d: hashes.named("xxh3_64")(f"{seed} {d}"), 64))


def of_vector_with_hyperplanes(vector: Vector, seed: int) -> int | None:
    return hyperplane_fingerprint(vector, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [10, 45, 90, 150])
@pytest.mark.parametrize(
    "reference", [of_vector_with_hyperplanes, of_vector_with_a_hash_per_bit, of_vector_with_one_hash]
)
def test_the_share_of_differing_bits_is_angle_over_pi(reference: Reference, degrees: int) -> None:
    pairs = 40
    differing = 0
    for seed in range(pairs):
        a, b = (reference(vector, seed) for vector in pair_at(math.radians(degrees), seed))
        assert a is not None
        assert b is not None
        differing += (a ^ b).bit_count()
    bits = 64 * pairs
    expected = degrees / 180
    deviation = math.sqrt(expected * (1 - expected) / bits)
    assert abs(differing / bits - expected) < 4 * deviation
