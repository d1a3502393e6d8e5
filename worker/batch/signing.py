"""Pages to signed rows: the same children, deadline and rejections as file mode; runs in the tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

import pyarrow as pa

from worker.batch.columns import Row, place, row_of_page, table_of
from worker.batch.preference import COLUMN
from worker.batch.slices import BatchInput
from worker.files.inputs import Record
from worker.files.outputs import rejection_line
from worker.judging.fingerprinters import Fingerprinters, PageLimits, Pending
from worker.judging.judge import Prepared, Recipe, Rejected
from worker.records.passing import RawRecord

BATCH_RECORDS = 128
AHEAD = 3
"""Batches under way: one is awaited while the others keep the child busy."""
POLL_SECONDS = 0.2

Numbered = tuple[int, Record, float | None]
"""A record with its position in its input, and the number in the field that it is preferred by."""


@dataclass(frozen=True, slots=True)
class Signing:
    """What a task must know to sign pages.

    Attributes:
        limits: what a page may take.
        verifier_bytes: length of the profile's verifier with its band keys.
        field: by which pages are preferred; None: by none.
        run_records: neighbouring records that one slice of a file takes before the next slice does.
    """

    recipe: Recipe
    limits: PageLimits
    verifier_bytes: int
    field: str | None = None
    run_records: int = 256

    @property
    def label(self) -> str:
        """The profile, as verdicts name it."""
        return self.recipe.profile.label


def signed_pages(source: BatchInput, records: Iterable[Numbered], signing: Signing) -> Iterator[pa.Table]:
    """The records as rows, in order, some at a time; what cannot be judged as a rejection in its place."""
    pool = _pool(signing.recipe, signing.limits)
    under_way: deque[tuple[list[Numbered], Pending]] = deque()
    left = iter(records)
    while True:
        while len(under_way) < AHEAD and (batch := list(islice(left, BATCH_RECORDS))):
            under_way.append((batch, pool.submit([r for _, r, _ in batch if isinstance(r, RawRecord)])))
        if not under_way:
            return
        batch, pending = under_way.popleft()
        while not pending.ready(POLL_SECONDS):
            pass
        yield table_of(list(_rows(source, batch, pending, signing)))


def _rows(source: BatchInput, batch: list[Numbered], pending: Pending, signing: Signing) -> Iterator[Row]:
    outcomes = iter(pending.results())
    for position, record, preference in batch:
        at = place(source.number, position)
        raw = record if isinstance(record, RawRecord) else None
        outcome = record if isinstance(record, Rejected) else next(outcomes)
        if isinstance(outcome, Prepared):
            yield {**row_of_page(at, outcome, signing.verifier_bytes), COLUMN: preference}
        else:
            yield {"at": at, "rejection": rejection_line(source.name, raw, outcome)}


@cache
def _pool(recipe: Recipe, limits: PageLimits) -> Fingerprinters:
    """One child for each of Spark's Python processes, which outlive their tasks: a child takes half a second to start.

    It ends with the process that it belongs to (see `worker.judging.fingerprinters`).
    """
    return Fingerprinters(recipe, processes=1, limits=limits)
