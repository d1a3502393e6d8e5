"""What a check of an index finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Violation(NamedTuple):
    """Something that must not be: the invariant's name, and where it does not hold."""

    invariant: str
    what: str


@dataclass
class Findings:
    """What a check has seen so far; `long_buckets` are no fault, but cost memory.

    Attributes:
        crowded: records that do not stand everywhere, because a place was full (see `Relation.place_limit`).
    """

    keys: int = 0
    records: int = 0
    members: int = 0
    logged: int = 0
    journalled: int = 0
    long_buckets: int = 0
    crowded: int = 0
    violations: list[Violation] = field(default_factory=list)


class Numbers:
    """A set of numbers from `first` on: a bit for each."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._bits = bytearray()

    def add(self, number: int) -> bool:
        """Put it in; False: it was there."""
        at, bit = divmod(number - self.first, 8)
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 4096 - len(self._bits)))
        new = not self._bits[at] >> bit & 1
        self._bits[at] |= 1 << bit
        return new

    def __contains__(self, number: int) -> bool:
        at, bit = divmod(number - self.first, 8)
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> bit & 1)
