"""The code in the documents: what stands in their fences, run as a reader would run it.

    python       run, all blocks of a page in one namespace
    pycon        the same, with the output that Python must give
    console      each `$ ` command is run by a shell, and what it prints must be what stands below it
    sh           each command must exist, with its flags; and ours are run, benchmarks too, on stand-ins

So is each command of a sentence that is whole.


`python -m tests.documents PAGE…` writes into console blocks what they print now: after a change that is meant. Under
`deploy/local/servers with` it does so with the blocks that speak to Kafka, otherwise with all others.
README.zh.md takes those of README.md.
"""

from __future__ import annotations

import doctest
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import zstandard

from benchmarks.samples import read_pages

ROOT = Path(__file__).parents[1]
TRANSLATION = ROOT / "README.zh.md"
"""Has the blocks of README.md, which are run there."""
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "samples/README.md", ROOT / "deploy/README.md"}
    - {TRANSLATION}
)
KAFKA = "127.0.0.1:9092"
"""What the documents call the broker: a block that names it is run where there is one."""
REDIS = "redis://127.0.0.1:6379"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_ANY_FENCE = re.compile(r"^```\w*\n.*?^```$", re.M | re.S)
OURS = ("simhash-dedup", "python")
ALONE = ("batch", "evaluate", "file", "hosts", "plan", "tables", "verify")
"""Commands that need no server and no broker, where they name none."""
ELSEWHERE = ("docs/batch.md", "docs/data-sets.md", "docs/formats.md")
"""Pages whose commands are run in tests/spark, test_data_sets and test_remote."""
NOTHING_INSTALLED = {"MAKEFLAGS": "STAMP= DEV_STAMP="}
"""The environment in which `make` takes the environment that there is as it is."""
_NOT_COPIED = (".git", ".venv*", ".cache", ".hypothesis", ".*_cache", "__pycache__", "out", "dist", "build", "target")
_CHANGING = re.compile(r"\d[\d,.]*(?=\s?(?:s|ms|us|/s|pages/s|MiB|kB)\b)|(?<=^ seconds)\s+[\d.]+", re.M)
"""Figures that another run, or another machine, gives otherwise."""
_PROGRESS = re.compile(r"^(?!warning)[a-z]+ing\b[^:\n]*: .*\n", re.M)
"""Lines as "reading the input: 100,000 records", of which a slow machine prints more."""


class Block(NamedTuple):
    """A fence: its language, the line behind its first, and its text."""

    language: str
    line: int
    text: str


def blocks(path: Path, *languages: str) -> list[Block]:
    """The fences of a page in these languages."""
    content = path.read_text(encoding="utf-8")
    found = (Block(m[1], content[: m.start()].count("\n") + 2, m[2]) for m in _FENCE.finditer(content))
    return [block for block in found if block.language in languages]


def pages_with(*languages: str) -> list[Path]:
    """The pages that have such fences."""
    return [path for path in PAGES if blocks(path, *languages)]


def named(path: Path) -> str:
    """A page as a test's name has it."""
    return str(path.relative_to(ROOT))


def workplace(folder: Path) -> Path:
    """A folder in which the documents' commands find what they name, and can write."""
    for name in ("samples", "docs", "deploy", "benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def copied_tree(folder: Path) -> Path:
    """A copy of this tree, in which `make` uses this Python, and the servers that are here."""
    copied = shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (copied / ".venv").symlink_to(sys.prefix)
    (copied / ".cache").symlink_to(ROOT / ".cache")
    return copied


def run_python(path: Path, folder: Path, addresses: Mapping[str, str]) -> None:
    """Run a page's Python, in order, in this folder; AssertionError where the output is another."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with chdir(folder):
        for block in blocks(path, "python", "pycon"):
            text = _moved(block.text, addresses)
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + text, str(path), "exec"), names)
            else:
                _run_pycon(path, block._replace(text=text), names)


def _run_pycon(path: Path, block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, named(path), str(path), block.line - 1)
    wrong: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=wrong.append, clear_globs=False)
    assert not wrong, "".join(wrong)
    names.update(test.globs)


class Step(NamedTuple):
    """A command of a console block, and what it prints."""

    line: int
    command: str
    output: str


def steps(block: Block) -> Iterator[Step]:
    """The commands of a console block; a line that ends in a backslash goes on."""
    for part in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.M):
        yield Step(block.line + block.text[: part.start()].count("\n"), part[1], part[2])


def printed(command: str, folder: Path, addresses: Mapping[str, str]) -> str:
    """What a shell prints for a command, both streams, with the commands of this Python in reach."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", _moved(command, addresses)],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "120", "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    told = done.stdout
    for shown, real in addresses.items():
        told = told.replace(real, shown)
    return re.sub(r"[ \t]+$", "", _PROGRESS.sub("", told), flags=re.M)


def run_console(path: Path, folder: Path, addresses: Mapping[str, str], kafka: bool = False) -> None:
    """Run a page's console blocks: those that speak to Kafka, or the others. AssertionError where it differs."""
    for block in blocks(path, "console"):
        for step in steps(block) if speaks_to_kafka(block) == kafka else ():
            found = printed(step.command, folder, addresses)
            assert same_output(step.output, found), f"{named(path)}:{step.line}: {step.command}\n{found}"


def speaks_to_kafka(block: Block) -> bool:
    """Whether a block needs a broker."""
    return KAFKA in block.text


