"""Every line of Python and every command in the documents: run; or, where it needs servers, one that exists."""

import re
import runpy
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib.util import find_spec
from io import StringIO
from unittest.mock import patch

import click
import pytest

from simhash import read_profile
from tests.documents import (
    PAGES,
    ROOT,
    TRANSLATION,
    blocks,
    commands_in,
    fences,
    named,
    pages_with,
    run_python,
    said_commands,
    same_output,
    sentences,
    workplace,
)
from tests.notebooks import NOTEBOOKS, ran
from tests.notebooks import read as read_notebook
from worker.cli.main import commands
from worker.settings import Settings, load

README = ROOT / "README.md"
SERVED = ("docs/library.md",)
"""Run in tests/redis and tests/kafka, where there are servers."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
ELSEWHERE = ("pip", "docker", "git", "cd", "source", "eval", "export", "python", "deploy/local/servers", "spark-submit")
"""What begins a line without being ours."""


@pytest.mark.parametrize("path", [p for p in pages_with("python", "pycon") if named(p) not in SERVED], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path):
    run_python(path, workplace(tmp_path), {})


@pytest.mark.parametrize("path", pages_with("sh"), ids=named)
def test_the_commands_of_a_page_exist_with_their_flags(path):
    for line, words in commands_in(path):
        where = f"{named(path)}:{line}"
        if words[0].split("/")[-1] == "simhash-dedup":
            check_command(words[1:], where)
        elif words[0] == "make":
            assert set(words[1:]) <= TARGETS, where
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]), where
        else:
            assert words[0] in ELSEWHERE or (ROOT / words[0]).exists(), where


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=named)
def test_the_commands_in_the_sentences_of_a_page_exist_with_their_flags(path):
    """`simhash-dedup …` and `python -m …`, with names in capitals and `…` for what a reader puts in."""
    for command in said_commands(path):
        check_command(command.split(), f"{named(path)}: {command}")
    for module, words in re.findall(r"`python -m ([\w.]+)([^`]*)`", sentences(path)):
        assert find_spec(module), f"{named(path)}: {module}"
        if module.startswith("benchmarks"):
            flags = re.findall(r"--[a-z][a-z-]*", words)
            assert {*flags} <= {*re.findall(r"--[a-z][a-z-]*", help_of(module))}, f"{named(path)}: {module}{words}"


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_the_commands_of_a_page_stand_in_fences_that_are_run_or_looked_at(path):
    bare = sentences(path)
    assert re.findall(r"^(?:    |\$ )+(?:simhash-dedup|python3? -m|make|deploy/\S+) .*", bare, re.M) == []
    assert re.findall(r"^(?:simhash-dedup [a-z]+|python3? -m) .*", bare, re.M) == []


@pytest.mark.parametrize("path", pages_with("toml"), ids=named)
def test_the_toml_of_a_page_is_a_profile_or_settings(path, tmp_path):
    for number, block in enumerate(blocks(path, "toml")):
        file = tmp_path / f"mine{number}.toml"
        file.write_text(block.text.replace("/var/lib/simhash-dedup", str(tmp_path)))
        if tomllib.loads(block.text).keys() & Settings.model_fields.keys():
            load({}, file)
        else:
            read_profile(file)


@cache
def help_of(module):
    """What `python -m MODULE --help` says."""
    loaded = sys.modules.pop(module, None)  # by another test: what is run must not be there already
    with redirect_stdout(StringIO()) as said, patch("sys.argv", [module, "--help"]), suppress(SystemExit):
        runpy.run_module(module, run_name="__main__")
    if loaded:
        sys.modules[module] = loaded
    return said.getvalue()


def check_command(words, where):
    """Whether a command line of ours names a command and flags that there are."""
    command = commands
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words.pop(0))
        assert command, where
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help", "-h"}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= known, where


def test_outputs_are_compared_but_for_what_was_measured():
    assert same_output("done in 3.2 s\n", "done in 14 s\n")
    assert same_output("a … z\n", "a b c z\n")
    assert not same_output("3 pages\n", "4 pages\n")
    assert not same_output("a\n", "a\nb\n")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_the_cells_of_a_notebook_give_what_stands_below_them(path):
    for cell, outputs in ran(read_notebook(path)):
        assert outputs == cell["outputs"], "".join(cell["source"])


def read(path):
    return path.read_text(encoding="utf-8")


def test_the_chinese_readme_has_the_commands_and_outputs_of_the_english_one():
    assert fences(TRANSLATION) == fences(README), "python -m tests.documents README.zh.md"


def test_the_chinese_readme_has_the_headings_and_tables_of_the_english_one():
    for beginning in ("#+ ", r"\|"):
        counts = [len(re.findall(f"^{beginning}", read(path), re.M)) for path in (README, TRANSLATION)]
        assert counts[0] == counts[1], beginning


def test_the_chinese_readme_leads_to_where_the_english_one_leads():
    links = [set(re.findall(r"\]\(([^)]+)\)", read(path))) for path in (README, TRANSLATION)]
    assert links[0] ^ links[1] == {"README.md", "README.zh.md"}


def test_what_the_chinese_readme_says_of_keywords_is_what_was_measured():
    quality = read(ROOT / "docs" / "quality.md")
    rows = {name: [c.strip() for c in row.split("|")] for name, row in re.findall(r"^\| `([^`]+)`(.*)$", quality, re.M)}
    told = re.findall(r"\d\.\d{4}", read(TRANSLATION))
    keywords, default = (
        rows["jieba-keywords"],
        re.search(r"^\| `default/2` \| ([\d.]+) \|.*?\| ([\d.]+) \| 0 \|", quality, re.M),
    )
    assert told == [keywords[2], keywords[4], default[1], default[2]]
    assert f"{keywords[5]} 对" in read(TRANSLATION)
