"""The index of representatives: one interface, one file a backend."""

from simhash.index.interface import (
    Answer,
    Duplicate,
    Entry,
    Index,
    IndexSpec,
    Neighbour,
    Partition,
    Position,
    Record,
    Relation,
    Retention,
    Unique,
)

__all__ = [
    "Answer",
    "Duplicate",
    "Entry",
    "Index",
    "IndexSpec",
    "Neighbour",
    "Partition",
    "Position",
    "Record",
    "Relation",
    "Retention",
    "Unique",
]
