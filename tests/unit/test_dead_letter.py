"""Dead letters: the record as it came, with why and from where."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from worker.cli.dlq import Wanted, _why_not
from worker.judging.judge import Rejected
from worker.records.dead_letter import Place, dead_letter, read_letter, read_mark
from worker.records.passing import Outgoing, RawRecord, Received, Source, Unread, record_size
from worker.settings import Settings

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


@given(st.none() | st.binary(max_size=3000), st.none() | st.binary(max_size=3000), st.integers(0, 3000))
def test_every_letter_fits_its_topic(value, key, header_bytes):
    letter = dead_letter(REJECTION, key, value, [("h", b"h" * header_bytes)], "dlq", 3000)
    assert record_size(letter.key, letter.value, letter.headers) <= 3000


def test_headers_that_were_not_read_are_told_as_dropped():
    unread = Unread.of(70_000_000, xxhash.xxh3_128(b"headers"))
    told = received(dead_letter(REJECTION, b"k", b"v", [("headers", unread)], "dlq", 1 << 20))
    assert read_letter(told).lacks == ("headers",)
    assert "headers" not in dict(told.headers)


HERE = Place(0, 7)


def received(outgoing, place=HERE):
    """What was sent, as it is read again."""
    source = Source(outgoing.topic, *place, 1000)
    return Received(RawRecord(source, outgoing.key, outgoing.value), outgoing.headers)


NAMES = st.sampled_from(["traceparent", "x", "simhash-dedup.other", "simhash-dedup.replayed"])


@given(
    st.none() | st.binary(max_size=900),
    st.none() | st.binary(max_size=900),
    st.lists(st.tuples(NAMES, st.binary(max_size=900)), max_size=2),
    st.integers(0, 3),
)
def test_what_is_sent_back_is_the_record_as_it_came_or_is_refused(key, value, headers, replays):
    was = [*headers, ("simhash-dedup.replays", str(replays).encode())] if replays else headers
    told = received(dead_letter(REJECTION, key, value, was, "dlq", 2500))
    assert read_mark(told) is None
    letter = read_letter(told)
    again = [*headers, ("simhash-dedup.replays", str(letter.replays + 1).encode())]
    whole = letter.sent_back(3) == Outgoing("pages", key, value, again, 3) and letter.replays == replays
    refused = _why_not(letter, Settings(), again=True)
    assert whole == (refused is None)
    assert refused is None or "pages[3] offset 42" in refused


def test_a_mark_is_no_letter_and_names_one():
    letter = read_letter(received(dead_letter(REJECTION, b"k", b"v", [], "dlq", 1 << 20), Place(2, 9)))
    mark = received(letter.mark("dlq"), Place(2, 10))
    assert (read_letter(mark), read_mark(mark)) == (None, Place(2, 9))
    assert read_mark(received(letter.sent_back(0))) is None
    assert read_letter(Received(RawRecord(Source("dlq", 0, 0, 0), b"k", b"v"), [("strange", b"\xff")])) is None


def test_a_record_that_comes_in_with_a_mark_s_header_becomes_a_letter_and_no_mark():
    """As one does that a tool copied from a dead-letter topic, mark and all."""
    copied = dead_letter(REJECTION, None, b"", [("simhash-dedup.replayed", b"0/7")], "dlq", 1 << 20)
    assert read_mark(received(copied)) is None
    assert read_letter(received(copied)).headers == [("simhash-dedup.replayed", b"0/7")]


@pytest.mark.parametrize("number", [b"", b"-1", b"1" * 5000, b"\xd9\xa3"])
@pytest.mark.parametrize("name", ["partition", "offset"])
def test_what_another_program_wrote_with_headers_like_ours_is_no_letter(name, number):
    headers = [*REASONS, (f"__connect.errors.{name}", number)]
    assert read_letter(Received(RawRecord(Source("dlq", 0, 0, 0), b"k", b"v"), headers)) is None


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (Wanted(), True),
        (Wanted(places=(Place(0, 7),), error="decode", partitions=(3, 4), since=1000, until=1001), True),
        (Wanted(error="PageError"), True),
        (Wanted(error="Expecting value"), True),
        (Wanted(error="Page"), False),
        (Wanted(places=(Place(0, 8),)), False),
        (Wanted(partitions=(0,)), False),
        (Wanted(since=1001), False),
        (Wanted(until=1000), False),
    ],
)
def test_letters_are_chosen_by_place_error_partition_and_time(wanted, meant):
    assert wanted.has(read_letter(received(dead_letter(REJECTION, b"k", b"v", [], "dlq", 1 << 20)))) == meant


def test_a_place_that_is_none_is_told_how_to_be_written():
    assert Place.read("0/12") == Place(0, 12)
    for text in ("", "12", "0/12/1", "0/-1", "a/12", "0/12 "):
        with pytest.raises(ValueError, match="is no place of a letter: write partition/offset, as in 0/12"):
            Place.read(text)
