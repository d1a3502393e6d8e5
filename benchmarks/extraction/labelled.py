"""Pages whose main text somebody has marked: how much of it each extractor finds, and at what rate.

A file of such pages is JSONL, plain or .zst: `html`, and `main` (the whole text) or `with` and `without` (segments that
belong there and that do not). Rows with another `set` than "test" are left out where the file has that field: those may
have been learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.extraction.contenders import LIMIT, Contender, Pass, contenders
from benchmarks.extraction.overlap import Score, score, score_segments
from benchmarks.report import markdown
from benchmarks.samples import read_pages

HEADER = ("", "F1", "precision", "recall", "pages/s", "times a bare parse")


@dataclass(frozen=True)
class Labelled:
    """Pages with what is known of their main text, by name of their file."""

    name: str
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path, most: int | None = None) -> Labelled:
        """The test pages of a file, the first `most`."""
        rows: list[Mapping[str, Any]] = [*read_pages(path)]
        return cls(path.name.partition(".")[0], [row for row in rows if row.get("set", "test") == "test"][:most])

    @property
    def pages(self) -> list[str]:
        """Their markup."""
        return [row["html"] for row in self.rows]

    def score(self, texts: Sequence[str]) -> Score:
        """How good these texts are: by the whole main text of the pages that have one, or else by segments."""
        pairs = [*zip(self.rows, texts, strict=True)]
        marked = [(row["main"], text) for row, text in pairs if row.get("main")]
        if marked:
            return score(marked)
        return score_segments((row.get("with") or (), row.get("without") or (), text) for row, text in pairs)


def compare(labelled: Labelled, rounds: int, progress: Callable[[str], None]) -> str:
    """A table of all contenders over these pages, each once a round, in turns."""
    with contenders(labelled.pages, progress) as found:
        passes = in_turns(found, rounds, progress)
    rows = [_row(name, passes, labelled) for name in passes]
    return markdown(f"{labelled.name}: {len(labelled.rows):,} pages", HEADER, rows)


def in_turns(
    found: Mapping[str, Contender], rounds: int, progress: Callable[[str], None]
) -> Mapping[str, Sequence[Pass]]:
    """The passes of each contender."""
    passes: dict[str, list[Pass]] = {name: [] for name in found}
    for number in range(rounds):
        for name, go in found.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            passes[name].append(go())
    return passes


def _row(name: str, passes: Mapping[str, Sequence[Pass]], labelled: Labelled) -> list[str]:
    own, limit = passes[name], passes[LIMIT]
    rate = len(labelled.rows) / median(each.seconds for each in own)
    times = median(a.seconds / b.seconds for a, b in zip(own, limit, strict=True))
    cost = [f"{rate:,.0f}", f"{times:.2g}"]
    if name == LIMIT:
        return [name, "", "", "", *cost]
    found = labelled.score(own[0].texts)
    return [name, *(f"{value:.3f}" for value in (found.f1, found.precision, found.recall)), *cost]
