"""Rows in the order of their numbers, however many: sorted runs on disk, merged.

The verdicts of several partitions do not come in the order in which the index gave their numbers, and its log must be
written in that order. So runs of a bounded size are sorted and written to temporary files. Those have no names: they go
with the process, however it ends.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from simhash.index.rows import RecordRow

RUN_ROWS = 200_000
"""About 200 MB of rows in memory at once."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RecordRow)
_SIZE_BYTES = 4


class Sorted:
    """Takes rows in any order and gives them back in that of their numbers. Use it in a `with`."""

    def __init__(self) -> None:
        self._run: list[RecordRow] = []
        self._runs: list[IO[bytes]] = []
        self.count = 0

    def __enter__(self) -> Sorted:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def add(self, row: RecordRow) -> None:
        """One more row."""
        self._run.append(row)
        self.count += 1
        if len(self._run) >= RUN_ROWS:
            self._write()

    def rows(self) -> Iterator[RecordRow]:
        """All of them, in rising order of number, then of insertion; may be asked for again."""
        self._write()
        yield from heapq.merge(*map(_read, self._runs), key=_place)

    def _write(self) -> None:
        if not self._run:
            return
        self._run.sort(key=_place)
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with all the others)
        self._runs.append(file)
        for row in self._run:
            data = _encoder.encode(row)
            file.write(len(data).to_bytes(_SIZE_BYTES) + data)
        self._run = []


def _place(row: RecordRow) -> tuple[int, int, str]:
    return row.seq, row.inserted_ms, row.observation


def _read(run: IO[bytes]) -> Iterator[RecordRow]:
    run.seek(0)
    while size := run.read(_SIZE_BYTES):
        yield _decoder.decode(run.read(int.from_bytes(size)))
