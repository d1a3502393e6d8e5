"""Versions of URLs: what is kept of a page, and what two say of how much it changed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.index.interface import FIRST_DAY, day_of
from simhash.index.redis.layout import Layout
from simhash.index.versions import Change, change, least_and_most, packed, url_hash
from simhash.signature.profiles import DEFAULT, profile

WORDS = [f"word{n}" for n in range(300)]
OBSERVATION = bytes(range(16))


def version(text, fetched_at="2026-01-02T03:04:05Z", recipe=DEFAULT):
    return packed(recipe.signature(text, b""), OBSERVATION, fetched_at, recipe)


def test_a_version_of_the_default_profile_has_32_bytes():
    assert len(version(" ".join(WORDS))) == 32
    assert len(version("a few words")) == 15
    assert len(version(" ".join(WORDS), recipe=profile("segmented"))) == 16


def test_a_change_is_told_by_distance_and_similarity():
    before, now = version(" ".join(WORDS)), version(" ".join([*WORDS[:-30], *"abcdefghij"]))
    found = change(before, now, DEFAULT)
    assert found.fetched_at == "2026-01-02T03:04:05Z"
    a, b = (DEFAULT.signature(text, b"") for text in (" ".join(WORDS), " ".join([*WORDS[:-30], *"abcdefghij"])))
    assert found.distance == (a.fingerprint ^ b.fingerprint).bit_count()
    assert found.similarity == pytest.approx(266 / 306, abs=0.15)
    assert change(before, before, DEFAULT)[1:] == (0, 1.0)


def test_pages_too_short_to_compare_are_equal_or_not_to_be_compared():
    short = version("a few words")
    assert change(short, short, DEFAULT)[1:] == (0, 1.0)
    assert change(short, version("other words"), DEFAULT)[1:] == (None, None)
    assert change(short, version(" ".join(WORDS)), DEFAULT)[1:] == (None, None)


def test_a_profile_without_a_sketch_tells_the_distance_alone():
    recipe = profile("segmented")
    long = version(" ".join(WORDS), recipe=recipe)
    assert change(long, long, recipe) == Change("2026-01-02T03:04:05Z", 0, None)


@pytest.mark.parametrize("bits", [32, 56, 64])
def test_a_narrow_fingerprint_is_not_taken_for_a_digest(bits):
    recipe = replace(profile("segmented"), bits=bits)
    before, now = (version(text, recipe=recipe) for text in (" ".join(WORDS), " ".join(WORDS[100:])))
    a, b = (recipe.signature(text, b"").fingerprint for text in (" ".join(WORDS), " ".join(WORDS[100:])))
    assert change(before, now, recipe).distance == (a ^ b).bit_count() > 0
    least, most = least_and_most(bits // 8)
    assert least < len(now) <= most


@pytest.mark.parametrize(
    ("given_as", "told"),
    [
        ("2026-01-02T03:04:05.9+01:00", "2026-01-02T02:04:05Z"),
        ("2026-01-02", "2026-01-02T00:00:00Z"),
        (None, None),
        ("yesterday", None),
        ("1969-01-01T00:00:00Z", None),
        ("9999-01-01T00:00:00Z", None),
    ],
)
def test_a_fetch_time_is_told_in_utc_to_the_second(given_as, told):
    assert change(version("a", given_as), version("a"), DEFAULT).fetched_at == told


@given(st.integers(0, 1 << 60))
def test_a_day_has_two_bytes(now):
    assert 0 <= day_of(now) < 1 << 16


def test_days_are_counted_from_2020():
    assert (day_of(FIRST_DAY * 86_400_000), day_of((FIRST_DAY + 9) * 86_400_000 - 1), day_of(0)) == (0, 8, 0)


@given(st.text(max_size=30).filter(lambda text: text.isprintable()), st.integers(1, 32))
def test_a_urls_place_is_made_of_the_first_bits_of_its_hash(url, bits):
    layout = Layout.__new__(Layout)
    layout.tag = "{x}"
    key, field = layout.version(url_hash(url), bits)
    found = int(key.removeprefix("{x}:v:"), 16) << 32 | int.from_bytes(field)
    assert found == url_hash(url) >> (32 - bits)
