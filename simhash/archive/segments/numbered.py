"""The records of a set of tables in the order of their numbers: they lie by fingerprint, so they are sorted on disk."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from simhash.archive.format.record_file import Body, read_run, write_run
from simhash.archive.lookup.opened import TableSet
from simhash.index.interface import Record

RUN_RECORDS = 250_000
"""Records sorted in memory at a time, about 100 MB; 100 million are 400 files, which are open together."""
SEQ_BITS = 64
_FINGERPRINT, _DIGEST = b"f", b"d"


def by_number(tables: TableSet) -> Iterator[tuple[int | None, Record]]:
    """Every record with its fingerprint (None: digest only), the lowest seq first.

    Takes as much of the directory for temporary files as the records are large, uncompressed.

    Raises:
        TableFault: see `TableSet.scan`.
        OSError: no room for the files.
    """
    coming = (_numbered(has_fingerprint, each) for has_fingerprint, each in tables.bodies())
    some = list(islice(coming, RUN_RECORDS))
    if len(some) < RUN_RECORDS:
        yield from (_restored(tables, each) for each in sorted(some))
        return
    with TemporaryDirectory(prefix="simhash-dedup-") as place:
        runs: list[Path] = []
        while some:
            runs.append(Path(place) / f"run-{len(runs)}")
            write_run(runs[-1], some)
            some = list(islice(coming, RUN_RECORDS))
        yield from (_restored(tables, each) for each in heapq.merge(*(read_run(run, SEQ_BITS) for run in runs)))


def _numbered(has_fingerprint: bool, each: Body) -> Body:
    """A body under its number, with its kind and key before it."""
    kind = _FINGERPRINT if has_fingerprint else _DIGEST
    return Body(each.body[: SEQ_BITS // 8], kind + bytes([len(each.key)]) + each.key + each.body)


def _restored(tables: TableSet, each: Body) -> tuple[int | None, Record]:
    size = each.body[1]
    return tables.stored(each.body[:1] == _FINGERPRINT, Body(each.body[2 : 2 + size], each.body[2 + size :]))
