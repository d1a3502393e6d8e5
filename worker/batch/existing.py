"""What the scan of the existing pages found, brought together: of each group its oldest match, with its number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from worker.batch.columns import INPUT_SHIFT, numbers
from worker.batch.deciding import NONE, Existing
from worker.batch.signature_groups import Groups
from worker.batch.slices import Slice
from worker.batch.tasks import MATCHES, Done, oldest


def existing_of(
    groups: Groups, slices: Sequence[Slice], scans: Sequence[Sequence[Done]], parts: Sequence[Path]
) -> Existing:
    """The matches of all groups.

    Args:
        scans: for each part of the groups that was compared, what the tasks on `slices` told.
        parts: the files of matches that they wrote.
    """
    count, pages = len(groups.first), len(groups.group)
    of_group, own = np.full(count, NONE, np.int64), np.full(pages, NONE, np.int64)
    distance = np.zeros(count, np.uint8)
    told = scans[0] if scans else []
    rows = MATCHES.empty_table()
    # The oldest match counts: by number where all existing pages have one, else by the order of the inputs.
    by = ("seq", "at") if all(done.numbered for done in told if done.rows) else ("at",)
    for part in parts:  # one by one: what is kept is a row a group
        rows = oldest([rows, pq.read_table(part, schema=MATCHES)], by)
    rows, last_seq = _numbered(rows, slices, told)
    group, page = numbers(rows["group"], np.int64), numbers(rows["own"], np.int64)
    of_group[group[group != NONE]] = np.flatnonzero(group != NONE)
    distance[group[group != NONE]] = numbers(rows["distance"], np.uint8)[group != NONE]
    own[page[page != NONE]] = np.flatnonzero(page != NONE)
    return Existing(rows, of_group, distance, own, last_seq, sum(done.existing for done in told))


def _numbered(rows: pa.Table, slices: Sequence[Slice], told: Sequence[Done]) -> tuple[pa.Table, int]:
    """The rows with a number each, and the highest of all existing pages.

    Pages of inputs that have no numbers get those behind the highest there is, by their place in all such inputs.
    """
    inputs = 1 + max((part.source.number for part in slices), default=-1)
    counts = [0] * inputs
    for part, done in zip(slices, told, strict=True):
        counts[part.source.number] += 0 if done.numbered else done.rows
    last = max((done.last_seq for done in told), default=0)
    before = np.array([0, *accumulate(counts)], np.int64) + last
    at = numbers(rows["at"], np.int64)
    made = before[at >> INPUT_SHIFT] + (at & ((1 << INPUT_SHIFT) - 1)) + 1
    seq = pc.if_else(pc.is_valid(rows["seq"]), rows["seq"], pa.array(made))
    return rows.set_column(rows.schema.get_field_index("seq"), MATCHES.field("seq"), seq), int(before[-1])
