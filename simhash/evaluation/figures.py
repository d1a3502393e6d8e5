"""Recall, precision and false pairs of what was found, for every language, Jaccard band and length.

recall      found positives / all positives of the set
precision   found positives / (found positives + found negatives): grey pairs are not scored, exact copies stand apart
duplicates  pages that an index would call duplicate, one page after the other, by what they and their matches are
false pairs found negatives; every pair of the set was looked at
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation.search import FoundPairs, Numbers
from simhash.evaluation.truth import KnownPairs, PairClass

ALL = "ALL"
MIXED = "mixed"
"""Pairs of pages in two languages."""
_EVERY = -1
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


def figures_by_language(found: FoundPairs, known: KnownPairs, languages: Sequence[str]) -> dict[str, Figures]:
    """Figures of all pages under `ALL`, then of each language; pairs of two languages are under `MIXED`."""
    names, codes = np.unique(languages, return_inverse=True)
    code = codes.astype(np.int64)
    counts = _counted(found, known, code, len(names))
    pages = np.bincount(code, minlength=len(names))
    result = {ALL: _figures(len(languages), known, counts, _EVERY)}
    for number, name in enumerate(names.tolist()):
        result[name] = _figures(int(pages[number]), known, counts, number)
    if (counts.language == len(names)).any() or counts.exact[-1] or counts.false[-1]:
        result[MIXED] = _figures(0, known, counts, len(names))
    return result


@dataclass(frozen=True, slots=True)
class Wrong:
    """A pair of pages, by their numbers, that was found and is none, or is one and was missed.

    Attributes:
        jaccard: None where it is below 0.5.
    """

    kind: Literal["false", "missed"]
    first: int
    second: int
    jaccard: float | None


def wrong_pairs(found: FoundPairs, known: KnownPairs) -> Iterator[Wrong]:
    """The pairs that were answered wrongly; of copies on either side one pair stands for all."""
    missed = (known.reading == PairClass.POSITIVE) & (found.places(known.first, known.second) < 0)
    columns = (known.first[missed].tolist(), known.second[missed].tolist(), known.jaccard[missed].tolist())
    once: set[tuple[int, int]] = set()
    for first, second, jaccard in zip(*columns, strict=True):
        rows = (int(found.row[first]), int(found.row[second]))
        if rows not in once:
            once.add(rows)
            yield Wrong("missed", first, second, jaccard)
    if not len(found):
        return
    page = np.unique(found.row, return_index=True)[1]
    apart = found.only(found.first != found.second)
    ends = np.sort(np.stack((page[apart.first], page[apart.second])), axis=0)
    false = known.readings_of(ends[0], ends[1]) == PairClass.NEGATIVE
    for first, second in zip(ends[0][false].tolist(), ends[1][false].tolist(), strict=True):
        yield Wrong("false", first, second, None)


def recall_by_length(found: FoundPairs, known: KnownPairs, features: Sequence[int]) -> list[Band]:
    """Recall of positives by the number of features of the shorter page."""
    counts = np.array(features, dtype=np.int64)
    positive = known.reading == PairClass.POSITIVE
    shorter = np.minimum(counts[known.first], counts[known.second])[positive]
    hit = found.places(known.first, known.second)[positive] >= 0
    return [_band(shorter, hit, low, high) for low, high in zip(LENGTHS, [*LENGTHS[1:], None], strict=True)]


def by_reading(found: FoundPairs, known: KnownPairs, value: Numbers, values: int) -> Numbers:
    """Found pairs of pages by reading and a value, 0 to values - 1, of each found pair of rows; shape (4, values)."""
    one_language = np.zeros(len(found.row), dtype=np.int64)
    total, exact = np.zeros((2, values), dtype=np.int64)
    same = _digests_of_rows(found, known)
    same_digest = same[found.first] == same[found.second]
    for each in range(values):
        at = found.only(value == each)
        total[each] = _pairs_by_language(found.row, one_language, 1, at.first, at.second)[0]
        at = found.only((value == each) & same_digest)
        exact[each] = _pairs_by_language(found.row, one_language, 1, at.first, at.second)[0]
    places = found.places(known.first, known.second)
    hit = places >= 0
    counted = np.zeros((len(PairClass), values), dtype=np.int64)
    np.add.at(counted, (known.reading[hit], value[places[hit]]), 1)
    counted[PairClass.EXACT] += exact - np.bincount(value[places[hit & known.apart]], minlength=values)
    counted[PairClass.NEGATIVE] = total - counted[PairClass.GREY :].sum(axis=0)
    return counted


def duplicates_by_reading(found: FoundPairs, known: KnownPairs) -> Numbers:
    """How many pages an index would call duplicate, judged in order, by the reading of page and match; shape (4,).

    Only pages that were called unique are stored, and the oldest that matches is the match.
    """
    if not len(found):
        return np.zeros(len(PairClass), dtype=np.int64)
    match = _representatives(found)[found.row]
    first_page = np.unique(found.row, return_index=True)[1]
    pages = np.arange(len(found.row))
    called = (match >= 0) & (pages != first_page[match])
    readings = known.readings_of(first_page[match[called]], pages[called])
    return np.bincount(readings, minlength=len(PairClass))


def _representatives(found: FoundPairs) -> Numbers:
    """The row that the pages of each row match, -1 where they are all unique; shape (rows,).

    A row whose first page is unique is matched by its other pages, if these match each other at all.
    """
    earlier: dict[int, list[int]] = {}
    for first, second in zip(found.first.tolist(), found.second.tolist(), strict=True):
        earlier.setdefault(second, []).append(first)
    match = np.full(found.row.max() + 1, -1, dtype=np.int64)
    for row in sorted(earlier):
        # A row's number is below another's where its first page is older; a unique row matches itself, or nothing.
        match[row] = min((each for each in earlier[row] if match[each] in (-1, each)), default=-1)
    return match


def _digests_of_rows(found: FoundPairs, known: KnownPairs) -> Numbers:
    digests = np.zeros(len(known.digest), dtype=np.int64)
    digests[found.row] = known.digest
    return digests


@dataclass(frozen=True, eq=False)
class _Counts:
    """What was found of the listed pairs, and of the others how many, by language; the last one: of two languages.

    Attributes:
        language, hit: of each listed pair, shape (n,).
        exact, exact_found, false: pairs by language, shape (languages + 1,); listed exact ones are not among them.
    """

    language: Numbers
    hit: NDArray[np.bool_]
    exact: Numbers
    exact_found: Numbers
    false: Numbers


def _counted(found: FoundPairs, known: KnownPairs, code: Numbers, languages: int) -> _Counts:
    """By arithmetic: a thousand copies of one page are half a million pairs, and nobody lists them."""
    language = np.where(code[known.first] == code[known.second], code[known.first], languages)
    hit = found.places(known.first, known.second) >= 0

    def listed(which: NDArray[np.bool_]) -> Numbers:
        return np.bincount(language[which], minlength=languages + 1)

    digests = np.unique(known.digest)
    exact = _pairs_by_language(known.digest, code, languages, digests, digests) - listed(known.apart)
    digest_of = _digests_of_rows(found, known)
    same = found.only(digest_of[found.first] == digest_of[found.second])
    exact_found = _pairs_by_language(found.row, code, languages, same.first, same.second) - listed(known.apart & hit)
    every = _pairs_by_language(found.row, code, languages, found.first, found.second)
    return _Counts(language, hit, exact, exact_found, every - exact_found - listed(hit & (known.reading > 0)))


def _pairs_by_language(group: Numbers, code: Numbers, languages: int, first: Numbers, second: Numbers) -> Numbers:
    """Pairs of pages, one of a group in `first` and one of that in `second`, by their language; the last: of two.

    Args:
        group, code: of each page its group and its language.
        first, second: pairs of groups; a group with itself: the pairs within.
    """
    pages = np.zeros((group.max(initial=-1) + 1, languages), dtype=np.int64)
    np.add.at(pages, (group, code), 1)
    own = first == second
    factor = np.where(own, 2, 1)
    of_one = [(pages[first, i] * (pages[second, i] - own) // factor).sum() for i in range(languages)]
    every = pages.sum(axis=1)
    together = (every[first] * (every[second] - own) // factor).sum()
    return np.array([*of_one, together - sum(of_one)], dtype=np.int64)


def _figures(pages: int, known: KnownPairs, counts: _Counts, language: int) -> Figures:
    which = np.ones(len(counts.language), dtype=bool) if language == _EVERY else counts.language == language

    def listed(mask: NDArray[np.bool_]) -> tuple[int, int]:
        return int((mask & which).sum()), int((mask & which & counts.hit).sum())

    def others(values: Numbers) -> int:
        return int(values.sum() if language == _EVERY else values[language])

    positive = known.reading == PairClass.POSITIVE
    pairs, found = listed(positive)
    pairs_090, found_090 = listed(positive & (known.jaccard >= 0.9))
    grey, grey_found = listed(known.reading == PairClass.GREY)
    exact, exact_found = listed(known.reading == PairClass.EXACT)
    exact, exact_found = exact + others(counts.exact), exact_found + others(counts.exact_found)
    false_pairs = others(counts.false)
    at = positive & which
    bands = tuple(_band(known.jaccard[at], counts.hit[at], low, high) for low, high in BANDS)
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
