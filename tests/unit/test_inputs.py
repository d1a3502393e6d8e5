"""Files as input: every kind, every way in which one can be odd or broken."""

import errno
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tests.unit.test_warc import http, record
from worker.errors import InputError
from worker.files.inputs import open_input, open_inputs
from worker.judging.judge import Rejected

LARGEST_PAGE = 1000
LINES = [json.dumps({"url": f"http://x/{n}", "text": f"text {n}"}).encode() for n in range(3)]
TEXT = b"\n".join(LINES) + b"\n"


@pytest.fixture
def put(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write


def read(name, spool=False):
    return list(open_input(name, LARGEST_PAGE, spool).records())


def values(records):
    return [record.value.strip() for record in records]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", TEXT),
        ("a.ndjson", TEXT),
        ("a.jsonl.gz", gzip.compress(TEXT, mtime=0)),
        ("a.jsonl.zst", zstandard.compress(TEXT)),
        ("packed.jsonl", zstandard.compress(TEXT)),
        ("no-suffix", TEXT),
        ("a.data.gz", gzip.compress(TEXT, mtime=0)),
        ("crlf.jsonl", TEXT.replace(b"\n", b"\r\n")),
        ("no-last-end.jsonl", TEXT[:-1]),
        ("empty-lines.jsonl", b"\n" + TEXT.replace(b"\n", b"\n\n \n")),
    ],
)
def test_lines_of_json_are_read_from_any_of_these(put, name, data):
    assert values(read(put(name, data))) == LINES


