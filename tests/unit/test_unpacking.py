"""Records as they are unpacked: what the client reads of a batch, in a window, and of what is too large a digest."""

import pickle
import tracemalloc
from random import Random
from types import SimpleNamespace

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from worker.records.passing import Unread, size_of
from worker.stream.kafka import unpacking
from worker.stream.kafka.unpacking import MOST_HEADERS, BoundedPolls, TolerantBatch, UnpackedBatch

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
STREAMED = ("gzip", "lz4", "zstd")
MIB = 1 << 20

parts = st.none() | st.binary(max_size=60) | st.integers(0, 5_000).map(lambda size: b"x" * size)
records = st.lists(st.tuples(parts, parts, st.lists(st.tuples(st.text(max_size=5), parts), max_size=3)), max_size=12)


def batch(rows, codec):
    """The bytes of a batch of these (key, value, headers)."""
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], False, -1, -1, -1, 1 << 40)
    for offset, (key, value, headers) in enumerate(rows):
        builder.append(offset, 1_000 + offset, key, value, headers)
    return bytes(builder.build())


def read(kind, data):
    """All that a batch says of its records."""
    return [(r.offset, r.timestamp, r.key, r.value, r.headers, r.size_in_bytes) for r in kind(memoryview(data))]


@pytest.mark.slow
@given(records, st.sampled_from(list(CODECS)), st.integers(1, 3_000))
@settings(max_examples=200, deadline=None)
def test_the_same_is_read_as_by_the_client_through_any_window(rows, codec, window):
    data = batch(rows, codec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unpacking, "CHUNK_BYTES", window)
        assert read(UnpackedBatch, data) == read(DefaultRecordBatch, data)


