"""Records that other clients may send and this program's client would not read: header names that are no UTF-8.

One such record would stop its partition for good, before anybody could make a dead letter of it. Bytes that are no text
come out as \\xff, in the same way on every run.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from kafka.record import memory_records
from kafka.record.default_records import DefaultRecordBatch


class _Name(bytearray):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")


class _Records(bytearray):
    """A batch's bytes, of which each slice can be decoded."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        return _Name(found) if isinstance(found, bytearray) else found


class TolerantBatch(DefaultRecordBatch):  # type: ignore[misc]
    """The client's own record batch, which reads a record again when a header's name is no UTF-8."""

    _buffer: bytearray

    def _read_msg(self) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            self._buffer = _Records(self._buffer)
            return super()._read_msg()


def be_tolerant() -> None:
    """Have the client read by `TolerantBatch` from now on."""
    memory_records.DefaultRecordBatch = TolerantBatch
