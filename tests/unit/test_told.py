"""What the checker from outside reads: anything that is not what it should be is a ValueError, never another one."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simhash.index import rows
from worker import hosts
from worker.errors import InputError
from worker.records import hints, verdict
from worker.records.page import observation
from worker.records.passing import Source
from worker.verifying import told
from worker.verifying.table_masks import exported
from worker.verifying.told import Coordinates

VERDICT = {
    "url": "http://a/", "id": None, "verdict": "duplicate", "fingerprint": "00ff", "verifier": "00",
    "match": {"url": "http://b/", "id": None, "distance": 1, "kind": "near", "same_url": False, "fetched_at": None,
              "seq": 1, "similarity": 1},
    "digest": "text:" + "a" * 32, "profile": "p/1", "seq": None, "fetched_at": None, "observation": "b" * 32,
    "source": {"topic": "t", "partition": 0, "offset": 0},
}  # fmt: skip
RECORD = {
    "row": "record", "seq": 1, "fingerprint": "ff", "verifier": None, "digest": "text:" + "a" * 16,
    "observation": "b" * 16, "url": "http://a/", "id": None, "fetched_at": None,
}  # fmt: skip
HEAD = {
    "row": "index", "generation": "1-0a", "profile": {"verifier": None}, "reach": 3, "verifier_reach": None,
    "verifier_bits": 0, "bands": 0, "bucket_bits": 9,
    "design": {"name": "x", "bits": 8, "radius": 0, "tables": [[4, [[0, 4], [4, 4]]]]},
}  # fmt: skip
TAKEDOWN = {"url": "http://a/", "at": 1, "seq": 1, "observation": "b" * 16}
ROWS = [(told.verdict, VERDICT), (told.row, RECORD), (told.row, HEAD), (told.takedown, TAKEDOWN)]
WRONG = {
    "fingerprint": ["", "zz", "é", "ff\n", 1], "verifier": ["g", " 0"], "digest": ["", "text" + "a" * 32, "text:ab"],
    "observation": ["", "b" * 15, "b" * 31 + "é", "b" * 16 + "\n"], "seq": [-1, 1 << 48, 10**30, 1.5],
    "source": [{"topic": "t", "partition": 10**30, "offset": 0}, {"topic": "t", "partition": 0, "offset": -1}],
    "design": [{}, {"name": "3", "bits": 64, "radius": 0, "tables": [[20, [[None, 4]]]]}, {"name": "3", "bits": 10**9}],
    "match": [VERDICT["match"] | wrong for wrong in ({"distance": -1}, {"similarity": 1.1}, {"seq": 1 << 60})],
}  # fmt: skip


@pytest.mark.parametrize(("read", "whole"), ROWS)
def test_a_field_that_cannot_be_is_a_value_error(read, whole):
    assert read(json.dumps(whole).encode()) is not None
    for name in whole.keys() & WRONG.keys():
        for wrong in WRONG[name]:
            with pytest.raises(ValueError, match=r"\w"):
                read(json.dumps(whole | {name: wrong}).encode())
    for cut in (b"", b"{", b"\xff", b'"\\ud800"', b"[" * 5000):
        with pytest.raises(ValueError, match=r"\w"):
            read(cut)


@pytest.mark.parametrize("changes", [{"radius": [1, 2]}, {"tables": [[4, [[0, 4], [4, 5]]]]}])
def test_a_design_whose_tables_are_not_those_of_one_fingerprint_is_refused(changes):
    design = {**HEAD["design"], **changes}
    with pytest.raises(InputError, match="has no design"):
        exported(told.row(json.dumps(HEAD | {"design": design}).encode()).design)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "about"),
    [
        (b"t", b"3", b"14", Coordinates("t", 3, 14)),
        (b"\xff", b"3", b"14", Coordinates("\ufffd", 3, 14)),
        (b"t", b"\xff", b"14", None),
        (b"t", b"3", b"9" * 30, None),
        (b"t", b"-3", b"14", None),
        (b"", b"3", b"14", None),
    ],
)
def test_a_dead_letter_of_another_program_is_about_no_record(topic, partition, offset, about):
    said = {"topic": topic, "partition": partition, "offset": offset}
    assert told.letter({told.ERRORS_PREFIX + name: value for name, value in said.items()}) == about


@pytest.mark.parametrize(
    "decode", [told.verdict, told.row, told.takedown, told.rejected, verdict.decode, verdict.decode_told, rows.decoded,
               rows.decoded_takedown, hosts.decoded]
)  # fmt: skip
def test_what_is_nested_too_deeply_is_a_value_error(decode):
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize(
    ("match", "canonical", "is_same"),
    [
        ("HTTP://A:80", "http://a/", True),
        ("http://a:0/", "http://a/", True),
        ("http://a:00080/", "http://a/", True),
        ("http://a:65536/", "http://a:65535/", False),
        (f"http://a:{'9' * 5000}/", "http://a/", False),
        (f"http://a:{'0' * 5000}80/", "http://a/", False),
        ("HTTP://A%20B/", "http://a%20b/", False),
        ("http://u@a/x y", "http://a/x%20y", True),
    ],
)
def test_a_canonical_url_is_compared_as_the_worker_does(match, canonical, is_same):
    """A port of 5,000 digits made a true verdict none."""
    assert hints.is_same_address(match, canonical) is is_same
    for said in (is_same, not is_same):
        whole = VERDICT | {"canonical": canonical, "match": VERDICT["match"] | {"url": match, "is_canonical": said}}
        assert told.is_wrong_of_canonical(told.verdict(json.dumps(whole).encode())) is (said is not is_same)


PARTS = (
    ("http", "https", "HTTP", "Https", "ftp"), ("://",), ("", "u@", "u:p@", "@", "u@v@"),
    ("a", "A", "b", "a.b", "[::1]", "[FE80::1%25Eth0]", "[FE80::1%25eth0]", "É", "a%20b", "xn--a", ""),
    ("", ":", ":0", ":80", ":443", ":080", ":0443", ":8080", ":65536", ":x"),
    ("", "/", "/a", "/A", "//", "/a b", "/a%20b"), ("", "?", "?q", "?q?r", "?Q"), ("", "#", "#f"),
)  # fmt: skip
ADDRESSES = st.tuples(*map(st.sampled_from, PARTS)).map("".join)


@given(ADDRESSES, ADDRESSES)
def test_any_two_addresses_are_compared_as_the_worker_does(match, reference):
    canonical = hints.canonical_url(reference, "http://a/")
    assume(canonical)
    is_same = hints.is_same_address(match, canonical)
    whole = VERDICT | {"canonical": canonical, "match": VERDICT["match"] | {"url": match, "is_canonical": is_same}}
    assert not told.is_wrong_of_canonical(told.verdict(json.dumps(whole).encode()))


@given(ADDRESSES, ADDRESSES)
def test_the_hosts_of_any_two_addresses_are_compared_as_the_worker_does(own, match):
    host = hints.host_of(own)
    is_same = own == match or (host is not None and host == hints.host_of(match))
    whole = VERDICT | {"url": own, "match": VERDICT["match"] | {"url": match, "same_host": is_same}}
    assert not told.is_wrong_of_host(told.verdict(json.dumps(whole).encode()))


@pytest.mark.parametrize(
    ("own", "match", "is_same"),
    [
        ("http://a.example/x", "https://A.example:8443?y", True),
        ("http://a.example", "http://b.example", False),
        ("http://a.example/", "http://a.example.net/", False),
    ],
)
def test_what_is_wrongly_said_of_two_hosts_is_seen(own, match, is_same):
    for said in (is_same, not is_same, None):
        whole = VERDICT | {"url": own, "match": VERDICT["match"] | {"url": match, "same_host": said}}
        assert told.is_wrong_of_host(told.verdict(json.dumps(whole).encode())) is (said is (not is_same))


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b'{"url": 1}', b'{"url": "\\ud800"}', b"\xff", b'{"url": "x", "a": ' + b"[" * 5000, b"[" * 5000],
)
def test_what_is_no_page_has_no_name(value):
    assert told.page_in(value) is None
    assert told.page_under(b"\xff") is None


def test_a_page_is_named_as_its_verdict_names_it():
    page = {"url": "http://a/é", "text": "a", "id": "7", "fetched_at": "2026-11-29"}
    for mark in (b"", b"\xef\xbb\xbf"):
        assert told.page_in(mark + json.dumps(page).encode()) == told.PageName("http://a/é", "7", "2026-11-29")
    assert told.page_under("http://a/é".encode()) == told.PageName("http://a/é")


@pytest.mark.parametrize("timestamp", [None, 0, 1_764_000_000_000])
@pytest.mark.parametrize("key", [None, b"", b"a key"])
def test_a_delivery_is_named_as_the_worker_names_it(key, timestamp):
    theirs = observation(Source("pages", 3, 17, timestamp), key, b"value")
    ours = told.observation_of(Coordinates("pages", 3, 17), timestamp, told.content_of(key, b"value"))
    assert ours == int.from_bytes(theirs[:8])
