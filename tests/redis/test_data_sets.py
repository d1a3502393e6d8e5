"""The commands of docs/data-sets.md, each on a small file of the form that lies at its address."""

import gzip
import re
import shlex
from contextlib import chdir

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from warcio.archiveiterator import ArchiveIterator

from tests.documents import ROOT, blocks
from tests.redis.test_files import lines
from tests.redis.test_warc_out import INFO, capture, html, written
from tests.unit.test_warc import record
from worker.cli.main import commands

COMMANDS = [block.text for block in blocks(ROOT / "docs" / "data-sets.md", "sh")]
PAGES = [("a", html(1)), ("b", html(2)), ("copy", html(1)), ("near", html(3))]


def fineweb(path):
    """A row of FineWeb: these columns, in this order."""
    rows = [
        {"text": body.decode(), "id": f"<urn:uuid:{name}>", "dump": "CC-MAIN-2026-30", "url": f"http://x/{name}"}
        | {
            "date": "2026-07-01T00:00:00Z",
            "file_path": "s3://…",
            "language": "en",
            "language_score": 0.9,
            "token_count": 300,
        }
        for name, body in PAGES
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def make(path):
    """What lies at an address of this name."""
    if path.name.endswith(".parquet"):
        fineweb(path)
    elif ".wet" in path.name:
        written(path, INFO, *(record(body, "conversion", "text/plain", f"http://x/{name}") for name, body in PAGES))
    else:
        written(path, INFO, *(each for name, body in PAGES for each in capture(name, body)))


def kinds(path):
    with path.open("rb") as file:
        return [each.rec_type for each in ArchiveIterator(file)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split("/")[-1].strip()[:60])
def test_a_command_of_the_page_gives_what_the_page_says(command, tmp_path):
    (address,) = re.findall(r"\S+://\S+", command)
    source = tmp_path / "source" / address.rpartition("/")[2]
    source.parent.mkdir()
    make(source)
    _, *arguments = shlex.split(command.replace(address, str(source)))
    with chdir(tmp_path):
        done = CliRunner().invoke(commands, [*arguments, "--processes", "1"])
    assert done.exit_code == 0, done.output
    found = [(v["verdict"], v["match"] and v["match"]["kind"]) for v in lines(tmp_path / "verdicts.jsonl")]
    assert found == [("unique", None), ("unique", None), ("duplicate", "exact"), ("duplicate", "near")]
    if "--annotate" in command:
        rows = pq.read_table(tmp_path / "annotated.parquet").to_pylist()
        assert [row["dup_of"] for row in rows] == [None, None, "http://x/a", "http://x/a"]
    elif source.suffix == ".parquet":
        assert pq.read_table(tmp_path / "unique.parquet").equals(pq.read_table(source).slice(0, 2))
    elif ".wet" in source.name:
        whole = gzip.decompress(source.read_bytes())
        assert whole.startswith(gzip.decompress((tmp_path / "unique.warc.wet.gz").read_bytes()))
    else:
        three = ["request", "response", "metadata"]
        assert kinds(tmp_path / "unique.warc.gz") == ["warcinfo", *three, *three, "request", "revisit", "metadata"]
