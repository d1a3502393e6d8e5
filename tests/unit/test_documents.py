"""Every line of Python and every command in the documents: run; or, where it needs servers, one that exists."""

import re

import click
import pytest

from tests.documents import (
    ROOT,
    commands_in,
    named,
    pages_with,
    run_python,
    same_output,
    workplace,
)
from worker.cli.main import commands

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
        else:
            assert words[0] in ELSEWHERE or (ROOT / words[0]).exists(), where


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
