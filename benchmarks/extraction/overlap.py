"""How much of a page's main text was found: two measures, both computed page by page.

**Runs of four words.** Texts are compared as multisets of four tokens in a row (all of them in a shorter text). What
both have is found, what only the extracted text has is extra, what only the true text has is missed. Precision and
recall of a set of pages are the means over its pages, F1 is of those means: the measure of Zyte's benchmark of article
extraction (github.com/scrapinghub/article-extraction-benchmark). A Han or kana character is a token of its own; without
those the figures are that benchmark's.

**Segments.** Of some pages only a few sentences are known that belong to the main text, and some that do not: counted
over all pages together, as trafilatura's evaluation does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

WORDS_IN_A_RUN = 4
TOKEN = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3005-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Score:
    """Precision and recall of extracted texts, shares of 1."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Their harmonic mean; 0 where both are."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many runs two texts share, how many the extracted one has besides, and how many it lacks."""

    found: int
    extra: int
    missed: int

    @property
    def precision(self) -> float | None:
        """Share of the extracted text that is true; None where nothing was extracted."""
        return _share(self.found, self.extra)

    @property
    def recall(self) -> float | None:
        """Share of the true text that was extracted; None where there is none."""
        return _share(self.found, self.missed)


def overlap(true: str, extracted: str) -> Overlap:
    """The overlap of an extracted text with the true one."""
    wanted, got = _runs(true), _runs(extracted)
    both = (wanted & got).total()
    return Overlap(both, got.total() - both, wanted.total() - both)


def score(pairs: Iterable[tuple[str, str]]) -> Score:
    """Score of pairs of a true and an extracted text; 0 where no page says anything."""
    overlaps = [overlap(*pair) for pair in pairs]
    return Score(_mean(each.precision for each in overlaps), _mean(each.recall for each in overlaps))


def score_segments(pages: Iterable[tuple[Iterable[str], Iterable[str], str]]) -> Score:
    """Score of pages of which are known: segments that belong there, segments that do not, and the extracted text."""
    found = missed = extra = 0
    for wanted, unwanted, text in pages:
        squeezed = _squeezed(text)
        hits = [_squeezed(segment) in squeezed for segment in wanted]
        found, missed = found + sum(hits), missed + len(hits) - sum(hits)
        extra += sum(_squeezed(segment) in squeezed for segment in unwanted)
    return Score(_share(found, extra) or 0.0, _share(found, missed) or 0.0)


def _runs(text: str) -> Counter[tuple[str, ...]]:
    tokens = TOKEN.findall(text)
    if 0 < len(tokens) < WORDS_IN_A_RUN:
        return Counter([tuple(tokens)])
    return Counter(zip(*(tokens[start:] for start in range(WORDS_IN_A_RUN)), strict=False))


def _squeezed(text: str) -> str:
    """Line breaks inside a sentence are the extractor's own affair."""
    return " ".join(text.split())


def _share(part: int, other: int) -> float | None:
    return part / (part + other) if part + other else None


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0
