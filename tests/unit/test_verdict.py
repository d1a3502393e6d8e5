"""The verdict's bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.records.verdict import Match, SourceFields, Verdict, decode, encode, hexadecimal

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


@pytest.mark.parametrize(("value", "bits", "text"), [(None, 64, None), (0xFF, 64, "0" * 14 + "ff"), (1, 5, "01")])
def test_fingerprints_are_written_with_all_their_zeros(value, bits, text):
    assert hexadecimal(value, bits) == text
