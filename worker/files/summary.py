"""The figures of a run over files: how many pages got which verdict, and why others were rejected."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from worker.errors import TooFewJudged
from worker.records.hints import host_of
from worker.records.verdict import Verdict

EXAMPLES = 3
MOST_KINDS = 1_000
"""Of reasons that are told apart: a message may quote the page, so that each is a kind of its own."""
OTHER = "for other reasons"
MOST_HOSTS = 100_000
"""Hosts that are counted; beyond these, the half with the fewest duplicates is forgotten, so small counts are rough."""
HOSTS_TOLD = 10
_NUMBER = re.compile(r"\d[\d,.]*")


def kind_of(said: str) -> str:
    """What is the same of all reasons that differ in numbers alone."""
    return _NUMBER.sub("#", said)


@dataclass
class Reason:
    """How many records were rejected for one kind of reason; `example` is what was said of the first."""

    count: int
    example: str


@dataclass
class Summary:
    """The figures of a run; `--summary-json` writes them.

    Attributes:
        skipped: records of a WARC that are no pages (images, requests).
        again: inputs that were given more than once, and read once.
        hosts: how many duplicates each host has.
    """

    pages: int = 0
    unique: int = 0
    duplicates_exact: int = 0
    duplicates_near: int = 0
    same_url: int = 0
    rejected: int = 0
    skipped: int = 0
    again: int = 0
    seconds: float = 0.0
    complete: bool = False
    examples: list[Verdict] = field(default_factory=list)
    kinds: dict[str, Reason] = field(default_factory=dict)
    hosts: Counter[str] = field(default_factory=Counter)

    @property
    def pages_per_second(self) -> float:
        """Pages and rejected records a second, start-up included."""
        return (self.pages + self.rejected) / self.seconds if self.seconds else 0.0

    def count(self, verdict: Verdict) -> None:
        """Add a verdict."""
        self.pages += 1
        match = verdict.match
        if match is None:
            self.unique += 1
            return
        self.same_url += match.same_url
        self._count_host(verdict.url)
        if match.kind == "exact":
            self.duplicates_exact += 1
        else:
            self.duplicates_near += 1
            self._exemplify(verdict)

    def reject(self, stage: str, message: str) -> None:
        """Add a rejected record."""
        self.rejected += 1
        self.explain(f"{stage}: {message}")

    def explain(self, said: str) -> None:
        """Add a reason; those that differ in numbers alone are one."""
        kind = kind_of(said)
        if kind not in self.kinds and len(self.kinds) == MOST_KINDS:
            kind = said = OTHER
        self.kinds.setdefault(kind, Reason(0, said)).count += 1

    def reasons(self) -> list[Reason]:
        """Why records were rejected, the most frequent first."""
        return sorted(self.kinds.values(), key=lambda reason: -reason.count)

    def most_duplicates(self) -> list[tuple[str, int]]:
        """The hosts with the most duplicates, the first ones first."""
        return sorted(self.hosts.items(), key=lambda item: (-item[1], item[0]))[:HOSTS_TOLD]

    def _count_host(self, url: str) -> None:
        if host := host_of(url):
            self.hosts[host] += 1
            if len(self.hosts) > MOST_HOSTS:
                self.hosts = Counter(dict(self.hosts.most_common(MOST_HOSTS // 2)))

    def check(self, most_rejected: int | None) -> None:
        """Raise TooFewJudged: no page was judged, or more than `most_rejected` records were rejected (None: any)."""
        why = f", mostly: {self.reasons()[0].example:.200}" if self.kinds else ""
        if most_rejected is not None and self.rejected > most_rejected:
            raise TooFewJudged(f"{self.rejected:,} records were rejected, more than {most_rejected:,}{why}")
        if not self.pages:
            found = f"{self.rejected:,} records were rejected and {self.skipped:,} are no pages{why}"
            raise TooFewJudged(f"no page was judged: {found if self.rejected + self.skipped else 'there is none'}")

    def figures(self) -> dict[str, object]:
        """All but the examples, by name."""
        left_out = ("examples", "kinds", "hosts")
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in left_out}
        reasons = [{"count": reason.count, "example": reason.example} for reason in self.reasons()]
        hosts = [{"host": host, "duplicates": count} for host, count in self.most_duplicates()]
        values |= {"rejected_because": reasons, "hosts_with_most_duplicates": hosts}
        return values | {"pages_per_second": round(self.pages_per_second, 1)}

    def _exemplify(self, verdict: Verdict) -> None:
        """Keep a few examples, of different distances as far as there are."""
        distances = [v.match.distance for v in self.examples if v.match]
        repeated = [n for n, distance in enumerate(distances) if distance in distances[:n]]
        if len(self.examples) < EXAMPLES:
            self.examples.append(verdict)
        elif repeated and verdict.match and verdict.match.distance not in distances:
            self.examples[repeated[0]] = verdict
