"""From a page's bytes to its signature, on the worker's own path, by each extractor, beside a bare parse by lexbor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from resiliparse.parse.html import HTMLTree

from benchmarks.extraction.contenders import LIMIT
from benchmarks.report import markdown
from simhash import native
from simhash.errors import ProfileError
from simhash.reading.extract import EXTRACTORS, require_extractor
from simhash.signature.profiles import DEFAULT
from worker.judging.judge import Recipe, prepare
from worker.records.page import Limits
from worker.records.passing import RawRecord, Source

OLD = "resiliparse-main"
SLOW = ("trafilatura", "none")
"""Not timed again: one has its rate among the labelled pages, the other reads no markup."""
WARM = 200
"""Pages that each contender reads before its time is taken."""
LARGEST = 64 << 20
LIMITS = Limits(LARGEST, 1 << 16, 1 << 16)
HEADER = ("", "pages/s", "MB/s", f"times {OLD}", f"share of {LIMIT}'s rate")


def compare(name: str, pages: Sequence[bytes], rounds: int, progress: Callable[[str], None]) -> str:
    """A table of all extractors over these pages, each once a round, in turns."""
    works: dict[str, Callable[[Sequence[bytes]], None]] = {
        extractor: partial(_signed, extractor) for extractor in _extractors()
    }
    works[LIMIT] = _parsed
    for go in works.values():  # what a process loads once is not the price of a page
        go(pages[:WARM])
    seconds: dict[str, list[float]] = {work: [] for work in works}
    for number in range(rounds):
        progress(f"{name}: round {number + 1} of {rounds}")
        for work, go in works.items():
            seconds[work].append(_processor_seconds(partial(go, pages)))
    size = f"{len(pages):,} pages, mean {_mean_bytes(pages) / 1000:,.0f} kB"
    return markdown(
        f"{name}: bytes to signature, {size}, by {native.describe()}",
        HEADER,
        [_row(work, seconds, pages) for work in works],
    )


def _extractors() -> Iterator[str]:
    for extractor in EXTRACTORS:
        if extractor not in SLOW:
            try:
                require_extractor(extractor)
            except ProfileError:
                continue
            yield extractor


def _signed(extractor: str, pages: Sequence[bytes]) -> None:
    recipe = Recipe(replace(DEFAULT, extractor=extractor), "html", LIMITS)
    for number, page in enumerate(pages):
        prepare(RawRecord(Source("pages", 0, number, 0), b"https://pages.example/", page), recipe)


def _parsed(pages: Sequence[bytes]) -> None:
    for page in pages:
        HTMLTree.parse_from_bytes(page)


def _row(work: str, seconds: Mapping[str, Sequence[float]], pages: Sequence[bytes]) -> list[str]:
    middle = median(seconds[work])
    rates = [f"{len(pages) / middle:,.0f}", f"{_mean_bytes(pages) * len(pages) / middle / 1e6:,.0f}"]
    return [work, *rates, f"{_times(seconds, OLD, work):.2f}", f"{_times(seconds, LIMIT, work):.2f}"]


def _times(seconds: Mapping[str, Sequence[float]], other: str, work: str) -> float:
    """How many times as fast as another: the median of the rounds' ratios."""
    return median(a / b for a, b in zip(seconds[other], seconds[work], strict=True))


def _mean_bytes(pages: Sequence[bytes]) -> float:
    return sum(map(len, pages)) / len(pages)


def _processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
