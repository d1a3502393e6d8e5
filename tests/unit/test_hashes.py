"""Hashes by name, against published values and independent implementations."""

import hashlib
import zlib

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import ProfileError
from simhash.features import hashes

any_text = st.text(st.characters(codec=None))  # lone surrogates included
names = ("xxh3_64", "xxh3_128", "fnv1a_64", "jenkins_64", "crc32", "md5", "sha1", "string_64", "string_200")


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_fnv1a_gives_its_authors_values(data: bytes, expected: int) -> None:
    assert hashes.fnv1a_64(data) == expected


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xDEADBEEF_DEADBEEF),
        (b"", 0xDEADBEEF, 0xBD5B7DDE_DEADBEEF),
        (b"", 0xDEADBEEF_DEADBEEF, 0x9C093CCD_BD5B7DDE),
        (b"Four score and seven years ago", 0, 0x17770551_CE7226E6),
        (b"Four score and seven years ago", 1, 0xE3607CAE_BD371DE4),
        (b"Four score and seven years ago", 1 << 32, 0xCD628161_6CBEA4B3),
    ],
)
def test_jenkins_gives_the_values_in_its_authors_own_driver(data: bytes, seed: int, expected: int) -> None:
    assert hashes.jenkins_64(data, seed) == expected


@given(st.binary(max_size=80))
def test_jenkins_agrees_with_the_byte_by_byte_reading_of_lookup3(data: bytes) -> None:
    assert hashes.jenkins_64(data) == lookup3(data)


def lookup3(data: bytes) -> int:
    """lookup3.c's hashlittle2 written out line by line, byte by byte, with both seeds 0."""
    m = 0xFFFFFFFF

    def rot(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & m

    a = b = c = (0xDEADBEEF + len(data)) & m
    if not data:
        return c << 32 | b
    while len(data) > 12:
        for i in range(4):
            a, b, c = a + (data[i] << 8 * i), b + (data[4 + i] << 8 * i), c + (data[8 + i] << 8 * i)
        a, b, c = a & m, b & m, c & m
        a = ((a - c) & m) ^ rot(c, 4)
        c = (c + b) & m
        b = ((b - a) & m) ^ rot(a, 6)
        a = (a + c) & m
        c = ((c - b) & m) ^ rot(b, 8)
        b = (b + a) & m
        a = ((a - c) & m) ^ rot(c, 16)
        c = (c + b) & m
        b = ((b - a) & m) ^ rot(a, 19)
        a = (a + c) & m
        c = ((c - b) & m) ^ rot(b, 4)
        b = (b + a) & m
        data = data[12:]
    for i, byte in enumerate(data):
        shifted = byte << 8 * (i % 4)
        a, b, c = a + shifted * (i < 4), b + shifted * (4 <= i < 8), c + shifted * (i >= 8)
    a, b, c = a & m, b & m, c & m
    c = ((c ^ b) - rot(b, 14)) & m
    a = ((a ^ c) - rot(c, 11)) & m
    b = ((b ^ a) - rot(a, 25)) & m
    c = ((c ^ b) - rot(b, 16)) & m
    a = ((a ^ c) - rot(c, 4)) & m
    b = ((b ^ a) - rot(a, 14)) & m
    c = ((c ^ b) - rot(b, 24)) & m
    return c << 32 | b


@given(any_text)
def test_library_hashes_are_those_of_their_libraries_over_utf8(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    expected = {
        "xxh3_64": xxhash.xxh3_64_intdigest(data),
        "xxh3_128": xxhash.xxh3_128_intdigest(data),
        "crc32": zlib.crc32(data),
        "md5": int(hashlib.md5(data).hexdigest(), 16),
        "sha1": int(hashlib.sha1(data).hexdigest(), 16),
    }
    assert {name: hashes.named(name)(text) for name in expected} == expected


@given(st.text(min_size=1), st.sampled_from([8, 32, 64, 100, 128, 256]))
def test_the_string_hash_is_the_published_one_at_any_width(text: str, bits: int) -> None:
    value = ord(text[0]) << 7
    for character in text:
        value = (value * 1000003 ^ ord(character)) % 2**bits
    assert hashes.named(f"string_{bits}")(text) == value ^ len(text)
    assert hashes.named(f"string_{bits}")("") == 0


def test_the_string_hash_of_32_bits_is_that_of_old_cpython() -> None:
    # hash("a") of a 32-bit CPython 2: -468864544, as an unsigned number.
    assert hashes.named("string_32")("a") == -468864544 % 2**32


@pytest.mark.slow
@pytest.mark.parametrize("name", names)
@given(features=st.lists(any_text, max_size=5))
def test_hashing_many_is_hashing_each(name: str, features: list[str]) -> None:
    hash_ = hashes.named(name)
    rows = hash_.words(features)
    read = [int(row) if rows.ndim == 1 else from_words(row.tolist()) for row in rows]
    assert read == [hash_(feature) for feature in features]
    assert all(value < 2**hash_.bits for value in read)


def from_words(words: list[int]) -> int:
    return sum(word << 64 * i for i, word in enumerate(reversed(words)))


@pytest.mark.parametrize(
    ("name", "bits"), [("crc32", 33), ("xxh3_64", 65), ("md5", 129), ("sha1", 161), ("string_64", 65)]
)
def test_a_hash_narrower_than_the_fingerprint_is_refused(name: str, bits: int) -> None:
    with pytest.raises(ProfileError, match=f"the fingerprint wants {bits}"):
        hashes.wide_enough(name, bits)
    assert hashes.wide_enough(name, bits - 1).name == name


@pytest.mark.parametrize("name", ["sha2", "string_", "string_7", "string_257", "string_x", "XXH3_64", ""])
def test_a_hash_without_that_name_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="no hash is named"):
        hashes.named(name)


@pytest.mark.parametrize("bits", [7, 257, 0, -8])
def test_fingerprints_have_8_to_256_bits(bits: int) -> None:
    with pytest.raises(ProfileError, match="8 to 256 bits"):
        hashes.wide_enough("string_256", bits)


def test_any_callable_is_a_hash_cut_to_its_width() -> None:
    hash_ = hashes.of_callable(lambda text: len(text) + (1 << 100), bits=64, name="length")
    assert hash_("four") == 4
    assert hash_.words(["a", "bb"]).tolist() == [1, 2]
    with pytest.raises(ProfileError, match="hash length has 64 bits"):
        hashes.wide_enough(hash_, 128)
