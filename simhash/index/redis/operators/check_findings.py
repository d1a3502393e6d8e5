"""What a check of an index finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Violation(NamedTuple):
    """Something that must not be: the invariant's name, and where it does not hold."""

    invariant: str
    what: str


@dataclass
class CheckFindings:
    """What a check has seen so far; `long_buckets` are no fault, but cost memory.

    Attributes:
        archived: records in the archive on disk.
        replaced: keys of tables that a migration has replaced, and did not come to remove yet.
        crowded: records that do not stand everywhere, because a place was full (see `Relation.place_limit`).
    """

    keys: int = 0
    records: int = 0
    members: int = 0
    journalled: int = 0
    versions: int = 0
    long_buckets: int = 0
    crowded: int = 0
    archived: int = 0
    replaced: int = 0
    violations: list[Violation] = field(default_factory=list)
