"""The report of clusters: the connected components of all that matches; nothing is decided by it.

A cluster holds new pages that match one another, directly or through others, and the existing pages that they are
duplicates of. The verdicts do not follow from it: in a chain A, B, C the ends need not match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from worker.batch.deciding import NONE, Existing
from worker.batch.signature_groups import Groups
from worker.records.verdict import Verdict

Numbers = NDArray[np.int64]


def roots(count: int, pairs: Iterable[tuple[Numbers, Numbers]]) -> Numbers:
    """Of each of `count` groups, the first one of its component; `pairs`: the ends of edges, in columns."""
    parent = list(range(count))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for ends in pairs:
        for one, other in zip(*(column.tolist() for column in ends), strict=True):
            a, b = root(one), root(other)
            if a != b:
                parent[max(a, b)] = min(a, b)
    return np.array([root(number) for number in range(count)], np.int64)


def edges(pairs: Iterable[pa.Table], existing: Existing) -> Iterator[tuple[Numbers, Numbers]]:
    """All edges: the pairs of groups, and groups that are duplicates of one existing page."""
    for table in pairs:
        yield np.asarray(table["later"].to_numpy(), np.int64), np.asarray(table["earlier"].to_numpy(), np.int64)
    known = np.flatnonzero(existing.of_group != NONE)
    _, first, of = np.unique(existing.of_group[known], return_index=True, return_inverse=True)
    yield known, known[first[of]]


class Clusters:
    """Collects the pages of clusters, in order; alone stands no page in it."""

    def __init__(self, groups: Groups, existing: Existing, pairs: Iterable[pa.Table]) -> None:
        found = roots(len(groups.first), edges(pairs, existing))
        self._of_page = found[groups.group]
        sizes = np.bincount(self._of_page, minlength=len(found))
        told = existing.rows.select(["url", "id", "seq"]).to_pylist()
        self._existing: dict[int, dict[int, dict[str, Any]]] = {}
        for group in np.flatnonzero(existing.of_group != NONE).tolist():
            row = int(existing.of_group[group])
            self._existing.setdefault(int(found[group]), {})[row] = told[row]
        self._many = sizes > 1
        self._many[list(self._existing)] = True
        self._pages: dict[int, list[dict[str, Any]]] = {}

    def add(self, number: int, verdict: Verdict) -> None:
        """Add a page, by its number."""
        cluster = int(self._of_page[number])
        if self._many[cluster]:
            told = {"url": verdict.url, "id": verdict.id, "verdict": verdict.verdict, "seq": verdict.seq}
            self._pages.setdefault(cluster, []).append(told)

    def lines(self) -> Iterator[bytes]:
        """A line of JSON for each cluster, in the order of their first pages."""
        for cluster, pages in self._pages.items():
            existing = list(self._existing.get(cluster, {}).values())
            yield msgspec.json.encode({"pages": pages, "existing": existing}) + b"\n"
