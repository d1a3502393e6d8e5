"""Records that other clients may send and this program's client would not read: header names that are no UTF-8.

One such record would stop its partition for good, before anybody could make a dead letter of it. Bytes that are no text
come out as \\xff, in the same way on every run. The client has no setting for that, so its reader is exchanged: whether
the one that is installed (pyproject.toml pins it) still reads through ours is tried out at the start.
"""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import kafka
import kafka.errors as errors
from kafka.record import memory_records

from worker.errors import BrokerError
from worker.stream.kafka.unpacking import UnpackedBatch


class _Name(bytearray):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")


class _Records(bytearray):
    """A batch's bytes, of which each slice can be decoded."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        return _Name(found) if isinstance(found, bytearray) else found


class TolerantBatch(UnpackedBatch):
    """A record batch that reads a record again when a header's name is no UTF-8."""

    def _read_msg(self) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            self._buffer = _Records(self._buffer)
            return super()._read_msg()


class _NoText(str):
    """A name that goes out as bytes that are no text."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff"


def be_tolerant(largest: int = sys.maxsize) -> None:
    """Have the client read by `TolerantBatch` from now on.

    Args:
        largest: keys, values and headers of more bytes are not kept (`Unread`).

    Raises:
        BrokerError: it does not; it is another version than this program was made for.
    """
    memory_records.DefaultRecordBatch = TolerantBatch
    UnpackedBatch.largest = largest
    try:
        names = _read_back(_NoText())
    except (AttributeError, TypeError, errors.KafkaError) as error:
        raise BrokerError(_unfit(repr(error))) from error
    if names != ["\\xff"]:
        raise BrokerError(_unfit(f"read {names}"))


def _read_back(name: str) -> list[str]:
    builder = memory_records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1024)
    builder.append(timestamp=0, key=None, value=b"", headers=[(name, b"")])
    builder.close()
    batch = memory_records.MemoryRecords(builder.buffer()).next_batch()
    return [found for record in batch for found, _ in record.headers]


def _unfit(what: str) -> str:
    return (
        f"kafka-python {kafka.__version__} reads header names that are no text in a way of its own ({what}), and would "
        "stop at them: install the version that pyproject.toml names"
    )
