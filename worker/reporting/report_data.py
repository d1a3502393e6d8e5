"""Verdicts counted: totals, similarity, hosts, clusters, and every duplicate as a row of a table; and the report, one
file of HTML that needs nothing else: the template, with these figures in it as compressed JSON.

Memory is that of the rows, about 1 kB a verdict; whatever stands in a verdict may come from strangers and is only text.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files

import msgspec

from simhash.explaining import Explanation
from worker.records.hints import host_of
from worker.records.verdict import Verdict, hexadecimal

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


MOST_HOSTS, MOST_CLUSTERS, MOST_FEATURES = 1000, 200, 60
LONGEST_TEXT = 40_000
"""Characters of a stretch that are shown."""
TOTALS = ("verdicts", "unique", "exact", "near", "same_url", "better")
_PLACE = "/*DATA*/"


def document(collected: ReportData, explained: Mapping[int, Explanation], title: str) -> str:
    """The report.

    Args:
        explained: the pairs that are shown whole, by the number of the duplicate's verdict.
    """
    data = {
        "title": title,
        "totals": {name: getattr(collected, name) for name in TOTALS},
        "profiles": dict(collected.profiles.most_common()),
        "similarities": collected.similarities,
        "distances": _dense(collected.distances),
        "hosts": _hosts(collected),
        "host_count": len(collected.hosts),
        "clusters": collected.clusters.most_common(MOST_CLUSTERS),
        "rows": [_row(row) for row in collected.rows],
        "pairs": {str(number): _pair(each) for number, each in explained.items()},
    }
    packed = b64encode(gzip.compress(msgspec.json.encode(data), 6, mtime=0)).decode()
    template = (files("worker.reporting") / "report.html").read_text(encoding="utf-8")
    return template.replace(_PLACE, packed, 1)


def _dense(counts: Counter[int]) -> list[int]:
    return [counts[distance] for distance in range(max(counts, default=-1) + 1)]


def _hosts(collected: ReportData) -> list[list[object]]:
    most = sorted(collected.hosts.items(), key=lambda item: (item[1].unique - item[1].pages, item[0]))
    return [[name, host.pages, host.unique, host.exact, host.near] for name, host in most[:MOST_HOSTS]]


def _row(row: DuplicateRow) -> list[object]:
    exact, same = int(row.kind == "exact"), int(row.same_url)
    return [row.number, row.url, row.match_url, row.seq, row.distance, exact, same, row.similarity, row.containment]


def _pair(told: Explanation) -> dict[str, object]:
    return {
        "match": told.match,
        "similarity": round(told.similarity, 4),
        "containment": [round(share, 4) for share in told.containment],
        "distance": [told.distance, told.reach],
        "verifier": [told.verifier_distance, told.verifier_reach],
        "bits": [hexadecimal(each, len(told.sums[0])) for each in told.fingerprints],
        "sums": [[round(value, 2) for value in sums] for sums in told.sums],
        "features": [[each.name, each.a, each.b] for each in told.features[:MOST_FEATURES]],
        "more": max(0, len(told.features) - MOST_FEATURES),
        "parts": [
            [part.a[:LONGEST_TEXT]] if part.kind == "same" else [part.a[:LONGEST_TEXT], part.b[:LONGEST_TEXT]]
            for part in told.differences
        ],
    }
