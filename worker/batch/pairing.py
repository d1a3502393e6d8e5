"""The new pages compared with one another, in the tasks: the pairs that decide, and the pairs that connect.

See `tasks` for what a task is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from worker.batch.keeping import Forest, OldestEntries
from worker.batch.probing import Tables
from worker.batch.signatures import Signatures
from worker.batch.tasks import Done, answered, part_file, written

PAIRS = pa.schema([("later", pa.uint32()), ("earlier", pa.uint32()), ("distance", pa.uint8()), ("more", pa.bool_())])
"""Two groups of new pages that match, the later one by first appearance first; sorted. `more`: the later one may match
others, behind this one, that are not listed."""
EDGES = pa.schema([("later", pa.uint32()), ("earlier", pa.uint32())])
"""Two groups of one cluster."""

Range = tuple[int, int, int]
"""Number of the file, first group and the one behind the last."""


@dataclass(frozen=True)
class Pair:
    """Compares the undecided groups of a range with those before them that may be survivors.

    Attributes:
        most: pairs of a group that are listed.
        tables, signatures, undecided: broadcasts: tables over the groups that may survive, the signatures of all, and
            which are not decided, shape (groups,).
    """

    directory: Path
    stage: str
    most: int
    tables: Any
    signatures: Any
    undecided: Any

    def __call__(self, part: Range) -> Done:
        """Write the pairs whose later group is in the range."""
        return answered(lambda: self._done(*part))

    def _done(self, number: int, low: int, high: int) -> Done:
        tables: Tables = self.tables.value
        signatures: Signatures = self.signatures.value
        later = np.flatnonzero(self.undecided.value[low:high]) + low
        keeper = OldestEntries(np.searchsorted(tables.numbers, later), self.most)
        tables.find(signatures.take(later), keeper)
        probes, entries, more = keeper.taken()
        own, other = later[probes], tables.numbers[entries]
        distances = np.bitwise_count(signatures.gates[own] ^ signatures.gates[other])
        columns = [own.astype(np.uint32), other.astype(np.uint32), distances, more]
        with written(part_file(self.directory, self.stage, number), PAIRS) as write:
            write(pa.table([pa.array(column) for column in columns], schema=PAIRS))
        return Done(rows=len(later))


@dataclass(frozen=True)
class Link:
    """Connects the groups of a range with all that they match.

    Attributes:
        tables, signatures: broadcasts: tables over some groups, and the signatures of all.
    """

    directory: Path
    stage: str
    tables: Any
    signatures: Any

    def __call__(self, part: Range) -> Done:
        """Write as many edges as it takes."""
        return answered(lambda: self._done(*part))

    def _done(self, number: int, low: int, high: int) -> Done:
        tables: Tables = self.tables.value
        signatures: Signatures = self.signatures.value
        keeper = Forest(np.arange(low, high), tables.numbers, len(signatures))
        tables.find(signatures.take(slice(low, high)), keeper)
        later, earlier = keeper.taken()
        with written(part_file(self.directory, self.stage, number), EDGES) as write:
            columns = [pa.array(ends.astype(np.uint32)) for ends in (later, earlier)]
            write(pa.table(columns, schema=EDGES))
        return Done(rows=high - low)
