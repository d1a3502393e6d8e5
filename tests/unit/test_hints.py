"""What a page says of itself: made absolute and comparable, and left out where it makes no sense."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.reading.extracted import Extracted
from worker.records.hints import MAX_CANONICAL_BYTES, NO_HINTS, canonical_url, hints_of, host_of, is_same_address

BASE = "https://news.example/2026/a.html?page=2#top"


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("https://other.example/b", "https://other.example/b"),
        ("/b", "https://news.example/b"),
        ("b", "https://news.example/2026/b"),
        ("../b?x=1#part", "https://news.example/b?x=1"),
        ("?page=1", "https://news.example/2026/a.html?page=1"),
        ("#top", "https://news.example/2026/a.html?page=2"),
        ("//cdn.example", "https://cdn.example"),
        ("HTTP://B.example:8080/", "HTTP://B.example:8080/"),
        ("/a b/日本", "https://news.example/a%20b/日本"),
        ("/" + "b" * (MAX_CANONICAL_BYTES - 21), "https://news.example/" + "b" * (MAX_CANONICAL_BYTES - 21)),
    ],
)
def test_a_reference_is_resolved_against_the_pages_url(reference, meant):
    assert canonical_url(reference, BASE) == meant


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "javascript:void(0)",
        "mailto:a@b.example",
        "ftp://b.example/",
        "http://",
        "https://user:secret@b.example/",
        "https://{{ host }}/b",
        "https://b.example:port/",
        "https://[::1/",
        '"/b"',
        "<?php echo $url ?>",
        "/b\x01",
        "/" + "b" * MAX_CANONICAL_BYTES,
        "/" + "é" * (MAX_CANONICAL_BYTES // 2),
    ],
)
def test_what_is_no_web_address_is_left_out(reference):
    assert canonical_url(reference, BASE) is None


@pytest.mark.parametrize("base", ["doc-17", "urn:isbn:1", "file:///a/b", "http://[", ""])
def test_a_page_without_a_web_address_can_still_name_one(base):
    assert canonical_url("https://b.example/", base) in ("https://b.example/", None)
    assert canonical_url("/b", base) is None


@given(st.text(max_size=60) | st.text("/:.#?@[]ab% \\", max_size=30), st.sampled_from([BASE, "x", "http://h"]))
def test_whatever_is_written_there_comes_out_as_a_web_address_or_not_at_all(reference, base):
    found = canonical_url(reference, base)
    if found is not None:
        parts = urlsplit(found)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert not parts.username
        assert not {" ", "#"} & set(found)


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("http://a.example", "HTTP://A.example:80/#x", True),
        ("https://a.example/b c", "https://a.example:443/b%20c", True),
        ("https://a.example/b", "http://a.example/b", False),
        ("https://a.example/b", "https://a.example/b/", False),
        ("https://a.example/b?c", "https://a.example/b", False),
        ("https://a.example/B", "https://a.example/b", False),
        ("http://a.example:8080/", "http://a.example/", False),
        ("doc-17", "doc-17", True),
        ("http://[", "http://a.example/", False),
    ],
)
def test_two_spellings_of_one_address_are_one(url, other, same):
    assert is_same_address(url, other) == is_same_address(other, url) == same


@pytest.mark.parametrize(
    ("language", "robots", "said"),
    [
        ("de", "NoIndex,follow", ("de", "noindex, follow")),
        ("zh-Hant-TW", " ,max-snippet:20, ", ("zh-Hant-TW", "max-snippet:20")),
        ("pt_BR", "", ("pt_BR", None)),
        ("{{ lang }}", ",", (None, None)),
        ("x" * 100, "n" * 257, (None, None)),
    ],
)
def test_language_and_robots_are_short_or_left_out(language, robots, said):
    assert hints_of(Extracted("", "", language, "", robots), BASE) == (None, *said)


def test_most_pages_say_nothing():
    assert hints_of(Extracted("text", "title"), BASE) is NO_HINTS


URLS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["http://", "https://", "HTTP://", "http:", "ftp://", " http://", "//"]),
    st.text("aZ0.-:@[]é_\t%", max_size=8),
    st.sampled_from(["", "/", "/a?b", "?b", "#c", "/\n", "\n/"]),
)


@given(URLS)
def test_the_host_is_what_the_standard_library_says(url):
    try:
        said = urlsplit(url).hostname
    except ValueError:
        said = None
    assert host_of(url) == said
