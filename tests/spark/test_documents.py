"""The commands of docs/batch.md: run as they stand there, one of them on a standalone cluster of Spark's own."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
import zstandard

from benchmarks.samples import read_pages
from deploy.local.ports import free_port
from tests.documents import ROOT, commands_in, printed, workplace
from tests.processes import written_until

COMMANDS = [words for _, words in commands_in(ROOT / "docs" / "batch.md") if words[0] != "pip"]
PROGRAMS = Path(pyspark.__file__).parent / "bin"
"""Spark's own; beside this Python they are only where PySpark was installed, and not where a wheel of ours is tried."""


@pytest.fixture(autouse=True)
def _programs_in_reach(monkeypatch):
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{PROGRAMS}")


@pytest.fixture
def place(tmp_path):
    """A workplace with the pages of two days, verdicts of an earlier one, and fingerprints."""
    made = workplace(tmp_path)
    lines = [json.dumps(page).encode() + b"\n" for page in read_pages()]
    (made / "monday.jsonl.zst").write_bytes(zstandard.compress(b"".join(lines[:100])))
    for day in ("tuesday", "crawl/2026-11-21"):
        (made / day).mkdir(parents=True)
        (made / day / "pages.jsonl").write_bytes(b"".join(lines[50:150]))
    (made / "crawl" / "archive").mkdir()
    printed("simhash-dedup file monday.jsonl.zst --out crawl/archive/monday.jsonl", made, {})
    pq.write_table(pa.table({"fingerprint": pa.array([1, 3, 1 << 40], pa.uint64())}), made / "today.parquet")
    (made / "known.txt").write_text("0000000000000001\n")
    printed("simhash-dedup tables build known.txt --out archive", made, {})
    return made


@contextmanager
def running(role, *arguments, until, directory):
    """A process of Spark's cluster, up to the line that says it is there."""
    where = ("--host", "127.0.0.1", "--webui-port", "0")
    command = [str(PROGRAMS / "spark-class"), f"org.apache.spark.deploy.{role}", *where, *arguments]
    environment = os.environ | {"SPARK_WORKER_DIR": str(directory)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            written_until(process, until)
            yield
        finally:
            process.kill()


@pytest.fixture
def spark_master(tmp_path):
    """The address of a standalone master that has a worker."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = running("master.Master", "--port", str(port), until="I have been elected leader", directory=tmp_path)
    offered = ("--cores", "8", "--memory", "24g")
    with master, running("worker.Worker", *offered, address, until="Successfully registered", directory=tmp_path):
        yield address


def test_the_commands_of_the_page_end_well_in_their_order(place, spark_master):
    moved = {
        "spark://master:7077": spark_master,
        "/opt/simhash-dedup/bin/python": sys.executable,
        "/crawl/": "crawl/",
    }
    assert [words[0] for words in COMMANDS] == [*["simhash-dedup"] * 3, "spark-submit"]
    for words in COMMANDS:
        command = shlex.join(words)
        for shown, real in moved.items():
            command = command.replace(shown, shlex.quote(real))
        said = printed(f"{command} || echo failed with $?", place, {})
        assert "failed with" not in said, f"{command}\n{said}"
    verdicts = (place / "crawl" / "verdicts" / "2026-11-21" / "verdicts.jsonl").read_bytes().splitlines()
    assert len(verdicts) == 100
    assert sum(json.loads(line)["verdict"] == "duplicate" for line in verdicts) >= 50
