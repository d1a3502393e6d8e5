"""Verdicts counted: totals, similarity, hosts, clusters, and every duplicate as a row of a table.

Memory is that of the rows, about 1 kB a verdict; whatever stands in a verdict may come from strangers and is only text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from simhash.errors import ProfileError
from simhash.signature.minhash import BAND_BITS, MinHashSketch
from simhash.signature.profiles import Profile
from simhash.signature.profiles import profile as find_profile
from worker.records.verdict import Verdict

STEPS = 20
"""Bars of the histogram of similarities: .05 each."""


@dataclass(frozen=True, slots=True)
class Row:
    """A duplicate.

    Attributes:
        number: which verdict it is, from 0.
        seq: the number of the page that it matches.
        similarity: Jaccard similarity as the two sketches estimate it; None: they are not known.
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


@dataclass
class Host:
    """What a host's pages were called."""

    pages: int = 0
    unique: int = 0
    exact: int = 0
    near: int = 0


@dataclass
class Collected:
    """All verdicts, put together."""

    verdicts: int = 0
    unique: int = 0
    exact: int = 0
    near: int = 0
    same_url: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    distances: Counter[int] = field(default_factory=Counter)
    similarities: list[int] = field(default_factory=lambda: [0] * STEPS)
    hosts: defaultdict[str, Host] = field(default_factory=lambda: defaultdict(Host))
    clusters: Counter[int] = field(default_factory=Counter)
    rows: list[Row] = field(default_factory=list)
    _verifiers: dict[int, str] = field(default_factory=dict)

    def add_all(self, verdicts: Iterable[Verdict]) -> None:
        """Go on with these, in the order in which they were told."""
        for verdict in verdicts:
            self._add(verdict)

    def largest(self, count: int) -> list[list[Row]]:
        """The clusters with most pages: the duplicates of each, all of one stored page."""
        wanted: dict[int, list[Row]] = {seq: [] for seq, _ in self.clusters.most_common(count)}
        for row in self.rows:
            if row.seq in wanted:
                wanted[row.seq].append(row)
        return list(wanted.values())

    def _add(self, verdict: Verdict) -> None:
        host = self.hosts[host_of(verdict.url)]
        self.verdicts += 1
        host.pages += 1
        self.profiles[verdict.profile] += 1
        if verdict.match is None:
            self.unique += 1
            host.unique += 1
            if verdict.seq is not None and verdict.verifier:
                self._verifiers[verdict.seq] = verdict.verifier
            return
        row = self._row(verdict)
        self.rows.append(row)
        self.clusters[row.seq] += 1
        self.distances[row.distance] += 1
        self.same_url += row.same_url
        if row.kind == "exact":
            self.exact += 1
            host.exact += 1
            return
        self.near += 1
        host.near += 1
        if row.similarity is not None:
            self.similarities[min(STEPS - 1, int(row.similarity * STEPS))] += 1

    def _row(self, verdict: Verdict) -> Row:
        match = verdict.match
        assert match is not None
        other = self._verifiers.get(match.seq)
        similarity = 1.0 if match.kind == "exact" else estimated(verdict.verifier, other, verdict.profile)
        own = self.verdicts - 1
        told = (match.seq, match.distance, match.kind, match.same_url, similarity)
        return Row(own, verdict.url, verdict.id, match.url, match.id, *told)


def host_of(url: str) -> str:
    """The host of a URL; the URL's beginning where it has none."""
    try:
        return urlsplit(url).hostname or url[:60]
    except ValueError:
        return url[:60]


def shipped(name: str) -> Profile | None:
    """The profile that a verdict names ("default/1"), if it is one that ships."""
    try:
        found = find_profile(name.rpartition("/")[0])
    except ProfileError:
        return None
    return found if name == f"{found.name}/{found.version}" else None


def estimated(a: str | None, b: str | None, profile: str) -> float | None:
    """Jaccard similarity by two one-bit MinHash sketches (Li and König, WWW 2010): 1 - 2 d / bits, at least 0."""
    known = shipped(profile)
    if not a or not b or known is None or not isinstance(known.verifier, MinHashSketch):
        return None
    different = ((int(a, 16) ^ int(b, 16)) >> (BAND_BITS * known.bands)).bit_count()
    return max(0.0, 1 - 2 * different / known.verifier.bins)