@pytest.mark.slow
@given(records, st.sampled_from(STREAMED), st.integers(8, 3_000))
@settings(max_examples=200, deadline=None)
def test_what_is_too_large_is_told_by_size_and_digest_and_all_else_is_read(rows, codec, largest):
    """A part is cut where the record is beyond the limit, and the part itself is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UnpackedBatch, "largest", largest)
        found = read(UnpackedBatch, batch(rows, codec))
    assert len(found) == len(rows)
    for (_, _, *parts, headers, _), (*whole, all_headers) in zip(found, rows, strict=True):
        for part, came in zip(parts, whole, strict=True):
            if isinstance(part, Unread):
                assert size_of(part) == len(came) > largest
                assert part == f"{len(came)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(came)}".encode()
            else:
                assert part == came
        if headers and isinstance(headers[0][1], Unread):
            assert len(headers) == 1
            assert size_of(headers[0][1]) > largest
        else:
            assert headers == all_headers
        assert all(part is None or len(part) <= max(largest, 60) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("codec", STREAMED)
def test_a_batch_of_much_is_read_in_little_memory(codec):
    few = [(b"k", b"a" * (4 * MIB), [])] * 40
    data = batch([*few, (b"large", b"b" * (200 * MIB), []), (b"last", b"c", [])], codec)
    tracemalloc.start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UnpackedBatch, "largest", 16 * MIB)
        values = [(record.key, size_of(record.value)) for record in UnpackedBatch(memoryview(data))]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values == [(b"k", 4 * MIB)] * 40 + [(b"large", 200 * MIB), (b"last", 1)]
    assert most < 32 * MIB


@pytest.mark.parametrize("codec", STREAMED)
@pytest.mark.parametrize("largest", [50, 1 << 30])
def test_a_batch_that_says_more_than_it_has_is_corrupt(codec, largest, monkeypatch):
    monkeypatch.setattr(UnpackedBatch, "largest", largest)
    torn = bytearray(batch([(b"k", b"v" * 90, [])], "none"))
    head, body = torn[: DefaultRecordBatch.HEADER_STRUCT.size], bytes(torn[DefaultRecordBatch.HEADER_STRUCT.size :])
    fields = list(DefaultRecordBatch.HEADER_STRUCT.unpack(head))
    fields[5] = CODECS[codec]
    packed = getattr(__import__("kafka.codec").codec, f"{codec}_encode")(body[:-20])
    with pytest.raises(CorruptRecordError):
        read(UnpackedBatch, DefaultRecordBatch.HEADER_STRUCT.pack(*fields) + packed)


@pytest.mark.parametrize("codec", CODECS)
def test_too_many_headers_are_told_by_size_and_digest(codec):
    """Each is two bytes on its way, and a hundred in memory."""
    many = [("", b"")] * 400_000
    data = batch([(b"k", b"v", many), (b"l", b"w", many), (b"m", b"x", [("h", b"1")] * MOST_HEADERS)], codec)
    tracemalloc.start()
    found = []
    for record in UnpackedBatch(memoryview(data)):
        found.append((record.key, record.value, len(record.headers), type(record.headers[0][1])))
        del record
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(b"k", b"v", 1, Unread), (b"l", b"w", 1, Unread), (b"m", b"x", MOST_HEADERS, bytes)]
    assert most < 20 * MIB


def rewritten(data, change):
    """A batch whose compressed part was changed."""
    at = DefaultRecordBatch.HEADER_STRUCT.size
    return data[:at] + change(data[at:])


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_what_follows_a_stream_is_not_looked_at(codec):
    """Brokers and Java's consumers take such batches."""
    data = batch([(b"k", b"v" * 3_000_000, []), (b"l", b"w", [])], codec)
    found = read(UnpackedBatch, rewritten(data, lambda packed: packed + b"trailing bytes"))
    assert [row[2] for row in found] == [b"k", b"l"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_with_any_byte_changed_is_read_or_corrupt(codec):
    data = batch([(b"key %d" % n, Random(n).randbytes(40), [("h", b"x")]) for n in range(5)], codec)
    outcomes = set()
    for at in range(DefaultRecordBatch.HEADER_STRUCT.size, len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            try:
                outcomes.add(len(read(TolerantBatch, bytes(broken))))
            except KafkaError as error:
                outcomes.add(type(error))
    assert CorruptRecordError in outcomes


def test_what_stands_for_a_value_travels_between_processes():
    unread = Unread.of(7, xxhash.xxh3_128(b"content"))
    again = pickle.loads(pickle.dumps(unread))
    assert (type(again), again, size_of(again)) == (Unread, unread, 7)


class Client:
    """A consumer's poll, as far as `BoundedPolls` sees it: records of one fetch, and an error behind some is kept."""

    def __init__(self, sizes):
        self._fetcher = SimpleNamespace()
        self._rows = [SimpleNamespace(n=n, size=size) for n, size in enumerate(sizes)]
        for row in self._rows:  # the client says -1 of what is not there
            row.serialized_key_size, row.serialized_value_size, row.serialized_header_size = -1, row.size, -1
            row.headers = []
        self._kept = None

    def open(self):
        self._records = self._fetcher.PartitionRecords.__new__(self._fetcher.PartitionRecords)
        self._records.record_iterator = iter(self._rows)
        self._records._next_inline_exception = None

    def poll(self, timeout_ms, max_records):
        if self._kept:
            kept, self._kept = self._kept, None
            raise kept
        found = []
        while len(found) < max_records:
            try:
                some = self._records.take(max_records - len(found))
            except Exception as error:
                if not found:
                    raise
                self._kept = error
                break
            if not some:
                break
            found += some
        return {"tp": [row.n for row in found]} if found else {}


@pytest.mark.slow
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 100), st.integers(1, 12))
def test_a_poll_ends_with_the_record_by_which_its_records_weigh_enough(sizes, most, count):
    client = Client(sizes)
    sizes = [size + 1 for size in sizes]
    polls = BoundedPolls(client, most)
    assert issubclass(client._fetcher.PartitionRecords, Fetcher.PartitionRecords)
    client.open()
    read = []
    while found := polls.poll(0, count).get("tp"):
        assert len(found) <= count
        assert sum(sizes[n] for n in found[:-1]) < most
        is_full = len(found) == count or sum(sizes[n] for n in found) >= most
        assert is_full or found[-1] == len(sizes) - 1
        read += found
    assert read == list(range(len(sizes)))
