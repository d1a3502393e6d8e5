"""Records, unpacked in bounded memory: what is some MB on its way may be gigabytes behind it.

Pages of many MB may compress a thousandfold, and a fetch bring hundreds of them. The client unpacks a batch whole and
holds it twice, and a poll brings as many records as it may, whatever they weigh. So its batches are exchanged for ours,
which unpack what is read next and no more; a poll ends when its records weigh enough; and of a record that is larger
than any page or dead letter can be, the parts that are too large are not kept: a digest stands for each (`Unread`), and
for headers that are too many.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, SupportsIndex

import kafka
import kafka.errors as errors
import lz4.frame
import xxhash
import zstandard
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint, encode_varint

from worker.errors import BrokerError
from worker.records.passing import HEADER_OVERHEAD_BYTES, RawRecord, Received, Source, Unread

CHUNK_BYTES = 1 << 20
MOST_NUMBER_BYTES = 10
"""Of a number in a record: 64 bits, seven to a byte."""
_NUMBERS_BEFORE_KEY = 3
"""In a record: attributes, time, offset."""
_PARTS = 3
"""Key, value and headers: of one that a record lacks the client says that it has -1 bytes."""
_HEADERS = "headers"
"""The one header of a record whose headers are too large or too many."""
MOST_HEADERS = (256 << 10) // HEADER_OVERHEAD_BYTES
"""Of a record; of two bytes each, but a hundred in memory. No more fit into the largest `max_header_bytes`."""
_LEAST_HEADER_BYTES = 2
_HEADER_OBJECT_BYTES = 100
_BROKEN = (OSError, EOFError, RuntimeError, zlib.error, zstandard.ZstdError)
"""What the packages raise where a compressed stream is broken."""


class _Lz4:
    """A frame as a stream: the package's own, over a file, takes ten times as long to begin."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._frame = lz4.frame.LZ4FrameDecompressor()

    def read1(self, count: int) -> bytes:
        """At most so many bytes; none: there are no more."""
        packed, self._packed = self._packed, b""
        unpacked: bytes = b"" if self._frame.eof else self._frame.decompress(packed, max_length=count)
        return unpacked


_STREAMS: Mapping[int, Callable[[bytes], Any]] = {
    DefaultRecordBatch.CODEC_GZIP: lambda packed: gzip.GzipFile(fileobj=io.BytesIO(packed)),
    DefaultRecordBatch.CODEC_LZ4: _Lz4,
    DefaultRecordBatch.CODEC_ZSTD: lambda packed: zstandard.ZstdDecompressor().stream_reader(
        packed, read_across_frames=True
    ),
}
"""Of the codecs that can make much of little; snappy makes 21 bytes of one at most."""


