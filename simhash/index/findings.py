"""What a check of an index finds, and what the checks of both kinds of index have alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from simhash.index.layout import OBSERVATION_BYTES, OFFSET_BYTES

_ANSWER_HEAD = 5
"""Bytes of a journalled answer before the decision: candidates, and its kind."""


class Violation(NamedTuple):
    """Something that must not be: the invariant's name, and where it does not hold."""

    invariant: str
    what: str


@dataclass
class Findings:
    """What a check has seen so far; `long_buckets` are no fault, but cost memory.

    `held` names claims, on a cluster, that were there from the begin of the check to its end, perhaps of dead workers.
    """

    keys: int = 0
    records: int = 0
    members: int = 0
    logged: int = 0
    journalled: int = 0
    long_buckets: int = 0
    violations: list[Violation] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


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


class Checker:
    """What checks of both kinds of index have alike."""

    def __init__(self, on_progress: Callable[[Findings], None]) -> None:
        self._progress = on_progress
        self.found = Findings()

    def _report(self, invariant: str, what: str) -> None:
        self.found.violations.append(Violation(invariant, what))

    def _check_journal(
        self,
        key: str,
        fields: Iterable[tuple[bytes, bytes]],
        again: Callable[[bytes], tuple[bytes | None, bool]],
    ) -> None:
        """A journal: each entry must be readable, and not below the mark.

        Args:
            again: the mark, and whether this entry is there, at one moment.
        """
        for offset, value in fields:
            if offset == b"mark":
                if not value.isdigit():
                    self._report("journal", f"the mark of {key} is {value!r:.40}")
                continue
            self.found.journalled += 1
            kind = value[OBSERVATION_BYTES + _ANSWER_HEAD - 1 :][:1]
            if len(offset) != OFFSET_BYTES or kind not in (b"u", b"d"):
                self._report("journal", f"entry {offset.hex()} of {key} cannot be read")
                continue
            mark, there = again(offset)
            if there and int(mark or -1) > int.from_bytes(offset):
                self._report("journal", f"{key} has offset {int.from_bytes(offset)}, below its mark {int(mark or -1)}")
