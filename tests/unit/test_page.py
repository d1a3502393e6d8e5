"""From a record's bytes to a page, or to an error that says what is wrong with them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import PageError
from worker.records.page import Limits, charset_of, checked, decode_page, observation
from worker.records.passing import Page, Source

LIMITS = Limits(page=1000, url=100, key=50)


def page_json(**fields):
    return json.dumps({"url": "http://x/"} | fields).encode()


def refusal(value, key=b"k", page_format="json"):
    with pytest.raises(PageError) as caught:
        decode_page(key, value, page_format, LIMITS)
    assert caught.value.stage == "decode"
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "the record has no value (a tombstone)"),
        (b"", "not JSON: the value is empty"),
        (b" \n", "not JSON: the value is empty"),
        (b"hello", "not JSON: Expecting value at character 0"),
        (b'{"url":"http://x/","text":"a"} x', "not JSON: Extra data at character 31"),
        (b'{"url":"http://x/","text":"a\x01"}', "not JSON: Invalid control character at character 28"),
        (b'{"url":"http://x/","text":"a","n":NaN}', "not JSON: NaN is no number in JSON"),
        (b"[]", "not a page: Expected `object`, got `array`"),
        (b"42", "not a page: Expected `object`, got `int`"),
        (b"null", "not a page: Expected `object`, got `null`"),
        (b'{"text":"a"}', "not a page: Object missing required field `url`"),
        (page_json(url=None, text="a"), "not a page: Expected `str`, got `null` - at `$.url`"),
        (page_json(html=5), "not a page: Expected `str | null`, got `int` - at `$.html`"),
        (page_json(url=" ", text="a"), "url is empty"),
        (page_json(url="http://x/\0", text="a"), "url has a control character, U+0000, at character 9"),
        (page_json(url="http://x/" + "é" * 50, text="a"), "url has 109 bytes, more than max_url_bytes = 100"),
        (page_json(), "this one has none of them"),
        (page_json(html="a", text="b"), "this one has html and text"),
        (page_json(text="a" * 1001), "the page has 1,001 bytes, more than max_page_bytes = 1,000"),
        (page_json(text="é" * 501), "the page has 1,002 bytes"),
        (page_json(html_base64=base64.b64encode(b"a" * 1001).decode()), "the page has 1,001 bytes"),
        (page_json(html_base64="@@"), "html_base64 is not base64: Only base64 data is allowed"),
        (page_json(html_base64="abc"), "html_base64 is not base64: Incorrect padding"),
        (page_json(text="a", id="i" * 1025), "id has 1,025 bytes, more than 1,024"),
        (page_json(text="a", fetched_at="2" * 65), "fetched_at has 65 bytes, more than 64"),
        (b'{"url":"http://x/\\ud800","text":"a"}', "'url' has a lone surrogate, U+D800, at character 9 of 10"),
        (b'{"url":"http://x/","html":"a\\udc00"}', "'html' has a lone surrogate, U+DC00, at character 1 of 2"),
        (b'{"url":"http://x/","text":"\xed\xa0\x80"}', "not UTF-8: byte 27 of 32 is 0xed"),
        (b'{"url":"http://x/","text":"\xff"}', "not UTF-8: byte 27 of 30 is 0xff"),
        (json.dumps({"url": "http://x/"}).encode("utf-16"), "not UTF-8: byte 0"),
        (b"\x1f\x8b\x08\0", "not UTF-8: byte 1 of 4 is 0x8b"),
        (b'{"url":"http://x/","text":"a","z":' + b"[" * 9999 + b"]" * 9999 + b"}", "JSON nested too deeply"),
        (b'{"a":' * 9999, "JSON nested too deeply"),
        (b"x" * 2_000_000, "the record has 2,000,000 bytes, far more than max_page_bytes = 1,000"),
    ],
)
def test_what_is_no_page_is_refused_with_the_reason(value, message):
    assert message in refusal(value)


def test_a_long_name_before_a_lone_surrogate_is_cut_in_the_message():
    assert len(refusal(b'{"' + b"n" * 5000 + b'":"\\ud800"}')) < 200


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (b"\xef\xbb\xbf" + page_json(text="a"), "http://x/"),
        (page_json(text="a", unknown={"b": [1e300, 10**30]}), "http://x/"),
        (b'{"url":"http://x/1","url":"http://x/2","text":"a"}', "http://x/2"),
        (page_json(text="a", html=None, html_base64=None), "http://x/"),
    ],
)
def test_what_is_odd_but_a_page_is_read(value, url):
    """A byte order mark, unknown fields, a key twice (the last one counts), nulls."""
    assert decode_page(None, value, "json", LIMITS) == Page(url, b"a", is_html=False, is_utf8=True)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "the record has no key; in page format html the key is the URL"),
        (b"", "the record has no key"),
        (b"\xff", "the key, which should be the URL, is not UTF-8"),
        (b"k" * 51, "the key has 51 bytes, more than max_key_bytes = 50"),
    ],
)
def test_a_raw_page_needs_its_url_as_key(key, message):
    assert message in refusal(b"<p>a", key, "html")


def test_a_json_page_needs_no_key_but_a_key_has_a_limit():
    assert decode_page(None, page_json(text="a"), "json", LIMITS).url == "http://x/"
    assert "the key has 51 bytes" in refusal(page_json(text="a"), b"k" * 51)


def test_what_is_just_at_the_limits_is_a_page():
    address, text = "http://x/" + "u" * 91, "é" * 500
    long = page_json(url=address, text=text, id="i" * 1024, fetched_at="2" * 64)
    assert decode_page(b"k" * 50, long, "json", LIMITS) == Page(
        address, text.encode(), is_html=False, is_utf8=True, id="i" * 1024, fetched_at="2" * 64
    )


def test_a_raw_page_is_its_value():
    page = decode_page("http://x/é".encode(), b"\0\xff", "html", LIMITS)
    assert page == Page("http://x/é", b"\0\xff", is_html=True)


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        (None, None),
        ("text/html", None),
        ("text/html; charset=UTF-8", "UTF-8"),
        ('text/html; Charset = "gbk"; x=y', "gbk"),
        ("text/html; charset=", None),
        ("text/html; charset*=utf-8''%F0; charset*0=x; charset*1*=y%ff", None),
        ("text/html; charset=" + "x" * 50, "x" * 40),
        ("x" * 2000 + "charset=gbk", None),
    ],
)
def test_the_charset_of_a_content_type(content_type, charset):
    assert charset_of(content_type) == charset


@given(st.binary() | st.text().map(str.encode), st.sampled_from(["json", "html"]), st.none() | st.binary())
def test_any_bytes_are_a_page_within_the_limits_or_refused(value, page_format, key):
    try:
        page = decode_page(key, value, page_format, LIMITS)
    except PageError:
        return
    assert checked(page, LIMITS) == page


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=4
)


@given(
    st.dictionaries(
        st.sampled_from(["url", "html", "text", "html_base64", "charset", "id", "fetched_at", "content_type", "x"]),
        json_values,
    )
)
def test_any_json_object_is_a_page_within_the_limits_or_refused(fields):
    try:
        page = decode_page(b"k", json.dumps(fields).encode(), "json", LIMITS)
    except PageError:
        return
    assert checked(page, LIMITS) == page
    page.content.decode("utf-8", "replace")


@given(st.binary(), st.binary(), st.none() | st.binary(), st.none() | st.binary())
def test_an_observation_tells_key_and_value_apart(value, other_value, key, other_key):
    source = Source("t", 0, 1, 2)
    same = (key, value) == (other_key, other_value)
    assert (observation(source, key, value) == observation(source, other_key, other_value)) == same
