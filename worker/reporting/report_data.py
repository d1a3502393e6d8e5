"""Verdicts counted: totals, similarity, hosts, clusters, and every duplicate as a row of a table.

Memory is that of the rows, about 1 kB a verdict; whatever stands in a verdict may come from strangers and is only text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from worker.records.hints import host_of
from worker.records.verdict import Verdict

STEPS = 20
"""Bars of the histogram of similarities: .05 each."""


@dataclass(frozen=True, slots=True)
class DuplicateRow:
    """A duplicate.

    Attributes:
        number: which verdict it is, from 0.
        seq: the number of the page that it matches.
        similarity, containment: as the verdict tells them; None: it does not.
    """

    number: int
    url: str
    id: str | None
    match_url: str
    match_id: str | None
    seq: int
    distance: int
    kind: str
    same_url: bool
    similarity: float | None
    containment: float | None


@dataclass
class ReportedHost:
    """What a host's pages were called."""

    pages: int = 0
    unique: int = 0
    exact: int = 0
    near: int = 0


@dataclass
class ReportData:
    """All verdicts, put together."""

    verdicts: int = 0
    unique: int = 0
    exact: int = 0
    near: int = 0
    same_url: int = 0
    better: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    distances: Counter[int] = field(default_factory=Counter)
    similarities: list[int] = field(default_factory=lambda: [0] * STEPS)
    hosts: defaultdict[str, ReportedHost] = field(default_factory=lambda: defaultdict(ReportedHost))
    clusters: Counter[int] = field(default_factory=Counter)
    rows: list[DuplicateRow] = field(default_factory=list)

    def add_all(self, verdicts: Iterable[Verdict]) -> None:
        """Go on with these, in the order in which they were told."""
        for verdict in verdicts:
            self._add(verdict)

    def largest(self, count: int) -> list[list[DuplicateRow]]:
        """The clusters with most pages: the duplicates of each, all of one stored page."""
        wanted: dict[int, list[DuplicateRow]] = {seq: [] for seq, _ in self.clusters.most_common(count)}
        for row in self.rows:
            if row.seq in wanted:
                wanted[row.seq].append(row)
        return list(wanted.values())

    def _add(self, verdict: Verdict) -> None:
        host = self.hosts[host_of(verdict.url) or verdict.url[:60]]
        self.verdicts += 1
        host.pages += 1
        self.profiles[verdict.profile] += 1
        if verdict.match is None:
            self.unique += 1
            host.unique += 1
            return
        row = self._row(verdict)
        self.rows.append(row)
        self.clusters[row.seq] += 1
        self.distances[row.distance] += 1
        self.same_url += row.same_url
        self.better += bool(verdict.better)
        if row.kind == "exact":
            self.exact += 1
            host.exact += 1
            return
        self.near += 1
        host.near += 1
        if row.similarity is not None:
            self.similarities[min(STEPS - 1, int(row.similarity * STEPS))] += 1

    def _row(self, verdict: Verdict) -> DuplicateRow:
        match = verdict.match
        assert match is not None
        own = self.verdicts - 1
        told = (match.seq, match.distance, match.kind, match.same_url, match.similarity, match.containment)
        return DuplicateRow(own, verdict.url, verdict.id, match.url, match.id, *told)
