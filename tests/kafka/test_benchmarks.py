"""Each benchmark that a document names: run as it stands there, at its smallest, in a copy of this tree."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.documents import PAGES, copied_tree, said_commands, stand_ins

SMALLEST = {
    "benchmarks": "--quick",
    "benchmarks.ageing": "--live 2k --whole 1k --bare 10k",
    "benchmarks.agreement": "--mutated 20",
    "benchmarks.extraction": "--most 2 --rounds 1 --articles 3",
    "benchmarks.extraction.pictures": "",
    "benchmarks.failover": "--trials 1",
    "benchmarks.frontier": "--budget 40 --parts 2",
    "benchmarks.hostile": "--family emoji",
    "benchmarks.languages": "",
    "benchmarks.previous": "--pages 500",
    "benchmarks.quality": "--pages pages.jsonl.zst --pairs pairs.jsonl.gz",
    "benchmarks.url_dictionary": "",
    "benchmarks.walk": "--list",
}
"""What is said besides. Of two values of a flag the last counts."""
STAND_INS = {"FILE": "marked.jsonl", "declaration/tha.html": "declaration.html", "…": ""}
"""What a reader puts in, here."""


def named_benchmarks():
    """`python -m benchmarks…` in the sentences of the documents, each once."""
    found = {command for page in PAGES for command in said_commands(page, "python -m")}
    return sorted(command for command in found if command.startswith("benchmarks"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """With files of the names that the commands have. Without cargo, peers written in Rust are left out."""
    place = copied_tree(tmp_path_factory.mktemp("benchmarks"))
    stand_ins(place)
    article = "".join(
        f"<p>Sentence {n} of an article that is not like the sentence before it, {n * n}.</p>" for n in range(90)
    )
    (place / "declaration.html").write_text(article)
    (place / "marked.jsonl").write_text(
        json.dumps({"url": "https://a.example/", "html": article, "main": re.sub("<[^>]*>", "\n", article)})
    )
    return place


@pytest.mark.parametrize("words", named_benchmarks())
def test_a_benchmark_ends_well(words, tree):
    module, _, flags = words.partition(" ")
    given = [STAND_INS.get(word, word) for word in f"{flags} {SMALLEST[module]}".split()]
    own = {**os.environ, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", module, *filter(None, given)]
    done = subprocess.run(command, cwd=tree, env=own, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
