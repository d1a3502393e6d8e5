"""Dead letters: the record as it came, with why and from where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.judging.judge import Rejected
from worker.records.dead_letter import dead_letter, record_size
from worker.records.passing import Source

REJECTION = Rejected(Source("pages", 3, 42, 7), "decode", "PageError", "not JSON: Expecting value at character 0")
REASONS = [
    ("__connect.errors.topic", b"pages"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"42"),
    ("__connect.errors.stage", b"decode"),
    ("__connect.errors.exception.class.name", b"PageError"),
    ("__connect.errors.exception.message", b"not JSON: Expecting value at character 0"),
]


def test_key_value_and_headers_are_as_they_came_and_the_reasons_are_added():
    letter = dead_letter(REJECTION, b"k", b"junk", [("traceparent", b"00-a"), ("x", b"")], "dlq", 1 << 20)
    assert (letter.topic, letter.key, letter.value) == ("dlq", b"k", b"junk")
    assert letter.headers == [("traceparent", b"00-a"), ("x", b""), *REASONS]


def test_a_dead_letter_that_came_back_has_the_reasons_of_this_time_only():
    letter = dead_letter(REJECTION, b"k", b"junk", [("__connect.errors.topic", b"old"), ("a", b"b")], "dlq", 1 << 20)
    assert letter.headers == [("a", b"b"), *REASONS]


def test_a_tombstone_stays_one_unless_it_has_no_key_either():
    assert dead_letter(REJECTION, b"k", None, [], "dlq", 1 << 20).value is None
    letter = dead_letter(REJECTION, None, None, [], "dlq", 1 << 20)
    assert (letter.key, letter.value) == (None, b"")
    assert letter.headers[-1] == ("__connect.errors.value", b"null")


@pytest.mark.parametrize(
    ("key", "value", "headers", "kept_key", "kept_headers", "digests"),
    [
        (1, 9000, 100, True, True, {"value"}),
        (1, 9000, 9000, True, False, {"value"}),
        (9000, 9000, 9000, False, False, {"value", "key"}),
        (9000, 1, 1, False, False, {"key"}),
    ],
)
def test_what_does_not_fit_the_topic_is_named_by_its_digest(key, value, headers, kept_key, kept_headers, digests):
    original = [("h", b"h" * headers)]
    letter = dead_letter(REJECTION, b"k" * key, b"v" * value, original, "dlq", 4000)
    assert (letter.key == b"k" * key) == kept_key
    assert (original[0] in letter.headers) == kept_headers
    assert {name.rpartition(".")[2] for name, said in letter.headers if said == b"digest"} == digests
    assert letter.headers[-len(digests) - len(REASONS) :][: len(REASONS)] == REASONS
    if "value" in digests:
        assert letter.value.startswith(b"9000 bytes, xxh3_128 ")


def test_a_message_that_quotes_the_page_is_cut_and_can_be_sent():
    rejection = REJECTION.__class__(REJECTION.source, "extract", "PageError", "\ud800" + "é" * 5000)
    message = dict(dead_letter(rejection, b"k", b"v", [], "dlq", 1 << 20).headers)["__connect.errors.exception.message"]
    assert len(message) <= 2000
    message.decode()


@given(st.binary(max_size=3000), st.none() | st.binary(max_size=3000), st.integers(0, 3000))
def test_every_letter_fits_its_topic(value, key, header_bytes):
    letter = dead_letter(REJECTION, key, value, [("h", b"h" * header_bytes)], "dlq", 3000)
    assert record_size(letter.key, letter.value, letter.headers) <= 3000
