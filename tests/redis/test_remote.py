"""File mode over addresses (an S3 server on loopback, HTTP, memory://): the answers of the same local files."""

import functools
import gzip
import http.server
import json
import subprocess
import sys
import threading
import uuid

import boto3
import fsspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from tests.documents import ROOT, commands_in
from tests.redis.test_files import PAGES, written
from tests.redis.test_table_files import csv_file, parquet
from tests.unit.test_warc import http as http_response
from tests.unit.test_warc import record
from worker.cli.main import commands
from worker.errors import InputError, SettingsError
from worker.files.inputs import open_input
from worker.files.locations import place
from worker.files.outputs import OutputPaths, Outputs


@pytest.fixture(scope="module")
def s3():
    """An S3 server, with a bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="pages")
        yield client
    server.stop()


@pytest.fixture
def put(s3, tmp_path):
    """Puts a local file where an address of this scheme leads; its address, and how to read what is at an address."""

    def at(scheme, path):
        where = f"{uuid.uuid4().hex}/{path.name}"
        if scheme == "s3":
            s3.upload_file(str(path), "pages", where)
            return f"s3://pages/{where}"
        address = f"memory://{where}"
        with fsspec.open(address, "wb") as file:
            file.write(path.read_bytes())
        return address

    return at


def content(address):
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # which remembers listings; a user has another process
    with fsspec.open(address, "rb") as file:
        return file.read()


def judge(*arguments):
    done = CliRunner().invoke(commands, ["file", *map(str, arguments), "--processes", "1"])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def without_places(data):
    """The verdicts, but for what names their file."""
    return [
        {k: v for k, v in json.loads(line).items() if k not in ("source", "observation")} for line in data.splitlines()
    ]


def warc(path):
    pages = [json.loads(page) for page in PAGES[:80]]
    path.write_bytes(
        b"".join(
            gzip.compress(record(http_response(p["text"].encode(), {"Content-Type": "text/plain"}), uri=p["url"]))
            for p in pages
        )
    )
    return path


@pytest.mark.parametrize("scheme", ["s3", "memory"])
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("p.jsonl", lambda path: written(path, PAGES)),
        ("p.parquet", parquet),
        ("p.csv", csv_file),
        ("p.warc.gz", warc),
    ],
)
def test_an_address_is_judged_as_the_file_is_and_written_as_one_is(put, tmp_path, scheme, name, write):
    source = write(tmp_path / name)
    judge(source, "--out", tmp_path / "verdicts", "--unique-out", tmp_path / f"unique.{name}")
    address = put(scheme, source)
    out = address.removesuffix(name)
    said = judge(address, "--out", out + "verdicts", "--unique-out", f"{out}unique.{name}").output
    assert f"verdicts: {out}verdicts" in said
    assert without_places(content(out + "verdicts")) == without_places((tmp_path / "verdicts").read_bytes())
    assert content(out + "verdicts.rejected.jsonl") == b""
    if name.endswith("parquet"):
        (tmp_path / "found.parquet").write_bytes(content(f"{out}unique.{name}"))
        assert pq.read_table(tmp_path / "found.parquet").equals(pq.read_table(tmp_path / f"unique.{name}"))
    else:
        assert content(f"{out}unique.{name}") == (tmp_path / f"unique.{name}").read_bytes()
    with pytest.raises(InputError, match="verdicts exists: --force"):
        judge(address, "--out", out + "verdicts")


def test_the_commands_of_the_page_on_formats_run_as_they_stand_there(s3, tmp_path):
    s3.create_bucket(Bucket="crawl")
    s3.upload_file(str(warc(tmp_path / "monday.warc.gz")), "crawl", "monday.warc.gz")
    for _, (_, command, *arguments) in commands_in(ROOT / "docs" / "formats.md"):
        assert command == "file"
        assert judge(*arguments).exit_code == 0
    assert content("s3://crawl/monday.verdicts.jsonl").count(b"\n") == 80
    assert content("s3://crawl/unique.warc.gz")


def test_a_remote_folder_is_the_inputs_in_it(s3, tmp_path):
    s3.create_bucket(Bucket="folder")
    halves = [written(tmp_path / f"{n}.jsonl", PAGES[n::2]) for n in (0, 1)]
    for half in halves:
        s3.upload_file(str(half), "folder", f"crawl/day/{half.name}")
    judge("s3://folder/crawl", "--out", tmp_path / "far")
    judge(*halves, "--out", tmp_path / "near")
    assert without_places((tmp_path / "far").read_bytes()) == without_places((tmp_path / "near").read_bytes())


def test_a_page_of_an_address_is_the_same_record_when_it_is_read_again(put, tmp_path):
    address = put("s3", written(tmp_path / "p.jsonl", PAGES[:20]))
    for n in (1, 2):
        judge(address, "--out", tmp_path / f"{n}", "--state", tmp_path / "state")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_how_much_of_a_remote_file_was_read_is_known(put, tmp_path):
    source = written(tmp_path / "p.jsonl", PAGES)
    found = open_input(put("s3", source), 1 << 20, spool=False)
    assert (found.total, found.done()) == (source.stat().st_size, 0)
    assert len(list(found.records())) == len(PAGES)
    assert found.done() == found.total


@pytest.fixture
def website(tmp_path):
    """An HTTP server over the test's directory."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_file_on_a_web_server_is_judged(website, tmp_path):
    written(tmp_path / "p.jsonl", PAGES)
    judge(tmp_path / "p.jsonl", "--out", tmp_path / "a")
    judge(f"{website}/p.jsonl", "--out", tmp_path / "b")
    assert without_places((tmp_path / "a").read_bytes()) == without_places((tmp_path / "b").read_bytes())


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("s3://pages/nothing.jsonl", InputError, "no such file"),
        ("s3://no-such-bucket/a.jsonl", InputError, "s3://no-such-bucket/a.jsonl: "),
        ("nosuch://a.jsonl", SettingsError, "nosuch"),
    ],
)
def test_an_address_that_leads_nowhere_is_said(s3, address, error, message):
    with pytest.raises(error, match=message):
        open_input(address, 1000, spool=False)


def test_what_is_written_where_nothing_can_be_is_said_before_a_page_is_judged(s3):
    with pytest.raises(InputError, match="cannot write s3://no-such-bucket/out"):
        Outputs(OutputPaths(place("s3://no-such-bucket/out")))


def test_without_the_extra_it_is_named():
    code = "import sys; sys.modules['upath'] = None\nfrom worker.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "file", "s3://pages/a.jsonl", "--out", "-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'simhash-dedup[remote]'" in done.stderr
