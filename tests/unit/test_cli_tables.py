"""`simhash-dedup tables` as its users meet it: what goes in, what comes out."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import sys
from contextlib import contextmanager
from itertools import groupby
from random import Random

import pytest
import zstandard

from simhash.archive import TableSet
from simhash.index.interface import shortened
from simhash.index.rows import EndRow, IndexRow, MarkRow, RecordRow, Takedown, encoded
from simhash.relation.tables import automatic_design, design
from simhash.signature.profiles import DEFAULT_1
from tests.kafka.test_cli import run, started
from tests.pages import flipped
from tests.stream import until
from tests.tables import all_of, hex_lines, lines_of, page
from worker.cli import tables as command
from worker.index.table_source import bare_design
from worker.records import verdict
from worker.stopping import stop_on_signals

RANDOM = Random(1)
STORED = [RANDOM.getrandbits(64) for _ in range(3000)]


# Building ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_fingerprints_of_a_text_file_are_found_again(say, tmp_path, packed):
    path = tmp_path / "fingerprints"
    path.write_bytes(packed(hex_lines(STORED)))
    code, _, told = say("tables", "build", path, "--out", tmp_path / "out", "--memory", "64KiB", "--block", 64)
    assert code == 0
    assert "3,000 fingerprints" in told
    assert all_of(tmp_path / "out") == sorted(STORED)
    queries = [flipped(value, 64, 3, RANDOM) for value in STORED[:20]]
    code, found, _ = say("tables", "lookup", tmp_path / "out", *(f"{query:016x}" for query in queries))
    assert code == 0
    for stored, query, line in zip(STORED, queries, map(json.loads, found.splitlines()), strict=False):
        assert line == {
            "fingerprint": f"{query:016x}",
            "matches": [{"fingerprint": f"{stored:016x}", "distance": 3}],
        }
    assert say("tables", "verify", tmp_path / "out")[:2] == (0, f"{tmp_path / 'out'}: all is well\n")


@pytest.mark.parametrize(
    ("content", "bits", "expected"),
    [
        (b"00ff\r\n\r\n  0001  \r\nABCD", 16, [1, 255, 0xABCD]),
        (b"\n\n00ff\n", 16, [255]),
        (hex_lines([5, 6], 32), 128, [5, 6]),
        (hex_lines([5, 6, 6], 64), 256, [5, 6, 6]),
        (b"0x00fF\n0X0001\n\xef", 16, None),
        (b"0x00fF\n0X0001\n00aB", 16, [1, 0xAB, 255]),
        (b"\xef\xbb\xbf00ff\r\n0001\r\n", 16, [1, 255]),
        (b"ffff\n" * 3 + b"0001\n", 16, [1, 0xFFFF, 0xFFFF, 0xFFFF]),
        (b"", 64, []),
        (b"\n \r\n", 64, []),
    ],
)
def test_lines_may_be_of_any_width_and_untidy(say, tmp_path, content, bits, expected):
    path = tmp_path / "fingerprints"
    path.write_bytes(content)
    code, _, told = say("tables", "build", path, "--out", tmp_path / "out")
    if expected is None:
        assert "line 3: b'\\xef' is no fingerprint of 4 hexadecimal digits, 16 bits" in told
        return
    assert code == 0
    assert TableSet(tmp_path / "out").relation.design.bits == bits
    assert all_of(tmp_path / "out") == expected


def test_widths_that_are_no_digits_are_told(say, tmp_path):
    path = tmp_path / "fingerprints"
    path.write_bytes(b"1ff\n001\n")
    assert say("tables", "build", path, "--out", tmp_path / "out", "--bits", 9)[0] == 0
    assert all_of(tmp_path / "out") == [1, 0x1FF]


def test_unique_verdicts_become_records_under_the_profiles_relation(archive):
    tables = TableSet(archive)
    unique = [page(number) for number in range(1, 61) if number % 5]
    assert tables.relation.design == automatic_design(DEFAULT_1.k, 64, 0)
    assert (tables.relation.reach, tables.relation.bands) == (DEFAULT_1.reach, 3)
    assert tables.profile == json.loads(json.dumps(DEFAULT_1.recipe()))
    stored = {record.url: (fingerprint, record) for fingerprint, record in tables.scan()}
    assert set(stored) == {one["url"] for one in unique}
    for one in unique:
        fingerprint, record = stored[one["url"]]
        assert verdict.hexadecimal(fingerprint, 64) == one["fingerprint"]
        assert verdict.hexadecimal(record.verifier, 224) == one["verifier"]
        assert (record.seq, record.observation.hex()) == (one["seq"], one["observation"][:16])
        assert record.digest == (one["digest"] if fingerprint is None else shortened(one["digest"]))
        assert record.inserted_ms == one["source"]["timestamp"]


def test_a_record_without_a_timestamp_is_as_old_as_its_fetch(say, tmp_path):
    source = {"topic": "file:x", "partition": 0, "offset": 0, "timestamp": None}
    path = tmp_path / "v.jsonl"
    path.write_bytes(lines_of([page(1, source=source), page(2, source=source, fetched_at=None)]))
    assert say("tables", "build", path, "--out", tmp_path / "out")[0] == 0
    ages = {record.url: record.inserted_ms for _, record in TableSet(tmp_path / "out").scan()}
    assert ages == {"http://example.com/1": 1_780_272_000_000, "http://example.com/2": 0}


def export(records, end=True, parts="10"):
    shape = {
        "reach": 12,
        "verifier_reach": 20,
        "verifier_bits": 128,
        "bands": 3,
        "bucket_bits": 4,
        "capacity": 10,
        "urls": "",
    }
    first = IndexRow(1, 2, "g", {"name": "mine", "version": 3}, design(parts).describe(), seq=9, documents=9, **shape)
    rows = [
        RecordRow(n, 5, f"{n:016x}", f"{n:056x}", "text:" + "ab" * 8, "cd" * 8, f"http://{n}/", None, None)
        for n in records
    ]
    return b"".join(map(encoded, [first, *rows, MarkRow("pages", 0, 7), *([EndRow(len(rows), 1, 0)] if end else [])]))


def test_an_export_keeps_the_indexs_own_relation(say, tmp_path):
    path = tmp_path / "export.jsonl.zst"
    path.write_bytes(zstandard.compress(export(range(1, 8))))
    assert say("tables", "build", path, "--out", tmp_path / "out")[0] == 0
    tables = TableSet(tmp_path / "out")
    assert (tables.relation.design, tables.profile) == (design("10"), {"name": "mine", "version": 3})
    assert all_of(tmp_path / "out") == list(range(1, 8))
    assert {record.observation for _, record in tables.scan()} == {b"\xcd" * 8}


def test_an_export_that_was_cut_off_is_refused_also_when_it_is_tried_again(say, tmp_path):
    path = tmp_path / "export.jsonl"
    path.write_bytes(export(range(1, 8), end=False))
    for _ in range(2):
        code, _, told = say("tables", "build", path, "--out", tmp_path / "out", "--memory", "1KiB")
        assert code == 3
        assert "was cut off: its last row is not the end of an export" in told


def test_tables_are_chosen_so_that_a_probe_reads_one_block():
    names = {count: bare_design(count, 64).name for count in (0, 10**6, 10**8, 8 * 10**9, 10**12)}
    assert names == {0: "4", 10**6: "4", 10**8: "6", 8 * 10**9: "10", 10**12: "20"}


def test_a_stopped_build_says_so_and_goes_on(say, tmp_path, monkeypatch):
    path, out = tmp_path / "fingerprints", tmp_path / "out"
    path.write_bytes(hex_lines(STORED))
    build = ("tables", "build", path, "--out", out, "--memory", "8KiB")
    taken_in, stages, events = command.build, [], []

    @contextmanager
    def watched():
        with stop_on_signals() as stopping:
            events.append(stopping)
            yield stopping

    def terminated(*arguments):
        *rest, on_progress = arguments

        def step(stage, done, total):
            stages.append(stage)
            if stages.count("sorting") == 1:
                os.kill(os.getpid(), signal.SIGTERM)
                assert events[0].wait(30)
            on_progress(stage, done, total)

        return taken_in(*rest, step)

    monkeypatch.setattr(command, "stop_on_signals", watched)
    monkeypatch.setattr(command, "build", terminated)
    code, _, told = say(*build)
    assert (code, (out / "building").is_dir()) == (130, True)
    assert f"stopped; the same command goes on with what is in {out}" in told
    monkeypatch.setattr(command, "build", taken_in)
    assert "unfinished build of something else" in say(*build, "--block", 9)[2]
    assert say(*build)[0] == 0
    assert all_of(out) == sorted(STORED)
    assert not (out / "building").exists()


def test_a_build_tells_where_it_is(say, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LINE_SECONDS", 0.0)
    path = tmp_path / "fingerprints"
    path.write_bytes(hex_lines(STORED))
    told = say("tables", "build", path, "--out", tmp_path / "out", "--memory", "8KiB")[2]
    shares = [(stage, int(share)) for stage, share in re.findall(r"^(\w+): (\d+)%, [\d,]+$", told, re.MULTILINE)]
    assert [stage for stage, _ in groupby(stage for stage, _ in shares)] == ["reading", "sorting", "checking"]
    for stage in ("reading", "sorting"):
        own = [share for each, share in shares if each == stage]
        assert own == sorted(own)
        assert own[-1] == 100


@pytest.mark.slow
def test_a_killed_build_goes_on_to_the_same_tables(tmp_path):
    path, out = tmp_path / "fingerprints", tmp_path / "out"
    path.write_bytes(hex_lines(STORED * 10))
    build = ("tables", "build", path, "--memory", "64KiB", "--threads", 1, "-q", "--out")
    kill_at_first_chunk(build, out)
    assert run(*build, out).returncode == 0
    assert run(*build, tmp_path / "undisturbed").returncode == 0
    names = {file.name for file in out.iterdir()}
    assert names == {file.name for file in (tmp_path / "undisturbed").iterdir()}
    assert all((out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes() for name in names)


def kill_at_first_chunk(build, out):
    """The build may be through before anybody looks: then it is started once more."""
    while kill(started(*build, out), out / "building" / "fingerprints-0000"):
        shutil.rmtree(out)


def kill(process, chunk):
    """Once the chunk is there; whether the process was through."""
    until(lambda: chunk.exists() or process.poll() is not None, "the first chunk", pause=0.001)
    process.kill()
    process.wait()
    through = (chunk.parent.parent / "manifest.json").exists()
    assert through or chunk.exists()
    return through


def test_verdicts_from_windows_give_the_same_tables(say, verdicts, tmp_path):
    """A byte order mark, and lines that end in CR and LF."""
    plain = verdicts.read_bytes()
    for name, content in (("plain", plain), ("windows", b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"))):
        (tmp_path / name).write_bytes(content)
        assert say("tables", "build", tmp_path / name, "--out", tmp_path / f"{name}-tables")[0] == 0
    assert urls(tmp_path / "windows-tables") == urls(tmp_path / "plain-tables")


# Asking ------------------------------------------------------------------------------------------------------------


def test_a_lookup_shows_the_records(say, archive):
    one = page(1)
    near = f"{int(one['fingerprint'], 16) ^ 5:016x}"
    code, found, _ = say("tables", "lookup", archive, near)
    (match,) = json.loads(found)["matches"]
    assert (code, match["distance"], match["fingerprint"]) == (0, 2, one["fingerprint"])
    (record,) = match["records"]
    assert {name: record[name] for name in ("url", "seq", "verifier", "fetched_at")} == {
        name: one[name] for name in ("url", "seq", "verifier", "fetched_at")
    }
    assert say("tables", "lookup", archive, near, "--k", 1)[:2] == (
        1,
        json.dumps({"fingerprint": near, "matches": []}, separators=(",", ":")) + "\n",
    )


def test_standard_input_is_looked_up_line_by_line(say, archive, monkeypatch):
    wanted = [page(number)["fingerprint"] for number in range(1, 40) if number % 7]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n\n".join(wanted).encode())))
    lines = [json.loads(line) for line in say("tables", "lookup", archive, "-")[1].splitlines()]
    assert [line["fingerprint"] for line in lines] == wanted
    assert [bool(line["matches"]) for line in lines] == [number % 5 != 0 for number in range(1, 40) if number % 7]


# Merging -----------------------------------------------------------------------------------------------------------


def urls(directory):
    return sorted(record.url for _, record in TableSet(directory).scan())


def test_a_merge_leaves_out_what_has_expired_or_is_taken_down(say, archive, tmp_path, monkeypatch):
    more = tmp_path / "more.jsonl"
    more.write_bytes(lines_of(page(number) for number in range(56, 90)))
    assert say("tables", "build", more, "--out", tmp_path / "more")[0] == 0
    takedowns = tmp_path / "takedowns"
    by_observation = Takedown("http://x/", 1, 2, page(63)["observation"][:16])
    takedowns.write_bytes(b"http://example.com/62\n\n" + encoded(by_observation))
    both = ("tables", "merge", archive, tmp_path / "more", "--out")
    assert say(*both, tmp_path / "all")[0] == 0
    expected = {number for number in range(1, 61) if number % 5} | set(range(56, 90))
    assert urls(tmp_path / "all") == sorted(f"http://example.com/{number}" for number in expected)
    monkeypatch.setattr(command, "_today_ms", lambda: 86_400_000)
    code, _, told = say(*both, tmp_path / "some", "--max-age", "86370s", "--min-seq", 32, "--forget", takedowns)
    kept = {number for number in expected if number >= 32} - {62, 63}
    assert urls(tmp_path / "some") == sorted(f"http://example.com/{number}" for number in kept)
    assert f"{48 + 34 - len(kept)} records left out" in told
    assert code == 0
    assert say("tables", "verify", tmp_path / "all", tmp_path / "some")[0] == 0


def test_bare_tables_merge_into_any_design(say, tmp_path):
    for name, values in (("a", STORED[:1000]), ("b", STORED[500:])):
        (tmp_path / f"{name}.txt").write_bytes(hex_lines(values))
        assert say("tables", "build", tmp_path / f"{name}.txt", "--out", tmp_path / name)[0] == 0
    merged = ("tables", "merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "m")
    assert say(*merged, "--design", "10")[0] == 0
    assert all_of(tmp_path / "m") == sorted(STORED[:1000] + STORED[500:])
    assert TableSet(tmp_path / "m").relation.design == design("10")
    assert "need records" in say(*merged, "--max-age", "1d")[2]


# Help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["build", "merge", "lookup", "verify"])
def test_every_command_teaches_by_example(say, name):
    assert f"simhash-dedup tables {name} " in say("tables", name, "--help")[1]
