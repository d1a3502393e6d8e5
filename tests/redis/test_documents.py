"""The documents whose Python asks a Redis, and the commands that need one of their own: run as they stand there."""

import gzip
import json
import re
import shlex

import pytest
import zstandard

from benchmarks.samples import read_pages
from tests.documents import (
    REDIS,
    ROOT,
    blocks,
    commands_in,
    named,
    pages_with,
    printed,
    run_console,
    run_python,
    workplace,
)


@pytest.mark.parametrize("path", [ROOT / "docs" / "library.md"], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path, redis_server):
    run_python(path, workplace(tmp_path), {REDIS: redis_server.url})


@pytest.mark.parametrize("path", pages_with("console"), ids=named)
def test_the_commands_of_a_page_print_what_stands_below_them(path, tmp_path, redis_server):
    run_console(path, workplace(tmp_path), {REDIS: redis_server.url})


ALONE = ("batch", "evaluate", "file", "hosts", "plan", "tables", "verify")
"""Commands that need no server and no broker, where they name none."""
ELSEWHERE = ("docs/batch.md", "docs/data-sets.md", "docs/formats.md")
"""Run in tests/spark, test_data_sets and test_remote."""


def _alone(path):
    """The commands of a page's `sh` fences that need nothing but files."""
    for _, (program, *words) in commands_in(path):
        if program == "simhash-dedup" and words[0] in ALONE and not {"--config", "--hosts-topic"} & {*words}:
            yield shlex.join([program, *words])


PAGES_ALONE = [path for path in pages_with("sh") if named(path) not in ELSEWHERE and any(_alone(path))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A workplace with all that the commands name."""
    place = workplace(tmp_path_factory.mktemp("files"))
    pages = [*read_pages(ROOT / "samples/pages.jsonl.zst")]
    days = {"monday": pages[:200], "tuesday": pages[200:]}
    for day, some in days.items():
        lines = b"".join(json.dumps(page).encode() + b"\n" for page in some)
        (place / f"{day}-pages.jsonl.zst").write_bytes(zstandard.compress(lines))
        printed(f"simhash-dedup file {day}-pages.jsonl.zst --state seen --out {day}.jsonl", place, {})
    (place / "pages.jsonl.zst").write_bytes((place / "monday-pages.jsonl.zst").read_bytes())  # each id once
    verdicts = (place / "monday.jsonl").read_text()
    (place / "verdicts.jsonl").write_text(verdicts)
    (known,) = re.findall(r"tables lookup archive (\w+)", (ROOT / "docs/compressed-tables.md").read_text())
    verdicts = verdicts.replace(json.loads(verdicts.splitlines()[0])["fingerprint"], known)
    (place / "verdicts.jsonl.zst").write_bytes(zstandard.compress(verdicts.encode()))
    printed("simhash-dedup tables build tuesday.jsonl --out newer", place, {})
    pair = {"a": pages[0]["id"], "b": pages[1]["id"], "jaccard": 0.9}
    (place / "pairs.jsonl.gz").write_bytes(gzip.compress(json.dumps(pair).encode()))
    (place / "takedowns.txt").write_text(pages[0]["url"] + "\n")
    (place / "urls.txt").write_text("".join(f"{page['url']}?{n}\n" for n in range(5) for page in pages))
    (place / "strict.toml").write_text(blocks(ROOT / "docs/tuning.md", "toml")[0].text)
    (place / "mine.toml").write_text("reach = 12")
    return place


@pytest.mark.parametrize("path", PAGES_ALONE, ids=named)
def test_the_commands_of_a_page_that_need_but_files_end_well(path, files):
    for command in _alone(path):
        said = printed(f"{command} || echo failed with $?", files, {})
        assert "failed with" not in said, f"{command}\n{said}"
