"""What a newcomer types first: help that is there at once, and the tab key."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from worker.cli.main import LazyGroup, commands, dlq, index

ROOT = Path(__file__).parents[2]
HEAVY = {"kafka", "redis", "numpy", "pydantic", "rich", "structlog", "jieba", "simhash.signature", "worker.settings"}
LOADED = """
import sys
from worker.__main__ import main
sys.argv = ["simhash-dedup", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def loaded_by(*arguments, **environment):
    """What a command prints, and the modules that it loads."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], env=os.environ | environment, capture_output=True, text=True
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["index", "--help"], ["dlq", "--help"], ["-h"]], ids=" ".join)
def test_help_loads_neither_kafka_nor_anything_else_that_takes_its_time(arguments):
    said, modules = loaded_by(*arguments)
    assert "Usage: simhash-dedup" in said
    assert modules & HEAVY == set()


@pytest.mark.slow
def test_the_tab_key_completes_commands_and_options():
    """As bash asks, after the line of docs/commands.md."""
    asked = {"_SIMHASH_DEDUP_COMPLETE": "bash_complete"}
    said, modules = loaded_by(**asked, COMP_WORDS="simhash-dedup reb", COMP_CWORD="1")
    assert said.splitlines() == ["plain,rebuild"]
    assert modules & HEAVY == set()
    said, _ = loaded_by(**asked, COMP_WORDS="simhash-dedup index rewind --ex", COMP_CWORD="3")
    assert said.splitlines() == ["plain,--execute"]


def test_bash_asks_after_the_line_of_the_documents():
    (line,) = re.findall(r"`(eval [^`]*)`", (ROOT / "docs" / "commands.md").read_text())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked = ["bash", "-c", f"{' '.join(line.split())}\ncomplete -p simhash-dedup"]
    done = subprocess.run(asked, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert done.stdout == "complete -o nosort -F _simhash_dedup_completion simhash-dedup\n", done.stderr


@pytest.mark.parametrize("group", [commands, index, dlq], ids=["commands", "index", "dlq"])
def test_what_the_help_lists_is_there_under_its_name(group: LazyGroup):
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        assert found.name == name
