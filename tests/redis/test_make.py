"""What the documents say to `make`, and to install by name: done in a copy of this tree, with no package index.

`make test` is what runs this; it calls `make check` first.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools

from tests.documents import NOTHING_INSTALLED, PAGES, ROOT, commands_in, copied_tree

BARE = """
[project]
name = "simhash-dedup"
version = "0.1.0"
[project.optional-dependencies]
worker = []
spark = []
[dependency-groups]
build = []
"""


@pytest.fixture
def tree(tmp_path):
    return copied_tree(tmp_path)


def said(command, tree, **variables):
    """What a command says; AssertionError where it fails."""
    own = os.environ | NOTHING_INSTALLED | variables
    done = subprocess.run(command, cwd=tree, env=own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_demo_judges_the_sample_and_checks_the_verdicts(tree):
    assert "all as promised" in said(["make", "demo", "OUT=judged"], tree)
    assert (tree / "judged" / "verdicts.jsonl").exists()


def test_bench_measures_the_part_that_it_is_asked_for(tree):
    assert "a page that meets" in said(["make", "bench", "BENCH=--quick --only crowd"], tree)


def test_a_page_is_given_what_its_commands_print_now(tree):
    """As CONTRIBUTING.md says it."""
    page = tree / "docs" / "report.md"
    shown = "412 verdicts, 138 duplicates, 138 pairs: report.html"
    page.write_text(page.read_text().replace(shown, "of another day"))
    said([sys.executable, "-m", "tests.documents", "docs/report.md"], tree)
    assert f"\n{shown}\n```" in page.read_text()


def test_lock_writes_what_pyproject_needs(tree):
    """Here: nothing, which no index is asked for."""
    (tree / "pyproject.toml").write_text(BARE)
    said(["make", "lock"], tree, UV_OFFLINE="1", CARGO_NET_OFFLINE="true")
    for lock in sorted(ROOT.glob("requirements*.lock")):
        assert "==" in lock.read_text()
        assert "==" not in (tree / lock.name).read_text()


def test_what_is_installed_by_name_is_this_version_with_such_extras(tree):
    """From the wheel that `make wheel` builds, alone: what it needs, an index would give."""
    said(["make", "wheel"], tree, PATH="/usr/bin:/bin")  # without cargo: in seconds
    lines = [words for page in PAGES for _, words in commands_in(page) if words[0] == "pip"]
    assert len(lines) >= 3
    found = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": str(tree / "dist"), "PIP_FORCE_REINSTALL": "1"}
    said([sys.executable, "-m", "venv", str(tree / "new")], tree)
    for words in lines:
        told = said(["bash", "-c", f"source new/bin/activate && {shlex.join(words)} 2>&1"], tree, **found)
        assert "Successfully installed simhash-dedup-" in told
        assert "WARNING" not in told, told  # such as an extra that there is not
    assert (tree / "new" / "bin" / "simhash-dedup").exists()


def test_the_tree_installs_without_cargo(tree):
    """`pip install .`, as README.md says it; what builds it, and what it needs, an index would give."""
    said([sys.executable, "-m", "venv", str(tree / "new")], tree)
    given = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    needed = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(setuptools.__file__).parents[1])}
    told = said(
        ["bash", "-c", "source new/bin/activate && pip install . && simhash-dedup --version"], tree, **given, **needed
    )
    assert re.search(r"^simhash-dedup \d+\.\d+\.\d+, fingerprints by ", told, re.M), told