def same_output(expected: str, found: str) -> bool:
    """Whether two outputs are equal but for measured figures, and for what `…` leaves out."""
    parts = [re.escape(_steady(part)) for part in expected.split("…")]
    return re.fullmatch(".*".join(parts), _steady(found), re.S) is not None


def _steady(output: str) -> str:
    return re.sub(r"[ \t]+", " ", _CHANGING.sub(" N", output))


def _moved(text: str, addresses: Mapping[str, str]) -> str:
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    return text


def commands_in(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each command of the page's `sh` fences, as words, with its line."""
    for block in blocks(path, "sh"):
        text = block.text.replace("\\\n", " ")
        for number, line in enumerate(text.splitlines(), block.line):
            # A line may be a comment as a whole.
            words = shlex.split(f" {line}".partition("  #")[0].partition(" # ")[0], posix=True)
            if words:
                yield number, words


def our_commands(path: Path, *, alone: bool) -> list[list[str]]:
    """The commands of ours in a page's `sh` fences that need but files, or the others; without those run elsewhere."""
    ours = (words for _, words in commands_in(path) if words[0] in OURS and named(path) not in ELSEWHERE)
    return [words for words in ours if _needs_but_files(words) == alone]


def _needs_but_files(words: list[str]) -> bool:
    return words[0] == "python" or (words[1] in ALONE and not {"--config", "--hosts-topic"} & {*words})


def stand_ins(place: Path) -> Path:
    """Put into a folder what the documents' commands name: pages, verdicts, tables, pairs, lists and profiles."""
    pages = read_pages()
    for day, some in {"monday": pages[:200], "tuesday": pages[200:]}.items():
        lines = b"".join(json.dumps(page).encode() + b"\n" for page in some)
        (place / f"{day}-pages.jsonl.zst").write_bytes(zstandard.compress(lines))
        printed(f"simhash-dedup file {day}-pages.jsonl.zst --state seen --out {day}.jsonl", place, {})
    lines = b"".join(json.dumps(page).encode() + b"\n" for page in pages[:30])  # each id once
    (place / "pages.jsonl.zst").write_bytes(zstandard.compress(lines))
    verdicts = (place / "monday.jsonl").read_text()
    (place / "verdicts.jsonl").write_text(verdicts)
    (known,) = re.findall(r"tables lookup archive (\w+)", (ROOT / "docs/compressed-tables.md").read_text())
    verdicts = verdicts.replace(json.loads(verdicts.splitlines()[0])["fingerprint"], known)
    (place / "verdicts.jsonl.zst").write_bytes(zstandard.compress(verdicts.encode()))
    printed("simhash-dedup tables build tuesday.jsonl --out newer", place, {})
    pair = {"a": pages[0]["id"], "b": pages[1]["id"], "jaccard": 0.9}
    (place / "pairs.jsonl.gz").write_bytes(gzip.compress(json.dumps(pair).encode()))
    (place / "takedowns.txt").write_text(pages[0]["url"] + "\n")
    return stand_ins_of_workers(place)


def stand_ins_of_workers(place: Path) -> Path:
    """Put into a folder what a worker's flags name: profiles and a dictionary of URLs."""
    (place / "urls.txt").write_text("".join(f"{page['url']}?{n}\n" for n in range(5) for page in read_pages()))
    printed("simhash-dedup plan --documents 10M --urls urls.txt --dictionary-out urls.zdict", place, {})
    (place / "strict.toml").write_text(blocks(ROOT / "docs/tuning.md", "toml")[0].text)
    (place / "mine.toml").write_text("reach = 12")
    return place


def sentences(path: Path) -> str:
    """A page without its fences."""
    return _ANY_FENCE.sub("", path.read_text(encoding="utf-8"))


def said_commands(path: Path, program: str = "simhash-dedup") -> list[str]:
    """The commands in a page's sentences, as they stand there: with names in capitals for what a reader puts in."""
    found = re.findall(rf"`{program} ([^`]*)`", sentences(path))
    return [" ".join(command.split()) for command in found]


def fences(path: Path) -> list[str]:
    """All fences of a page, whole."""
    return _ANY_FENCE.findall(path.read_text(encoding="utf-8"))


def translate(path: Path, original: Path) -> None:
    """Put a page's fences into its translation, which has as many."""
    those = iter(fences(original))
    path.write_text(_ANY_FENCE.sub(lambda _: next(those), path.read_text(encoding="utf-8")), encoding="utf-8")


def rewrite(path: Path, folder: Path, addresses: Mapping[str, str]) -> None:
    """Put into a page's console blocks what its commands print now."""
    content = path.read_text(encoding="utf-8")
    for block in blocks(path, "console"):
        if speaks_to_kafka(block) == (KAFKA in addresses):
            told = "".join(f"$ {step.command}\n{printed(step.command, folder, addresses)}" for step in steps(block))
            content = content.replace(block.text, told, 1)
    path.write_text(content, encoding="utf-8")


def _rewrite_all(pages: list[str]) -> None:
    given = ((KAFKA, "SIMHASH_DEDUP_BOOTSTRAP_SERVERS"), (REDIS, "SIMHASH_DEDUP_REDIS_URL"))
    addresses = {shown: os.environ[variable] for shown, variable in given if variable in os.environ}
    for page in map(Path, pages):
        if page.resolve() == TRANSLATION:
            translate(TRANSLATION, ROOT / "README.md")
            continue
        with TemporaryDirectory() as place:
            rewrite(page.resolve(), workplace(Path(place)), addresses)


if __name__ == "__main__":
    _rewrite_all(sys.argv[1:])
