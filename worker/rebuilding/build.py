"""Into the index: what was collected, through the same door as `index import`, and the marks behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from simhash.index import IndexSpec, Retention
from simhash.index.faults import translated
from simhash.index.inside import Inside
from simhash.index.rows import AnyRow, EndRow, IndexRow, MarkRow, RecordRow
from simhash.index.specs import fields_of
from simhash.index.takedowns import take_down, under
from simhash.index.transfer import entry_of, finish_import, index_row, loaded, opened_for_import
from worker.rebuilding.collected import Collected, kept


@dataclass(frozen=True)
class Target:
    """Where an index is to be made.

    Attributes:
        client: a connection; answers as bytes.
        name: of the index; it is empty, or a part of this very rebuild is in it.
    """

    client: Any
    name: str
    spec: IndexSpec
    retention: Retention


def build(target: Target, collected: Collected, on_record: Callable[[int, int], None]) -> int:
    """Store what was collected; returns how many pages. A build that was ended goes on where it was.

    Args:
        on_record: is told, now and then, the last number stored and the last one of all.

    Raises:
        IndexMismatch: there is another index of that name.
        IndexFault: Redis refuses or does not answer.
    """
    fields = fields_of(target.spec)
    head = _head(target.spec, str(fields["generation"]))
    now_ms = int(time.time() * 1000)
    total = sum(1 for _ in collected.numbered())
    last = collected.last_seq + collected.counts.renumbered

    def rows() -> Iterator[RecordRow]:
        return kept(collected.numbered(), total, target.retention, now_ms)

    count = sum(1 for _ in rows())
    marks = [MarkRow(*partition, offset) for partition, offset in sorted(collected.marks.items())]
    with translated():
        inside = opened_for_import(target.client, target.name, head, fields)
        whole: Iterator[AnyRow] = chain[AnyRow](rows(), marks, [EndRow(count, len(marks), 0)])
        loaded(inside, msgspec.structs.replace(head, seq=last), whole, lambda seq: on_record(seq, last))
        _take_down(inside, collected)
        # Receipts from before are held against what the verdicts said: see script/history.lua.
        target.client.hset(inside.layout.meta, "earlier", f"{now_ms} {last}")
        finish_import(inside, head)
        return int(target.client.hget(inside.layout.meta, "documents"))


def _take_down(inside: Inside, collected: Collected) -> None:
    """Remove what was stored by an earlier run, before it was taken down."""
    for row in collected.taken_down:
        entry = entry_of(row)
        found = under(inside, entry.fingerprint, entry.digest, {row.url})
        take_down(inside, [each for each in found if each.record.seq == row.seq])


def _head(spec: IndexSpec, generation: str) -> IndexRow:
    """The same for each run of one rebuild, however much more was told meanwhile: so they know each other."""
    return index_row(spec, generation, seq=0, documents=0)
