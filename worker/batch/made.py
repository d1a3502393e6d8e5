"""Columns that signatures from elsewhere lack, made up: names, observations and sources of bare fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from worker.batch.columns import PAGES, SOURCE
from worker.errors import InputError
from worker.files.outputs import rejection_line
from worker.judging.judge import Rejected
from worker.records.page import observation
from worker.records.passing import Source

BARE = "fingerprint:"
"""What stands for the URL of a fingerprint that has none, before its 16 hexadecimal digits."""
NO_TEXT = "none:"
"""What stands for the digest of a text that is not known, before the observation: equal to no other."""


WHOLE = ("url", "observation", "features", "source")
"""What each row has, if the input has the column."""
NEEDED = ("fingerprint", "observation", "digest")
"""What others are made up from."""


@dataclass(frozen=True)
class Made:
    """Columns of some rows of signatures: read, or made up where the input has none.

    Attributes:
        read: the columns that there are; of `NEEDED` all that the input has.
        at: the rows' places.
        offsets: their numbers in their input.
        topic: what names the input.
        name: as it was given.
    """

    read: pa.Table
    at: NDArray[np.int64]
    offsets: NDArray[np.int64]
    topic: str
    name: str

    def take(self, rows: NDArray[np.int64]) -> Made:
        """Some of the rows."""
        return Made(self.read.take(pa.array(rows)), self.at[rows], self.offsets[rows], self.topic, self.name)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns, as `PAGES` has them."""
        fields = [PAGES.field(name) for name in names]
        return pa.table([self.column(field) for field in fields], schema=pa.schema(fields))

    def column(self, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        """One column."""
        made = getattr(self, f"_{field.name}", None)
        if field.name not in self.read.column_names:
            return made() if made else pa.nulls(len(self.at), field.type)
        found = _as_field(self.read[field.name], field)
        if field.name in WHOLE and found.null_count:
            raise InputError(f"column {field.name} has rows without a value: fill it, or leave the column out")
        return pc.coalesce(found, self._digest()) if field.name == "digest" and found.null_count else found

    def _gates(self) -> list[int | None]:
        gates: list[int | None] = self.column(PAGES.field("fingerprint")).to_pylist()
        return gates

    def _at(self) -> pa.Array:
        return pa.array(self.at)

    def _url(self) -> pa.Array:
        return pa.array([BARE if gate is None else f"{BARE}{gate:016x}" for gate in self._gates()], pa.string())

    def _features(self) -> pa.Array:
        return pa.array(np.zeros(len(self.at), np.int64))

    def _observation(self) -> pa.Array:
        named = zip(self.offsets.tolist(), self._gates(), strict=True)
        values = ((offset, b"" if gate is None else gate.to_bytes(8)) for offset, gate in named)
        made = (observation(Source(self.topic, 0, offset, None), None, value) for offset, value in values)
        return pa.array(list(made), pa.binary())

    def _digest(self) -> pa.Array:
        observations = self.column(PAGES.field("observation")).to_pylist()
        return pa.array([NO_TEXT + own.hex() for own in observations], pa.string())

    def _rejection(self) -> pa.Array:
        """Nobody can say anything of a row that has neither a fingerprint nor the digest of a short text."""
        digests: list[str | None] = [None] * len(self.at)
        if "digest" in self.read.column_names:
            digests = self.read["digest"].to_pylist()
        rows = zip(
            self.offsets.tolist(), self._gates(), self.read["fingerprint"].is_valid().to_pylist(), digests, strict=True
        )
        lines = (
            self._rejected(offset, given) if gate is None and (given or digest is None) else None
            for offset, gate, given, digest in rows
        )
        return pa.array(list(lines), pa.binary())

    def _rejected(self, offset: int, given: bool) -> bytes:
        said = "the row has neither a fingerprint nor a digest"
        if given:
            said = "the row's fingerprint is not of hexadecimal digits, 64 bits at the most"
        return rejection_line(
            self.name, None, Rejected(Source(self.topic, 0, offset, None), "decode", "PageError", said)
        )

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
    if field.type in _OF_DIGITS and _holds_strings(column.type):
        return pa.chunked_array([[_of_digits(value, field) for value in column.to_pylist()]], field.type)
    try:
        return pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise InputError(
            f"column {field.name} of type {column.type} cannot be read as {field.type}: {error}"
        ) from error


_OF_DIGITS = (pa.uint64(), pa.binary())


def _holds_strings(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _of_digits(value: str | None, field: pa.Field) -> int | bytes | None:
    """A number or bytes of hexadecimal digits; None where they are none."""
    if value is None:
        return None
    try:
        if field.type == pa.binary():
            return bytes.fromhex(value)
        number = int(value, 16)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 64 else None
