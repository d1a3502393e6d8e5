"""The verdict's bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.records.verdict import Match, SourceFields, Verdict, decode, decode_told, encode, hexadecimal

SEEN = Match("http://x/", None, 2, "near", True, None, 1)
VERDICT = Verdict(
    "http://x/é", "7", "duplicate", SEEN, "00ff", None, "text:0", 5, "default/1", None, None, "aa",
    SourceFields("pages", 1, 2, 3),
)  # fmt: skip


def test_a_verdict_is_one_line_of_json_with_its_fields_in_order():
    data = encode(VERDICT)
    assert b"\n" not in data
    assert list(json.loads(data)) == [
        "url", "id", "verdict", "match", "fingerprint", "verifier", "digest", "features", "profile", "seq",
        "fetched_at", "observation", "source", "better", "canonical",
        "language", "robots", "previous",
    ]  # fmt: skip
    assert json.loads(data)["source"] == {"topic": "pages", "partition": 1, "offset": 2, "timestamp": 3}


shares = st.none() | st.floats(0, 1)
matches = st.none() | st.builds(Match, similarity=shares, containment=shares)


@given(st.builds(Verdict, match=matches, source=st.builds(SourceFields)))
def test_decode_is_the_inverse_of_encode(verdict):
    try:
        data = encode(verdict)
    except (UnicodeEncodeError, OverflowError):
        return
    assert decode(data) == verdict


def test_what_is_no_verdict_is_refused():
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"url":"http://x/"}')


TOLD = msgspec.structs.replace(VERDICT, digest="text:" + "0" * 32, observation="a" * 32)


@pytest.mark.parametrize(("name", "most"), [("url", 32_768), ("id", 1024), ("fetched_at", 64)])
def test_what_is_to_be_stored_is_as_long_as_a_page_s_may_be(name, most):
    longest = msgspec.structs.replace(TOLD, **{name: "é" * (most // 2)})
    assert encode(decode_told(encode(longest))) == encode(longest)
    with pytest.raises(msgspec.DecodeError, match=f"{name} is longer than {most:,} bytes"):
        decode_told(encode(msgspec.structs.replace(TOLD, **{name: "é" * (most // 2) + "e"})))


def test_a_duplicate_with_a_number_of_its_own_is_not_stored():
    with pytest.raises(msgspec.DecodeError, match="a duplicate has no number of its own, this one has seq 7"):
        decode_told(encode(msgspec.structs.replace(TOLD, seq=7)))
    unique = msgspec.structs.replace(TOLD, verdict="unique", match=None, seq=7)
    assert encode(decode_told(encode(unique))) == encode(unique)


@pytest.mark.parametrize(("value", "bits", "text"), [(None, 64, None), (0xFF, 64, "0" * 14 + "ff"), (1, 5, "01")])
def test_fingerprints_are_written_with_all_their_zeros(value, bits, text):
    assert hexadecimal(value, bits) == text
