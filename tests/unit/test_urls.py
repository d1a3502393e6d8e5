"""URLs by a dictionary: what is compressed comes back, and what is no dictionary is refused."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.url_dictionary import Maker, words
from simhash.index.urls import HEAD, UrlCodec, UrlDictionary, shipped, stored_bytes, trained

CODEC = UrlCodec(shipped())


def made_up(count, seed):
    maker = Maker(words(), Random(seed))
    return [maker.url() for _ in range(count)]


@given(st.text(max_size=200).map(str.encode) | st.binary(max_size=300))
def test_what_is_compressed_comes_back_and_is_shorter(data):
    body = CODEC.compressed(data)
    if body is not None:
        assert len(body) < len(data)
        assert CODEC.decompressed(body) == data


@given(st.binary(max_size=60))
def test_what_nobody_compressed_is_refused_or_is_bounded(data):
    with suppress(ValueError):
        assert len(CODEC.decompressed(data)) <= 1 << 16


def test_threads_may_share_a_codec():
    """zstd's own objects crash under two."""
    urls = [url.removeprefix(HEAD).encode() for url in made_up(1000, 5)]
    with ThreadPoolExecutor(6) as pool:
        bodies = list(pool.map(CODEC.compressed, urls * 6))
        assert bodies == [CODEC.compressed(url) for url in urls] * 6
        shorter = {body: url for url, body in zip(urls, bodies, strict=False) if body is not None}
        assert list(pool.map(CODEC.decompressed, [*shorter] * 6)) == [*shorter.values()] * 6


def test_a_very_long_url_comes_back_or_is_kept_as_it_is():
    for data in (b"a" * 32_768, Random(1).randbytes(32_768), b"b" * 70_000, b""):
        body = CODEC.compressed(data)
        assert body is None or CODEC.decompressed(body) == data


def test_the_shipped_dictionary_is_the_one_that_the_benchmark_makes_and_takes_a_third_off_urls():
    assert 16 << 10 <= len(shipped().content) <= 64 << 10
    others = made_up(300, 99)
    plain = sum(len(url.removeprefix(HEAD)) for url in others) / len(others)
    assert stored_bytes(shipped(), others) < 0.75 * plain


def test_a_dictionary_of_ones_own_urls_takes_more_off():
    own = [f"https://shop.example.org/en/garden/tools/{number:08}/spade-{number % 7}.html" for number in range(3000)]
    made = trained(own[::2], 8 << 10)
    assert made == trained(own[::2], 8 << 10)
    assert stored_bytes(made, own[1::2]) < stored_bytes(shipped(), own[1::2])
    assert UrlDictionary.of_text(made.text) == made


@pytest.mark.parametrize("content", [b"", b"x" * 2000, bytes(300_000)])
def test_what_is_no_dictionary_is_refused(content):
    with pytest.raises(ValueError, match="dictionary"):
        UrlDictionary(content)


def test_too_few_urls_teach_nothing():
    with pytest.raises(ValueError, match="teach nothing"):
        trained(["https://a/"] * 3, 8 << 10)
