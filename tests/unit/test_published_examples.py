"""Worked examples from the literature, by number.

Bit 0 is written leftmost, except in example 5 (bit i = 1 << i).
"""

import logging
from collections.abc import Callable

import jieba
import jieba.analyse
import numpy as np
import pytest

from simhash.archive.format import keys as arrays
from simhash.features import hashes
from simhash.features.keywords import Keywords
from simhash.relation import hamming
from simhash.signature.fingerprint import bit_sums, fingerprint, simhash
from tests.references import dot_fingerprint


def hashed(*binary: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([int(digits, 2) for digits in binary], dtype=np.uint64)


def sums_in_print(binary: list[str], weights: list[float]) -> list[float]:
    """Component sums, the leftmost bit's first."""
    sums = bit_sums(hashed(*binary), np.array(weights), bits=len(binary[0]))
    return [float(value) for value in sums[::-1]]


def in_print(binary: list[str], weights: list[float]) -> str:
    bits = len(binary[0])
    return hamming.to_binary(simhash(hashed(*binary), np.array(weights), bits), bits)


FIVE_FEATURES = ["101", "011", "100", "001", "110"]
FIVE_WEIGHTS = [1.0, 2.0, 0.0, 3.0, 0.0]


def test_example_1_five_features_of_three_bits() -> None:
    assert sums_in_print(FIVE_FEATURES, FIVE_WEIGHTS) == [-4, -2, 6]
    assert in_print(FIVE_FEATURES, FIVE_WEIGHTS) == "001"


def test_example_1_by_dot_products_with_three_vectors() -> None:
    r1, r2, r3 = [1, -1, 1, -1, 1], [-1, 1, -1, -1, 1], [1, 1, -1, 1, -1]
    directions = np.array([r1, r2, r3], dtype=np.float64)
    assert (directions @ FIVE_WEIGHTS).tolist() == [-4, -2, 6]
    assert dot_fingerprint(FIVE_WEIGHTS, directions) == 0b001


def test_example_2_a_real_vector_of_three_dimensions_in_two_bits() -> None:
    # Published with 7.0 for the second sum; 3 - 2 + 4 is 5 and -3 + 2 + 4 is 3.
    assert sums_in_print(["10", "01", "11"], [3.0, 2.0, 4.0]) == [5.0, 3.0]
    assert in_print(["10", "01", "11"], [3.0, 2.0, 4.0]) == "11"


def test_example_2_by_dot_products_with_two_vectors() -> None:
    directions = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    assert (directions @ [3.0, 2.0, 4.0]).tolist() == [5.0, 3.0]
    assert dot_fingerprint([3.0, 2.0, 4.0], directions) == 0b11


def test_example_3_shanghai_and_beijing() -> None:
    cities = {"上海": (0b01011001, 45.11), "北京": (0b11001011, 32.09)}
    sums = sums_in_print(["01011001", "11001011"], [45.11, 32.09])
    assert sums == pytest.approx([-13.02, 77.20, -77.20, 13.02, 77.20, -77.20, -13.02, 77.20])
    by_table = hashes.of_callable(lambda city: cities[city][0], bits=8)
    assert fingerprint({city: weight for city, (_, weight) in cities.items()}, by_table, 8) == 0b01011001


def test_example_3_two_bits_between_00101110_and_00001111() -> None:
    assert hamming.distance(0b00101110, 0b00001111, bits=8) == 2


def test_example_4_three_features_of_six_bits() -> None:
    binary, weights = ["010111", "000101", "100111"], [5.0, 3.0, 1.0]
    assert sums_in_print(binary, weights) == [-7, 1, -9, 9, 3, 9]
    assert in_print(binary, weights) == "010111"


def test_example_4_one_bit_between_1011_and_1001() -> None:
    assert hamming.distance(0b1011, 0b1001, bits=4) == 1


SHORT = "This is a test string for testing"


def string_fingerprint(text: str, zero_sum: int) -> int:
    bag: dict[str, float] = {}
    for word in text.split():
        bag[word] = bag.get(word, 0.0) + 1.0
    value = fingerprint(bag, "string_128", 128, zero_sum)
    assert value is not None
    return value


def test_example_5_128_bits_of_the_string_hash_with_zero_sums_to_one() -> None:
    a, b = (string_fingerprint(text, zero_sum=1) for text in (SHORT, f"{SHORT} also!"))
    assert (a, b) == (0x20302202800D8E90E45CC488, 0x20FC2282801D9E9CE4DCC6EA)
    assert hamming.distance(a, b, 128) == 14
    # Published as a similarity of the texts; it is the ratio of the two numbers and says nothing about them.
    assert a / b == pytest.approx(0.97584098811, abs=1e-11)


def test_example_5_with_zero_sums_to_zero_that_ratio_is_far_off_at_half_the_distance() -> None:
    a, b = (string_fingerprint(text, zero_sum=0) for text in (SHORT, f"{SHORT} also!"))
    assert hamming.distance(a, b, 128) == 7
    assert min(a, b) / max(a, b) == pytest.approx(1.5e-5, rel=0.05)


LONG_TEXT = (
    "搜索引擎在互联网上抓取网页时，会遇到大量内容近似重复的页面。同一篇新闻被多家网站转载，只有广告、导航栏和页脚不同。"
    "逐字比较无法发现它们，因为哪怕改动一个字，普通散列函数的结果也完全不同。局部敏感散列解决了这个难题：它先把文档切成特征，"
    "给每个特征一个权重，再把特征的散列值按位加权求和，最后只保留每一位的符号，得到一个六十四位的指纹。内容越接近，"
    "两个指纹的海明距离越小。为了在数十亿指纹中迅速找到距离不超过三的指纹，可以把指纹分成几段，按不同的次序排列成多张有序表，"
    "用二分查找前缀相同的候选，再逐一核对距离。"
)
LAST_HALF = (
    "把文档切成特征，给每个特征一个权重，再把特征的散列值按位加权求和，最后只保留每一位的符号，得到一个六十四位的指纹。"
    "内容越接近，两个指纹的海明距离越小。为了在数十亿指纹中迅速找到距离不超过三的指纹，可以把指纹分成几段，"
    "用二分查找前缀相同的候选，再逐一核对距离。"
)


def fnv(word: str) -> int:
    value = 14695981039346656037
    for byte in word.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def unsigned(word: str) -> str:
    return format(fnv(word), "064b")


def signed(word: str) -> str:
    """The hash as a signed number of 64 digits, as the published Go program prints it; a minus sign counts as 1."""
    value = fnv(word)
    return format(value - 2**64 if value >= 2**63 else value, "064b").replace("-", "1")


@pytest.mark.slow
@pytest.mark.parametrize(("reading", "expected"), [(unsigned, 13), (signed, 8)])
def test_example_6_a_text_and_its_last_half_by_22_and_11_keywords(reading: Callable[[str], str], expected: int) -> None:
    jieba.setLogLevel(logging.CRITICAL)
    straightforward = []
    for text, top in ((LONG_TEXT, 22), (LAST_HALF, 11)):
        sums = [0.0] * 64
        for word, weight in jieba.analyse.extract_tags(text, topK=top, withWeight=True):
            for i, digit in enumerate(reading(word)):
                sums[i] += -weight if digit == "0" else weight
        straightforward.append("".join("1" if value > 0 else "0" for value in sums))
    hash_ = "fnv1a_64" if reading is unsigned else hashes.of_callable(lambda word: int(reading(word), 2), 64)
    scheme = Keywords("tfidf", top=1, per_characters=12)
    assert [len(scheme(text)) for text in (LONG_TEXT, LAST_HALF)] == [22, 11]
    ours = [fingerprint(scheme(text), hash_) for text in (LONG_TEXT, LAST_HALF)]
    assert ours == [int(digits, 2) for digits in straightforward]
    assert sum(a != b for a, b in zip(*straightforward, strict=True)) == expected


def fnv1(word: str) -> int:
    """FNV-1: as FNV-1a, but it multiplies first."""
    value = 14695981039346656037
    for byte in word.encode():
        value = value * 1099511628211 % 2**64 ^ byte
    return value


def test_texts_of_a_published_go_package_have_the_fingerprints_that_its_example_prints() -> None:
    """go-dedup/simhash (MIT), example_test.go: words, each of weight 1, FNV-1, and zero sums to one."""
    printed = {
        "this is a test phrase": 0x8C3A5F7E9ECB3F35,
        "this is a test phrass": 0x8C3A5F7E9ECB3F21,
        "foo bar": 0xD8DBE7186BAD3DB3,
    }
    hash_ = hashes.of_callable(fnv1, 64)
    first, second, other = (fingerprint(dict.fromkeys(text.split(), 1.0), hash_, zero_sum=1) for text in printed)
    assert [first, second, other] == [*printed.values()]
    assert (hamming.distance(first, second), hamming.distance(first, other)) == (2, 29)


def test_example_7_the_first_difference_is_at_bit_6() -> None:
    assert arrays.first_differences(arrays.from_ints([0b11011001, 0b11011011], 8), 8).tolist() == [6]


def test_example_7_in_an_ascending_table_the_next_entry_is_the_position_and_the_rest() -> None:
    table = sorted([0b11011011, 0b11011001])
    (position,) = arrays.first_differences(arrays.from_ints(table, 8), 8).tolist()
    rest = hamming.to_binary(table[1], 8)[position + 1 :]
    assert f"({position}){rest}" == "(6)1"
