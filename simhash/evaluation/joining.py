"""Every pair of pages of Jaccard similarity >= 0.5, exactly, from the sets of their 5-token shingles.

Prefix filtering (Chaudhuri, Ganti, Kaushik, "A Primitive Operator for Similarity Joins in Data Cleaning", ICDE 2006;
Bayardo, Ma, Srikant, "Scaling Up All Pairs Similarity Search", WWW 2007, section 3): with the shingles of all sets in
one order, two sets x and y of Jaccard similarity >= t share a shingle among the first |x| - ceil(t |x|) + 1 of x and as
many of y. In the order of rising frequency these are the rare ones, which few sets have. What shares one is counted in
full.

Memory: some arrays of 8 bytes a shingle, and the pairs found, of which there are at most MOST_PAIRS. Copies of one set
are compared once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation.truth import GREY_JACCARD
from simhash.features.normalisation import normalised_parts
from simhash.features.segment import pieces
from simhash.features.shingles import tokens_of
from simhash.signature.counting import GramSet

TOKENS = 5
"""In a shingle."""
MOST_PAIRS = 5_000_000
"""Held in memory, about 1 GB; 3,200 copies of one page are as many."""
SHINGLES_AT_ONCE = 1 << 22
"""Counted at once: 32 MB."""

Numbers = NDArray[np.int64]
Shingles = NDArray[np.uint64]


def shingles_of(text: str) -> Shingles:
    """The distinct hashes of a text's 5-token shingles, as the default profile reads it; shape (n,)."""
    grams = GramSet(TOKENS)
    for part in normalised_parts(text, "folded"):
        for piece in pieces(part):
            grams.add(tokens_of(piece).hashes)
    return grams.hashes()


def joined(sets: Sequence[Shingles]) -> dict[tuple[int, int], float]:
    """Jaccard similarity of every pair of sets that has 0.5 or more, by their numbers, the lower one first.

    Args:
        sets: distinct hashes, ascending. Empty sets are in no pair.

    Raises:
        ValueError: there are more than MOST_PAIRS.
    """
    groups: dict[bytes, list[int]] = {}
    for number, each in enumerate(sets):
        if len(each):
            groups.setdefault(each.tobytes(), []).append(number)
    members = list(groups.values())
    _refuse_too_many(sum(len(group) * (len(group) - 1) // 2 for group in members))
    found = {pair: 1.0 for group in members for pair in combinations(group, 2)}
    for first, second, jaccard in _similar([sets[group[0]] for group in members]):
        _refuse_too_many(len(found) + len(members[first]) * len(members[second]))
        for a, b in product(members[first], members[second]):
            found[min(a, b), max(a, b)] = jaccard
    return found


def _refuse_too_many(pairs: int) -> None:
    if pairs > MOST_PAIRS:
        raise ValueError(f"more than {MOST_PAIRS:,} pairs of pages are alike: leave out copies of one page")


@dataclass(frozen=True, eq=False)
class _Rows:
    """Lists of numbers, one behind the other: list i is `values[starts[i] : starts[i + 1]]`."""

    values: Numbers
    starts: Numbers

    def __getitem__(self, row: int) -> Numbers:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def lengths(self, rows: Numbers) -> Numbers:
        """How long these lists are."""
        return self.starts[rows + 1] - self.starts[rows]

    def of(self, rows: Numbers) -> Numbers:
        """These lists, one behind the other."""
        lengths = self.lengths(rows)
        shifts = np.repeat(self.starts[rows] - _begins(lengths), lengths)
        return self.values[np.arange(len(shifts)) + shifts]


def _similar(sets: Sequence[Shingles]) -> Iterator[tuple[int, int, float]]:
    """The pairs of different sets; none is empty."""
    if not sets:
        return
    sizes = np.array([len(each) for each in sets], dtype=np.int64)
    ranks = _ranked(sets, sizes)
    prefixes = _prefixes(ranks, sizes)
    having = _inverted(prefixes, int(ranks.values.max(initial=-1)) + 1)
    here = np.zeros(len(having.starts) - 1, dtype=bool)
    for row in range(len(sets)):
        others = np.unique(having.of(prefixes[row]))
        others = others[others < row]
        low, high = np.minimum(sizes[others], sizes[row]), np.maximum(sizes[others], sizes[row])
        here[ranks[row]] = True
        for some in _parts(others[low >= GREY_JACCARD * high], ranks):
            shared = np.add.reduceat(here[ranks.of(some)], _begins(ranks.lengths(some)), dtype=np.int64)
            jaccard = shared / (sizes[some] + sizes[row] - shared)
            near = jaccard >= GREY_JACCARD
            yield from ((a, row, j) for a, j in zip(some[near].tolist(), jaccard[near].tolist(), strict=True))
        here[ranks[row]] = False


def _ranked(sets: Sequence[Shingles], sizes: Numbers) -> _Rows:
    """The shingles of each set that another has too, as numbers in the order of rising frequency, ascending."""
    _, which, counts = np.unique(np.concatenate(sets), return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    alone = int((counts == 1).sum())  # these have the lowest ranks
    row, ranks = np.repeat(np.arange(len(sets)), sizes), rank[which] - alone
    row, ranks = row[ranks >= 0], ranks[ranks >= 0]
    order = np.lexsort((ranks, row))
    return _Rows(ranks[order], _starts(np.bincount(row, minlength=len(sets))))


def _prefixes(ranks: _Rows, sizes: Numbers) -> _Rows:
    """Of each set the shared shingles among its rarest |x| - ceil(|x| / 2) + 1."""
    rows = np.arange(len(sizes))
    lengths = ranks.lengths(rows)
    alone = sizes - lengths
    taken = np.maximum(sizes // 2 + 1 - alone, 0)
    kept = np.arange(len(ranks.values)) - np.repeat(ranks.starts[:-1], lengths) < np.repeat(taken, lengths)
    return _Rows(ranks.values[kept], _starts(np.minimum(taken, lengths)))


def _inverted(prefixes: _Rows, shingles: int) -> _Rows:
    """The sets that have each shingle in their prefix, ascending."""
    rows = np.repeat(np.arange(len(prefixes.starts) - 1), np.diff(prefixes.starts))
    order = np.argsort(prefixes.values, kind="stable")
    return _Rows(rows[order], _starts(np.bincount(prefixes.values, minlength=shingles)))


def _starts(lengths: Numbers) -> Numbers:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _begins(lengths: Numbers) -> Numbers:
    return _starts(lengths)[:-1]


def _parts(rows: Numbers, lists: _Rows) -> Iterator[Numbers]:
    """These rows, so many at once that their lists are not too long together."""
    part = np.cumsum(lists.lengths(rows)) // SHINGLES_AT_ONCE
    yield from (rows[part == each] for each in np.unique(part))
