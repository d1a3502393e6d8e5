"""Text to kept Parquet, from start to end and on one core: `simhash-dedup file` beside other packages' ways.

The documents are the main texts of the pages, and where more are wanted, texts of sentences drawn from pages of one
language. Each way reads one Parquet file of `url` and `text` and writes another with one of each group of
near-duplicates. It is timed by the clock, with all that starts with it. `fastdedup` (Rust) takes part where its program
is on the path: https://github.com/wapplewhite4/fastdedup.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import peers
from benchmarks.report import Ratio, Report
from benchmarks.samples import read_pages
from simhash.reading.extract import extract_text
from worker.index.configured import configured_profile
from worker.settings import load

NAME = "kept"
CORE = 0
EXPECTED = 4000
"""Documents a second and core."""
PEERS = ("rensa", "datasketch", "text-dedup", "datatrove")
LEAST_CHARACTERS, MOST_CHARACTERS = 200, 60_000
ROW_GROUP = 10_000
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n+")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many documents, which peers are asked for how many of them, and how often this project is."""

    documents: int = 40_000
    of_peers: int = 10_000
    peers: Sequence[str] = PEERS
    runs: int = 3


QUICK = Sizes(documents=500, of_peers=500, peers=(), runs=1)


def run(report: Report, sizes: Sizes, scratch: Path, pages: Path) -> None:
    """Measure each way."""
    whole, part = scratch / "documents.parquet", scratch / "some.parquet"
    texts = list(islice(documents(pages), sizes.documents))
    _write(whole, texts)
    _write(part, texts[: sizes.of_peers])
    size = sum(len(text.encode()) for _, text in texts) / len(texts)
    report.heading(f"kept: {len(texts):,} documents of {size:,.0f} bytes, Parquet to Parquet on one core")
    ours = _rate(report, "simhash-dedup file", len(texts), sizes.runs, partial(_ours, whole, scratch))
    report.ratio(Ratio(NAME, "text to kept Parquet", ours, "documents/s a core", ">=", EXPECTED))
    ways: dict[str, Callable[[], int]] = {}
    if sizes.peers:
        peers.environment(report.progress, peers.KEPT_REQUIREMENTS)  # before the clock runs
    if program := shutil.which("fastdedup"):
        ways["fastdedup"] = partial(_fastdedup, program, part, scratch)
    for name in sizes.peers:
        ways[name] = partial(_peer, name, part, scratch, report)
    for name, way in ways.items():
        try:
            theirs = _rate(report, name, min(sizes.of_peers, len(texts)), 1, way)
        except peers.PeerError as error:
            report.progress(f"{name} failed: {error}")
            continue
        report.ratio(Ratio(NAME, f"text to kept Parquet, against {name}", ours / theirs, "x"))


def documents(pages: Path) -> Iterator[tuple[str, str]]:
    """URL and text of each, without end."""
    extractor = configured_profile(load({})).extractor
    sentences: dict[str, list[str]] = defaultdict(list)
    for page in read_pages(pages):
        text = page["text"] if "text" in page else extract_text(page["html"], extractor)
        sentences[page.get("lang", "")] += filter(None, SENTENCE_END.split(text))
        if LEAST_CHARACTERS < len(text) < MOST_CHARACTERS:
            yield page["url"], text
    random, languages = Random(1), sorted(sentences)
    weights = [len(sentences[language]) for language in languages]
    for number in range(1 << 62):
        of_page = random.choices(sentences[random.choices(languages, weights)[0]], k=random.randint(5, 75))
        yield f"https://made-up.example/{number}", " ".join(of_page)


def _write(path: Path, texts: Sequence[tuple[str, str]]) -> None:
    urls, contents = zip(*texts, strict=True)
    pq.write_table(pa.table({"url": urls, "text": contents}), path, row_group_size=ROW_GROUP, compression="zstd")


def _rate(report: Report, name: str, count: int, runs: int, way: Callable[[], int]) -> float:
    """Documents a second."""
    rates, kept = [], 0
    for _ in range(runs):
        report.progress(f"{name}: {count:,} documents")
        began = time.perf_counter()
        kept = way()
        rates.append(count / (time.perf_counter() - began))
    return report.figure(NAME, name, "documents/s", rates, f"{kept:,} of {count:,} kept")


def _ours(path: Path, scratch: Path) -> int:
    out, verdicts = scratch / "unique.parquet", scratch / "verdicts.jsonl"
    command = [sys.executable, "-m", "worker", "file", str(path), "--out", str(verdicts), "--unique-out", str(out)]
    _pinned([*command, "--processes", "1", "--quiet", "--force"])
    return int(pq.read_metadata(out).num_rows)


def _fastdedup(program: str, path: Path, scratch: Path) -> int:
    out = scratch / "fastdedup.parquet"
    _pinned([program, "fuzzy-dedup", "-i", str(path), "-o", str(out), "--field", "text", "--threshold", "0.8"])
    return int(pq.read_metadata(out).num_rows)


def _peer(name: str, path: Path, scratch: Path, report: Report) -> int:
    own = scratch / name
    own.mkdir()
    options: dict[str, object] = {"package": name, "input": str(path), "scratch": str(own)}
    found = peers.run("kept_parquet", options, report.progress, peers.KEPT_REQUIREMENTS, CORE)
    return int(found["kept"])


def _pinned(command: Sequence[str]) -> None:
    done = subprocess.run(["taskset", "--cpu-list", str(CORE), *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise peers.PeerError(f"`{' '.join(command)}` failed:\n{done.stderr[-2000:]}")
