"""`simhash-dedup tables` where something is wrong: which file, which line, what to do; one line and an exit code."""

import gzip
from pathlib import Path

import pytest

from tests.tables import all_of, lines_of, page


@pytest.mark.parametrize(
    ("content", "options", "code", "message"),
    [
        (b"00ff\n00fg\n", [], 3, "in.txt, line 2: b'00fg' is no fingerprint of 4 hexadecimal digits, 16 bits"),
        (b"\n00ff,http://a/\n", [], 3, "in.txt, line 2: b'00ff,http://a/' is no fingerprint: 2 to 64 hexadecimal"),
        (b"f\n", [], 3, "in.txt, line 1: b'f' is no fingerprint: 2 to 64 hexadecimal digits"),
        (b"0" * 65, [], 3, "in.txt, line 1"),
        (b"00ff\n0x0f\n", [], 3, "line 2"),
        (b"00ff\n0_0f\n", [], 3, "line 2"),
        (b"00ff\n00fff\n", [], 3, "line 2"),
        (b"1ff\n3ff\n", ["--bits", "9"], 3, "line 2"),
        (b"{}\n", [], 3, "first line: neither a fingerprint, a verdict nor an export"),
        (lines_of([page(1), {}]), [], 3, "in.txt, line 2: Object missing required field `url`"),
        (lines_of([page(1), page(2, profile="x/1")]), [], 3, "line 2: a verdict of profile x/1, not default/1"),
        (lines_of([page(1, profile="x/1")]), [], 3, "no profile is named 'x/1'"),
        (lines_of([page(1, profile="default/9")]), [], 3, "no profile is named 'default/9'"),
        (lines_of([page(1, seq=None)]), [], 3, "line 1: a unique page has a seq"),
        (lines_of([page(1)]), ["--bits", "64"], 3, "leave --bits out"),
        (lines_of([page(1)]), ["--profile", "x"], 2, "--profile: no profile is named 'x'"),
        (lines_of([page(1)]), ["--design", "2c1"], 3, "guarantees 1 bits, profile default needs 3"),
        (b"00ff\n", ["--design", "x"], 2, "--design: unknown design 'x'"),
        (b"00ff\n", ["--memory", "x"], 2, "'x' is no number of bytes"),
        (gzip.compress(b"00ff\n" * 1000, mtime=0)[:-20], [], 3, "in.txt"),
    ],
)
def test_what_is_wrong_with_an_input_is_said_with_its_line(say, tmp_path, content, options, code, message):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    ended, _, told = say("tables", "build", path, "--out", tmp_path / "out", *options)
    assert message in told
    assert "Traceback" not in told
    assert ended == code


def test_an_input_that_was_mended_is_built_where_it_failed_before(say, tmp_path):
    path, build = tmp_path / "in.txt", ("tables", "build", tmp_path / "in.txt", "--out", tmp_path / "out")
    path.write_bytes(b"00ff\n00fg\n")
    assert say(*build)[0] == 3
    path.write_bytes(b"00ff\n00f0\n")
    assert say(*build)[0] == 0
    assert all_of(tmp_path / "out") == [0xF0, 0xFF]


def test_records_are_not_merged_into_tables_that_guarantee_less(say, archive, tmp_path):
    code, _, told = say("tables", "merge", archive, "--out", tmp_path / "out", "--design", "2c1")
    assert (code, "--design: 2c1 guarantees 1 bits, these tables 3" in told) == (2, True)


def test_what_is_wrong_with_a_place_is_said(say, archive, verdicts, tmp_path):
    assert "no such file" in say("tables", "build", tmp_path / "none", "--out", tmp_path / "o")[2].lower()
    assert "is no regular file" in say("tables", "build", tmp_path, "--out", tmp_path / "o")[2]
    assert "holds a set of tables already" in say("tables", "build", verdicts, "--out", archive)[2]
    assert "is not empty" in say("tables", "build", verdicts, "--out", tmp_path)[2]
    code, _, told = say("tables", "lookup", tmp_path, "00ff")
    assert (code, "holds no compressed tables" in told) == (3, True)
    assert "'00ff' is no fingerprint of these tables: 16" in say("tables", "lookup", archive, "00ff")[2]
    assert "is no fingerprint of these tables" in say("tables", "lookup", archive, "\udcff" * 16)[2]
    assert (
        "line 1: neither a URL nor a takedown"
        in say("tables", "merge", archive, "--out", tmp_path / "o", "--forget", verdicts)[2]
    )


def test_damage_is_told_with_file_and_block(say, archive):
    path = Path(archive) / "table-02.sdt"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, found, _ = say("tables", "verify", archive)
    assert code == 1
    assert f"{path}: block 0 of 1 (bytes " in found
    code, _, told = say("tables", "lookup", archive, "00" * 8)
    assert (code, told.count("\n")) == (3, 1)
    assert f"{path}: block 0 of 1" in told
