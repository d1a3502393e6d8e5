"""Sets of tables as the source of another: all that they hold, without what has expired and without what came twice.

The new set is built like any other (`build`): sorted anew, so it may have another design, and nothing that was removed
is left anywhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from simhash.archive.building.ingest import Holding, Portion
from simhash.archive.lookup.opened import TableSet, verifier_bytes
from simhash.errors import TableMismatch
from simhash.index.interface import Record

BATCH_RECORDS = 4096

Entry = tuple[int | None, Record]


def holding(sets: Sequence[TableSet]) -> Holding:
    """What a set made of these holds.

    Raises:
        TableMismatch: they do not go together; the message says in what they differ.
    """
    first = sets[0]
    for other in sets[1:]:
        for what, one, another in zip(_TRAITS, _traits(first), _traits(other), strict=True):
            if one != another:
                raise TableMismatch(
                    f"{first.directory} and {other.directory} do not go together: their {what} differ"
                    f" ({_named(one)}, {_named(another)})"
                )
    relation = first.relation
    return Holding(relation.design.bits, first.has_records, verifier_bytes(relation), relation.bands)


_TRAITS = ("widths", "profiles", "kinds", "verifiers", "reaches")


def _traits(tables: TableSet) -> tuple[object, ...]:
    relation = tables.relation
    verifier = (relation.verifier_reach, relation.verifier_bits, relation.bands)
    # The reach of a bare set is only its default.
    reach = relation.reach if tables.has_records else None
    return relation.design.bits, tables.profile, tables.has_records, verifier, reach


def _named(trait: object) -> object:
    if isinstance(trait, bool):
        return "with records" if trait else "bare"
    return f"{trait['name']}/{trait['version']}" if isinstance(trait, dict) else trait


@dataclass(frozen=True)
class Merged:
    """See `ingest.EntrySource`.

    Attributes:
        keep: whether a record stays; bare fingerprints all do.
    """

    sets: Sequence[TableSet]
    keep: Callable[[Record], bool]

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`."""
        return self._records(skip) if self.sets[0].has_records else self._bare(skip)

    def _bare(self, skip: int) -> Iterator[Portion]:
        for tables in self.sets:
            for keys in tables.fingerprints():
                passed = min(skip, len(keys))
                skip -= passed
                if passed < len(keys):
                    yield Portion(len(keys) - passed, keys[passed:])

    def _records(self, skip: int) -> Iterator[Portion]:
        entries = islice(self._entries(), skip, None)
        while some := list(islice(entries, BATCH_RECORDS)):
            kept = [entry for entry, is_first in some if is_first and self.keep(entry[1])]
            yield Portion(len(some), records=kept)

    def _entries(self) -> Iterator[tuple[Entry, bool]]:
        """All entries by key, then seq, and whether each is the first of its observation under its key."""
        ordered = heapq.merge(*(tables.scan() for tables in self.sets), key=_order)
        for _, under_one_key in groupby(ordered, key=lambda entry: _order(entry)[:2]):
            seen: set[bytes] = set()
            for entry in under_one_key:
                observation = entry[1].observation
                yield entry, observation not in seen
                seen.add(observation)


def _order(entry: Entry) -> tuple[bool, int | str, int, int, int, bytes]:
    """Where an entry stands among all, as in the side files: by key, then by what bodies begin with."""
    fingerprint, record = entry
    key = record.digest if fingerprint is None else fingerprint
    return fingerprint is None, key, record.seq, record.inserted_ms, record.verifier or 0, record.observation