class UnpackedBatch(DefaultRecordBatch):  # type: ignore[misc]
    """The client's own record batch, which holds a window of what it unpacks.

    Attributes:
        largest: keys, values and headers of more bytes are not kept.
    """

    largest = sys.maxsize
    _buffer: bytearray
    _pos: int
    _decompressed: bool

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer)
        self._packed: Any = None
        self._unread: dict[str, Unread] = {}

    def _maybe_uncompress(self) -> None:
        if self._decompressed or self.compression_type not in _STREAMS:
            try:
                super()._maybe_uncompress()
            except _BROKEN as error:
                raise errors.CorruptRecordError(f"a batch that cannot be unpacked: {error!r}") from error
            return
        self._packed = _STREAMS[self.compression_type](bytes(memoryview(self._buffer)[self._pos :]))
        self._buffer, self._pos = bytearray(), 0
        self._decompressed = True
        if not self._have(CHUNK_BYTES) and len(self._buffer) <= self.largest:
            self._packed = None  # as most are: it is all there, and the client reads it

    def _read_msg(self) -> Any:
        self._have(MOST_NUMBER_BYTES)
        length, behind = decode_varint(self._buffer, self._pos)
        begin = behind - self._pos
        if self._packed is not None and length > self.largest:
            self._shorten()
        else:
            self._have(begin + length)
            if length > _LEAST_HEADER_BYTES * MOST_HEADERS and self._header_count(self._pos + begin) > MOST_HEADERS:
                self._shorten()
        record = super()._read_msg()
        if self._unread:
            for part, unread in self._unread.items():
                setattr(record, part, [(_HEADERS, unread)] if part == "_headers" else unread)
            self._unread.clear()
        return record

    def _have(self, count: int) -> bool:
        """Unpack so many bytes from where we are, or all that there are; whether there are so many."""
        missing = self._pos + count - len(self._buffer)
        if missing <= 0 or self._packed is None:
            return missing <= 0
        del self._buffer[: self._pos]
        self._pos = 0
        while missing > 0 and (more := self._more()):
            self._buffer += more
            missing -= len(more)
        return missing <= 0

    def _more(self) -> bytes:
        """What comes next of the stream. A broken one has ended: brokers and other clients take what is before that."""
        try:
            more: bytes = self._packed.read1(CHUNK_BYTES)  # `read` would lose what comes before an error
        except _BROKEN:
            return b""
        return more

    def _header_count(self, at: int) -> int:
        """How many headers the record has whose attributes are here."""
        for _ in range(_NUMBERS_BEFORE_KEY):
            _, at = decode_varint(self._buffer, at)
        for _ in ("key", "value"):
            size, at = decode_varint(self._buffer, at)
            at += max(0, size)
        count: int = decode_varint(self._buffer, at)[0]
        return count

    def _shorten(self) -> None:
        """Put in the place of the next record one without what is too large in it."""
        left, _ = self._number()
        short = bytearray()
        for _ in range(_NUMBERS_BEFORE_KEY):
            short += self._number()[1]
        left -= len(short)
        for part in ("_key", "_value"):
            size, number = self._number()
            left -= len(number) + max(0, size)
            short += self._kept(part, size, number)
        self._have(MOST_NUMBER_BYTES)
        short += self._kept("_headers", left, too_many=decode_varint(self._buffer, self._pos)[0] > MOST_HEADERS)
        self._buffer[: self._pos] = _as_number(len(short)) + short
        self._pos = 0

    def _kept(self, part: str, size: int, number: bytes = b"", too_many: bool = False) -> bytes:
        """Bytes of a record with the number before them; nothing, and a digest apart, if they are too many."""
        if size <= self.largest and not too_many:
            return number + self._taken(max(0, size))
        digest, left = xxhash.xxh3_128(), size
        while left:
            digest.update(self._taken(min(left, CHUNK_BYTES)))
            left -= min(left, CHUNK_BYTES)
        self._unread[part] = Unread.of(size, digest)
        return _as_number(0)

    def _number(self) -> tuple[int, bytes]:
        """The number that comes next, and its bytes."""
        self._have(MOST_NUMBER_BYTES)
        number, behind = decode_varint(self._buffer, self._pos)
        return number, self._taken(behind - self._pos)

    def _taken(self, count: int) -> bytes:
        """The next bytes; ValueError (to the client: a corrupt record) where there are fewer."""
        self._have(count)
        taken = bytes(self._buffer[self._pos : self._pos + count])
        if len(taken) != count:
            raise ValueError(f"{count} bytes of a record are said to follow, and {len(taken)} do")
        self._pos += count
        return taken


def _as_number(number: int) -> bytes:
    written = bytearray()
    encode_varint(number, written.append)
    return bytes(written)


class _Enough(Exception):
    """Ends a poll. The client keeps it, as it does any error behind some records, and raises it at the next one."""


class BoundedPolls:
    """Polls of a consumer that end with the record by which theirs weigh `most_bytes`."""

    def __init__(self, consumer: KafkaConsumer, most_bytes: int) -> None:
        self._consumer = consumer
        self._most = self._left = most_bytes
        self._enough = _Enough()
        polls = self

        class Records(Fetcher.PartitionRecords):  # type: ignore[misc]
            """The client's own records of one fetch."""

            def take(self, n: int | None = None) -> list[Any]:
                """At most `n`, of those for which there is room; the rest as in the client."""
                if polls._left <= 0:
                    raise polls._enough
                self._maybe_raise_next_inline_exception()
                taken: list[Any] = []
                try:
                    for row in islice(self.record_iterator, n):
                        taken.append(row)
                        sizes = row.serialized_key_size + row.serialized_value_size + row.serialized_header_size
                        polls._left -= sizes + _PARTS + _HEADER_OBJECT_BYTES * len(row.headers)
                        if polls._left <= 0:
                            break
                except Exception as error:
                    if not taken:
                        raise
                    self._next_inline_exception = error
                return taken

        consumer._fetcher.PartitionRecords = Records

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        """As the client's, and raises what that does."""
        self._left = self._most
        try:
            found: dict[TopicPartition, list[Any]] = self._consumer.poll(timeout_ms, max_records=max_records)
        except _Enough:
            found = self._consumer.poll(timeout_ms, max_records=max_records)
        self._enough.__traceback__ = None  # it would hold what was found
        return found


def received(row: Any) -> Received:
    """A record of the client's as this program has it."""
    source = Source(row.topic, row.partition, row.offset, row.timestamp)
    headers = [(name, value or b"") for name, value in row.headers] if row.headers else []
    return Received(RawRecord(source, row.key, row.value), headers)


# Header names ---------------------------------------------------------------------------------------------------------
#
# Other clients may send names of headers that are no UTF-8. One such record would stop its partition for good, before
# anybody could make a dead letter of it. Bytes that are no text come out as \xff, in the same way on every run. The
# client has no setting for that, so its reader is exchanged: whether the one that is installed (pyproject.toml pins it)
# still reads through ours is tried out at the start.


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
