"""Columns that signatures from elsewhere lack, made up: names, observations and sources of bare fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from worker.batch.columns import PAGES, SOURCE
from worker.page import observation
from worker.records import Source

BARE = "fingerprint:"
"""What stands for the URL of a fingerprint that has none, before its 16 hexadecimal digits."""
NO_TEXT = "none:"
"""What stands for the digest of a text that is not known, before the observation: equal to no other."""


@dataclass(frozen=True)
class Made:
    """Columns of some rows of signatures: read, or made up where the input has none.

    Attributes:
        read: the columns that there are; the fingerprints are always needed.
        at: the rows' places.
        offsets: their numbers in their input.
        topic: what names the input.
    """

    read: pa.Table
    at: NDArray[np.int64]
    offsets: NDArray[np.int64]
    topic: str

    def take(self, rows: NDArray[np.int64]) -> Made:
        """Some of the rows."""
        return Made(self.read.take(pa.array(rows)), self.at[rows], self.offsets[rows], self.topic)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns, as `PAGES` has them."""
        fields = [PAGES.field(name) for name in names]
        return pa.table([self.column(field) for field in fields], schema=pa.schema(fields))

    def column(self, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        """One column."""
        if field.name in self.read.column_names:
            return _as_field(self.read[field.name], field)
        made = getattr(self, f"_{field.name}", None)
        return made() if made else pa.nulls(len(self.at), field.type)

    def _gates(self) -> list[int]:
        gates: list[int] = self.column(PAGES.field("fingerprint")).to_pylist()
        return gates

    def _at(self) -> pa.Array:
        return pa.array(self.at)

    def _url(self) -> pa.Array:
        return pa.array([f"{BARE}{gate:016x}" for gate in self._gates()], pa.string())

    def _features(self) -> pa.Array:
        return pa.array(np.zeros(len(self.at), np.int64))

    def _observation(self) -> pa.Array:
        named = zip(self.offsets.tolist(), self._gates(), strict=True)
        made = (observation(Source(self.topic, 0, offset, None), None, gate.to_bytes(8)) for offset, gate in named)
        return pa.array(list(made), pa.binary())

    def _digest(self) -> pa.Array:
        observations = self.column(PAGES.field("observation")).to_pylist()
        return pa.array([NO_TEXT + own.hex() for own in observations], pa.string())

    def _source(self) -> pa.Array:
        count = len(self.at)
        return pa.StructArray.from_arrays(
            [
                pa.array([self.topic] * count, pa.string()),
                pa.array(np.zeros(count, np.int64)),
                pa.array(self.offsets),
                pa.nulls(count, pa.int64()),
            ],
            fields=list(SOURCE),
        )


def _as_field(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column in its type: signed words that other programs write for unsigned ones, hexadecimal for bytes."""
    if field.type == pa.uint64() and pa.types.is_signed_integer(column.type):
        return pa.chunked_array([chunk.view(pa.uint64()) for chunk in pc.cast(column, pa.int64()).chunks], pa.uint64())
    if pa.types.is_string(column.type) and field.type == pa.uint64():
        return pa.chunked_array([[None if v is None else int(v, 16) for v in column.to_pylist()]], pa.uint64())
    if pa.types.is_string(column.type) and field.type == pa.binary():
        return pa.chunked_array([[None if v is None else bytes.fromhex(v) for v in column.to_pylist()]], pa.binary())
    return pc.cast(column, field.type)
