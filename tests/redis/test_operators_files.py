"""Files that operators hand to `index` and `rebuild`: damaged, edited, in another charset; or devices."""

import json
import os
import stat
import threading
from random import Random

import msgspec
import pytest
from click.testing import CliRunner

from simhash.errors import IndexMismatch
from simhash.index import Retention
from simhash.index.rows import IndexRow, JournalRow, RecordRow, decoded, encoded
from tests.kafka.test_index_operations import RULE, place, rows_of, run
from tests.pages import PAGES, crowd, relation
from worker.cli.main import commands
from worker.errors import InputError
from worker.rebuilding.verdict_sources import Strays, in_file

REPLACE = msgspec.structs.replace


@pytest.fixture
def filled(backend, name):
    """A small index with a journal."""
    index = backend.open(name, relation(RULE.design), 400, Retention(), {"name": "p"})
    index.check_and_insert(crowd(30, Random(5)), {PAGES: 0})
    return index


RECORD_FAULTS = [
    {"fingerprint": "zz"}, {"fingerprint": "f" * 17}, {"verifier": "f" * 99}, {"observation": "q"}, {"digest": "q"},
    {"seq": -4}, {"seq": 1 << 40}, {"inserted_ms": -4}, {"features": 1 << 60},
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((RecordRow, changes) for changes in RECORD_FAULTS),
        *((JournalRow, changes) for changes in ({"answer": "zz"}, {"observation": "00"}, {"offset": -1})),
        *((IndexRow, changes) for changes in ({"bucket_bits": 60}, {"bucket_bits": 0}, {"design": {"name": "x"}})),
    ],
)
def test_an_export_that_was_damaged_is_refused_in_one_line(backend, filled, name, tmp_path, kind, changes):
    rows = rows_of(backend, filled)
    at = [n for n, row in enumerate(rows) if isinstance(row, kind) and getattr(row, "fingerprint", "") is not None][-1]
    rows[at] = REPLACE(rows[at], **changes)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encoded, rows)))
    with pytest.raises((InputError, IndexMismatch), match=r"line \d+ is no row|record \d+|the first row"):
        run("import", tmp_path / "rows.jsonl", *place(backend, f"{name}-b"))


def test_records_out_of_their_order_are_refused(backend, filled, name, tmp_path):
    """Numbers between them would be filled up as gaps, all 2^40 of them."""
    head, first, second, *rest = rows_of(backend, filled)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encoded, (head, second, first, *rest))))
    with pytest.raises(IndexMismatch, match="not in order"):
        run("import", tmp_path / "rows.jsonl", *place(backend, f"{name}-b"))


def test_an_export_into_a_pipe_leaves_the_pipe_there(backend, filled, name, tmp_path):
    """A file moved into the place of /dev/null would be there for all programs."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.extend(pipe.read_bytes().splitlines()))
    reader.start()
    assert run("export", pipe, *place(backend, name)).exit_code == 0
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [*map(decoded, got)] == rows_of(backend, filled)


def test_a_list_of_urls_may_begin_with_a_mark_and_must_be_utf8(backend, filled, name, tmp_path):
    url = next(record.url for _, record in filled.scan())
    listed = tmp_path / "urls.txt"
    listed.write_bytes(b"\xef\xbb\xbf" + url.encode() + b"\r\n")
    assert "would remove" in run("delete", "--from", listed, "--dry-run", *place(backend, name)).output
    listed.write_bytes(b"http://a/\n\xff\xfe\n")
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        run("delete", "--from", listed, *place(backend, name))


def test_a_files_name_may_be_any_bytes(backend, name, tmp_path):
    pages, verdicts = tmp_path / "pages.jsonl", tmp_path / os.fsdecode(b"verdicts\xff.jsonl")
    pages.write_text("".join(json.dumps({"url": f"http://{n}/", "text": f"a page of {n}"}) + "\n" for n in range(9)))
    invoke = CliRunner().invoke
    assert invoke(commands, ["file", "-q", str(pages), "--out", str(verdicts)]).exit_code == 0
    assert invoke(commands, ["report", str(verdicts), "--out", str(tmp_path / "report.html")]).exception is None
    assert invoke(commands, ["tables", "build", str(verdicts), "--out", str(tmp_path / "t")]).exception is None
    rebuilt = invoke(commands, ["rebuild", "--from", str(verdicts), *place(backend, name)])
    assert rebuilt.exception is None
    assert "stored 9 pages" in rebuilt.output


VERDICT = {
    "url": "http://a/", "id": None, "verdict": "unique", "match": None, "fingerprint": "00ff", "verifier": "00",
    "digest": "text:" + "a" * 32, "features": 9, "profile": "p/1", "seq": 1, "fetched_at": None,
    "observation": "b" * 32, "source": {"topic": "t", "partition": 0, "offset": 0, "timestamp": 7},
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{"fingerprint": "zz"}, {"digest": "x"}, {"observation": ""}, {"seq": 0}, {"features": 10**30}, {"url": "\udcff"}],
)
def test_a_verdict_that_cannot_be_a_record_is_refused_with_its_line(tmp_path, changes):
    file = tmp_path / "verdicts.jsonl"
    file.write_text(json.dumps(VERDICT) + "\n")
    assert [each.verdict.seq for each in in_file(file, Strays(False))] == [1]
    file.write_text(json.dumps(VERDICT) + "\n" + json.dumps(VERDICT | changes) + "\n")
    with pytest.raises(InputError, match="line 2 is no verdict"):
        list(in_file(file, Strays(False)))
    assert [each.verdict.seq for each in in_file(file, Strays(True))] == [1]
