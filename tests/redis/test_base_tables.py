"""Which tables can be a base, and that they answer as the index they came from; how one is asked: `test_base.py`."""

from random import Random

import pytest
from click.testing import CliRunner

from simhash.errors import IndexMismatch
from simhash.index import Unique
from simhash.relation.tables import design
from tests.pages import banded, crowd, relation
from worker.cli.main import commands
from worker.index.archive import TableBase

RULE = relation(design("10"), 12, bands=2)
PROFILE = {"name": "p"}


def command(*arguments):
    done = CliRunner().invoke(commands, list(map(str, arguments)))
    assert done.exit_code == 0, done.output


def test_bare_fingerprints_are_no_base(tmp_path):
    (tmp_path / "fingerprints").write_bytes(b"57a843f31c06a026\n")
    command("tables", "build", tmp_path / "fingerprints", "--out", tmp_path / "bare", "-q")
    with pytest.raises(IndexMismatch, match=r"bare holds fingerprints alone: .* build it from verdicts"):
        TableBase(tmp_path / "bare", PROFILE, RULE)


def test_an_exported_index_is_a_base_that_answers_as_it_did(backend, name, tmp_path):
    pages = banded(crowd(300, Random(5)), 2, Random(5))
    index = backend.open(name, RULE, 400, profile=PROFILE)
    index.check_and_insert(pages[:200], {})
    place = ("--redis-url", backend.url, "--index-name", name)
    command("index", "export", tmp_path / "index.jsonl.zst", *place)
    command("tables", "build", tmp_path / "index.jsonl.zst", "--out", tmp_path / "archive", "-q")
    base = TableBase(tmp_path / "archive", PROFILE, RULE)
    found = base.decisions(pages)
    kept = {record.url: record.seq for _, record in index.scan()}
    assert len(kept) == len(base) > 50
    stored = sorted((page for page in pages if page.url in kept), key=lambda page: kept[page.url])
    for page, decision in zip(pages, found, strict=True):
        oldest = next((kept[other.url] for other in stored if RULE.matches(page, other)), None)
        if page.url in kept:
            assert decision == Unique(kept[page.url])
        else:
            assert (decision and decision.match.seq) == oldest
    assert sum(decision is None for decision in found[200:]) > 10