@pytest.mark.parametrize("name", ["a.jsonl", "no-suffix"])
def test_an_empty_file_has_no_pages(put, name):
    assert read(put(name, b"")) == []


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl.gz", gzip.compress(TEXT, mtime=0)[:-9], "Compressed file ended before the end-of-stream marker"),
        ("a.jsonl.zst", zstandard.compress(TEXT)[:-3], "cut off"),
        ("a.jsonl.gz", TEXT, "as its name says"),
        ("a.jsonl.zst", b"", "as its name says"),
        ("a.pdf", b"%PDF-1.7", "neither its name (.jsonl,"),
        ("a.json", b' \n[\n{"url": "http://x/", "text": "a"}]', "one array of JSON; pages are read one object a line"),
        ("a.warc", b"hello", "record 0 is none of a WARC"),
        ("a.warc.gz", gzip.compress(record(http()), mtime=0)[:-9], "ended before the end-of-stream marker"),
        ("a.warc.gz", record(http()), "as its name says"),
        ("a.warc", record(http())[:-50], "the file ends 46 bytes before the end of record 0"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(put, name, data, message):
    path = put(name, data)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_what_is_not_there_or_no_file_is_said(tmp_path):
    with pytest.raises(InputError, match="no such file or directory"):
        read(str(tmp_path / "none"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match=r"is no regular file: pipe it into standard input \(-\)"):
        read(str(tmp_path / "fifo"))


def test_a_line_beyond_the_limit_is_refused_with_its_length_and_passed_over(put):
    data = LINES[0] + b"\n" + b"x" * 3_000_000 + b"\n" + LINES[1] + b"\n" + b"y" * 2_000_000
    first, long, second, last = read(put("a.jsonl", data))
    assert values([first, second]) == LINES[:2]
    assert isinstance(long, Rejected)
    assert "the line has 3,000,001 bytes, more than 1,054,576" in long.message
    assert "2,000,000 bytes" in last.message
    assert [r.source.offset for r in (first, long, second, last)] == [0, 1, 2, 3]


def test_records_are_named_by_path_content_and_number(put):
    first, again = read(put("a.jsonl", TEXT)), read(put("a.jsonl", TEXT))
    assert [r.source for r in first] == [r.source for r in again]
    others = [read(put("b.jsonl", TEXT)), read(put("a.jsonl", TEXT + TEXT))]
    assert len({r.source for records in (first, *others) for r in records}) == 3 + 3 + 6


@pytest.mark.parametrize(
    ("name", "packed"), [("a.warc", bytes), ("a.warc.gz", gzip.compress), ("a.warc.zst", zstandard.compress)]
)
def test_a_warc_gives_its_pages_and_counts_the_others(put, name, packed):
    parts = [record(http()), record(http(status="404 No")), record(http(headers={"Content-Type": "image/png"}))]
    parts += [record(http(b"\x1f\x8b", {"Content-Type": "text/html", "Content-Encoding": "gzip"})), record(http(b"b"))]
    made = open_input(put(name, b"".join(map(packed, parts))), LARGEST_PAGE, spool=False)
    page, broken, last = made.records()
    assert (page.source.offset, broken.source.offset, last.source.offset) == (0, 3, 4)
    assert (page.page.url, last.page.content, made.skipped) == ("http://x/", b"b", 2)
    assert "content-encoding gzip" in broken.message
    assert made.done() == made.total


def test_a_directory_is_the_inputs_in_it_by_name(put, tmp_path):
    """As `batch` has it: Parquet, or else lines and WARCs; nothing hidden, and each file once."""
    inputs = {"d/b.jsonl": LINES[1], "d/a/z.warc.zst": zstandard.compress(record(http())), "d/c.ndjson.gz": b""}
    inputs["d/c.ndjson.gz"] = gzip.compress(LINES[0])
    paths = [put(name, data) for name, data in inputs.items()]
    put("d/page.html", b"not beside lines")
    put("d/.hidden.jsonl", b"no")
    put("d/.git/x.jsonl", b"no")
    found, again = open_inputs([paths[0], str(tmp_path / "d")], LARGEST_PAGE, spool=False)
    assert [Path(made.name).name for made in found] == ["b.jsonl", "z.warc.zst", "b.jsonl", "c.ndjson.gz"]
    assert [len([*made.records()]) for made in found] == [1, 1, 0, 1]
    assert again == [paths[0]]
    put("d/e/p.parquet", b"")
    with pytest.raises(InputError, match=r"e/p\.parquet: "):
        open_inputs([str(tmp_path / "d")], LARGEST_PAGE, spool=False)


@pytest.mark.parametrize("name", ["a.html", "a.jsonl"])
def test_a_folder_that_cannot_be_read_is_an_error_and_not_passed_over(put, tmp_path, monkeypatch, name):
    put(f"d/{name}", LINES[0])
    closed = Path(put(f"d/closed/{name}", LINES[1])).parent
    scandir = os.scandir

    def refused(path):
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match=rf"d: {closed} cannot be read: Permission denied"):
        open_inputs([str(tmp_path / "d")], LARGEST_PAGE, spool=False)


def test_a_directory_gives_its_html_files_whatever_they_are_called(put, tmp_path):
    put("d/a.html", b"a")
    put("d/sub/b.HTM", b"b")
    put("d/empty.xhtml", b"")
    put("d/notes.txt", b"no page")
    (tmp_path / "d" / os.fsdecode(b"caf\xe9.html")).write_bytes(b"c")
    (tmp_path / "d" / "sub" / "loop").symlink_to("..")
    (tmp_path / "d" / "z.html").mkdir()
    found = {r.page.url.rpartition("/d/")[2]: r.page.content for r in read(str(tmp_path / "d"))}
    assert found == {"a.html": b"a", "sub/b.HTM": b"b", "empty.xhtml": b"", "caf%E9.html": b"c"}


def test_a_file_of_a_directory_that_cannot_be_read_is_rejected_and_the_others_are_not(put, tmp_path):
    put("d/a.html", b"a")
    put("d/long.html", b"x" * 1001)
    (tmp_path / "d" / "dangling.html").symlink_to("nowhere")
    os.mkfifo(tmp_path / "d" / "fifo.html")
    found = read(str(tmp_path / "d"))
    assert [r.page.content for r in found if not isinstance(r, Rejected)] == [b"a"]
    messages = " ".join(r.message for r in found if isinstance(r, Rejected))
    for part in ("dangling.html cannot be read: No such file", "is no regular file", "has 1,001 bytes, more than"):
        assert part in messages


def test_a_single_html_file_is_a_page(put):
    (found,) = read(put("a.html", b"<p>a"))
    assert found.page.content == b"<p>a"


def test_a_directory_without_html_is_said(tmp_path):
    with pytest.raises(InputError, match="no file in this directory ends in"):
        read(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("spool", [False, True])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_standard_input_may_be_compressed_and_has_a_name_of_its_own(compress, spool):
    """Kept, it is named by its content. Else each is another one: the same page in two of them is a copy."""
    program = f"""
from worker.files.inputs import open_input
for r in open_input("-", {LARGEST_PAGE}, {spool}).records(): print(r.source.topic, r.value)
"""
    command = [sys.executable, "-c", program]
    data = compress(TEXT)
    runs = [subprocess.run(command, input=data, capture_output=True, check=True) for _ in range(2)]
    first, again = ([line.split(b" ", 1) for line in run.stdout.splitlines()] for run in runs)
    assert [value for _, value in first] == [value for _, value in again]
    assert len(first) == 3
    assert len({name for name, _ in first + again}) == (1 if spool else 2)


@pytest.mark.parametrize("at", [12, 40, -6])
def test_damaged_gzip_is_a_broken_input_wherever_it_is_damaged(tmp_path, at):
    packed = bytearray(gzip.compress(b'{"url":"http://x/","text":"some text, and more of it"}\n' * 50, mtime=0))
    packed[at] ^= 0xFF
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: "):
        read(str(tmp_path / "a.jsonl.gz"))


@pytest.mark.parametrize("name", ["a.warc.wet.gz", "a.wet"])
def test_the_texts_of_a_wet_are_pages(tmp_path, name):
    data = b"".join(record(text, "conversion", "text/plain") for text in (b"one", b"two"))
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert [found.page.content for found in read(str(tmp_path / name))] == [b"one", b"two"]
