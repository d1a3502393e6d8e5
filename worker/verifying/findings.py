"""What was found: violations by kind, the first of each in words, and notes on what is no violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SHOWN = 10
"""Violations of one kind that are told in words; all are counted."""


@dataclass
class Findings:
    """Filled by the checks.

    Attributes:
        counts: violations by kind.
        first: the first of each kind, a line each: place, kind, what is wrong and what was expected.
        notes: what a reader should know, and is no violation.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, rows: Iterable[int], tell: Callable[[int], tuple[object, str]]) -> None:
        """Count a violation for each of `rows`; `tell` gives the place and the words of one."""
        for row in rows:
            if self.counts[kind] < SHOWN:
                place, words = tell(int(row))
                self.first.append(f"{place}: {kind}: {words}")
            self.counts[kind] += 1

    def add_one(self, kind: str, place: str, words: str) -> None:
        """Count a violation."""
        self.add(kind, [0], lambda _: (place, words))

    @property
    def violations(self) -> int:
        """All of them."""
        return self.counts.total()
