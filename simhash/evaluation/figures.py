"""Recall, precision and false pairs of what was found, for every language, Jaccard band and length.

recall      found positives / all positives of the set
precision   found positives / (found positives + found negatives): grey pairs are not scored, exact copies stand apart
false pairs found negatives; every pair of the set was looked at
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation.search import Found, Numbers
from simhash.evaluation.truth import KnownPairs, Reading

ALL = "ALL"
MIXED = "mixed"
"""Pairs of pages in two languages."""
BANDS = ((0.0, 0.8), (0.8, 0.85), (0.85, 0.9), (0.9, 0.95), (0.95, 1.0))
"""Of Jaccard similarity, the upper end outside; the first holds only pairs that people have labelled duplicates."""
LENGTHS = (0, 10, 32, 64, 128, 256, 1024)
"""Bounds of lengths, in features of the shorter page of a pair."""


@dataclass(frozen=True, slots=True)
class Band:
    """Positives with a measure from `low` to below `high` (None: no end), and how many of them were found."""

    low: float
    high: float | None
    pairs: int
    found: int

    @property
    def recall(self) -> float | None:
        """Share found; None without pairs."""
        return _share(self.found, self.pairs)


@dataclass(frozen=True, slots=True)
class Figures:
    """How good the answers are for pages of one language; shares are None where there is nothing to share.

    Attributes:
        pairs_080, pairs_090: positives, and those of Jaccard >= 0.9.
        false_pairs: found pairs that are negative.
        grey_pairs, grey_found: pairs of Jaccard 0.5 to 0.8, and how many were found: neither right nor wrong.
        pairs_exact, recall_exact: copies of the same text.
    """

    pages: int
    pairs_080: int
    found_080: int
    recall_080: float | None
    pairs_090: int
    recall_090: float | None
    precision: float | None
    false_pairs: int
    grey_pairs: int
    grey_found: int
    pairs_exact: int
    recall_exact: float | None
    bands: tuple[Band, ...]


def figures_by_language(found: Found, known: KnownPairs, languages: Sequence[str]) -> dict[str, Figures]:
    """Figures of all pages under `ALL`, then of each language; pairs of two languages are under `MIXED`."""
    names, codes = np.unique([*languages, ""], return_inverse=True)
    code = codes.astype(np.int64)[:-1]
    hit = known.among(found.first, found.second)
    false = found.only(known.readings_of(found.first, found.second) == Reading.NEGATIVE)
    known_code, false_code = _of_pairs(code, known.first, known.second), _of_pairs(code, false.first, false.second)
    every = np.ones(len(known_code), dtype=bool)
    result = {ALL: _figures(len(languages), known, hit, every, len(false))}
    for number, name in enumerate(names.tolist()):
        if pages := int((code == number).sum()):
            wrong = int((false_code == number).sum())
            result[name] = _figures(pages, known, hit, known_code == number, wrong)
    if (known_code == -1).any() or (false_code == -1).any():
        result[MIXED] = _figures(0, known, hit, known_code == -1, int((false_code == -1).sum()))
    return result


def recall_by_length(found: Found, known: KnownPairs, features: Sequence[int]) -> list[Band]:
    """Recall of positives by the number of features of the shorter page."""
    counts = np.array(features, dtype=np.int64)
    positive = known.reading == Reading.POSITIVE
    shorter = np.minimum(counts[known.first], counts[known.second])[positive]
    hit = known.among(found.first, found.second)[positive]
    return [_band(shorter, hit, low, high) for low, high in zip(LENGTHS, [*LENGTHS[1:], None], strict=True)]


def _of_pairs(code: Numbers, first: Numbers, second: Numbers) -> Numbers:
    return np.where(code[first] == code[second], code[first], -1)


def _figures(
    pages: int, known: KnownPairs, hit: NDArray[np.bool_], which: NDArray[np.bool_], false_pairs: int
) -> Figures:
    def counted(mask: NDArray[np.bool_]) -> tuple[int, int]:
        return int((mask & which).sum()), int((mask & which & hit).sum())

    positive = known.reading == Reading.POSITIVE
    pairs, found = counted(positive)
    pairs_090, found_090 = counted(positive & (known.jaccard >= 0.9))
    grey, grey_found = counted(known.reading == Reading.GREY)
    exact, exact_found = counted(known.reading == Reading.EXACT)
    at = positive & which
    bands = tuple(_band(known.jaccard[at], hit[at], low, high) for low, high in BANDS)
    return Figures(
        pages=pages,
        pairs_080=pairs,
        found_080=found,
        recall_080=_share(found, pairs),
        pairs_090=pairs_090,
        recall_090=_share(found_090, pairs_090),
        precision=_share(found, found + false_pairs),
        false_pairs=false_pairs,
        grey_pairs=grey,
        grey_found=grey_found,
        pairs_exact=exact,
        recall_exact=_share(exact_found, exact),
        bands=tuple(band for band in bands if band.low or band.pairs),
    )


def _band(values: NDArray[np.float64] | Numbers, hit: NDArray[np.bool_], low: float, high: float | None) -> Band:
    inside = (values >= low) & (values < (np.inf if high is None else high))
    return Band(low, high, int(inside.sum()), int((inside & hit).sum()))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
