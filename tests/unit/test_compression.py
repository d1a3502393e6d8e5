"""Compressed input: many frames, broken ones, and files cut off anywhere."""

import gzip
import io
import random
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from worker.compression import COMPRESSED, ERRORS, LARGEST_DICTIONARY_BYTES, ZSTD, decompressed

TEXT = b"".join(b"%d\n" % random.Random(1).getrandbits(64) for _ in range(2000)) + random.Random(2).randbytes(20_000)
COMPRESS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor(write_checksum=True).compress}
kinds = pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS)


class Raw(io.RawIOBase):
    """A file that gives at most `most` bytes at a time."""

    def __init__(self, data, most=1 << 20):
        self._data = io.BytesIO(data)
        self._most = most

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self._data.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        return len(data)


def read(data, expected="", most=1 << 20):
    return decompressed(Raw(data, most), expected).read()


@kinds
@given(parts=st.lists(st.binary(max_size=200), min_size=1, max_size=5), most=st.integers(5, 50))
def test_all_frames_are_read(compress, parts, most):
    assert read(b"".join(map(compress, parts)), most=most) == b"".join(parts)


def test_plain_bytes_are_passed_on():
    assert read(b"") == b""
    assert read(b"{}") == b"{}"


@kinds
def test_a_file_cut_off_anywhere_is_an_error(compress):
    whole = compress(TEXT) * 2
    middle = len(whole) // 2
    for length in (10, middle - 1, middle + 1, middle + 9, len(whole) - 1):
        with pytest.raises(ERRORS):
            read(whole[:length])
    assert read(whole[:middle]) == TEXT


@kinds
def test_what_comes_before_the_cut_can_be_read(compress):
    stream = decompressed(Raw((compress(TEXT) * 2)[:-100]))
    assert stream.read(len(TEXT)) == TEXT


@kinds
def test_broken_bytes_are_an_error(compress):
    broken = bytearray(compress(TEXT))
    for place in range(len(broken) // 2, len(broken) // 2 + 8):
        broken[place] ^= 0xFF
    with pytest.raises(ERRORS):
        read(bytes(broken) + compress(TEXT))


@kinds
def test_what_follows_the_last_frame_is_an_error(compress):
    with pytest.raises(ERRORS):
        read(compress(TEXT) + b"trailing")


@pytest.mark.parametrize("expected", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"plain"])
def test_a_file_that_is_not_what_its_name_says_is_an_error(data, expected):
    with pytest.raises(OSError, match="as its name says"):
        read(data, expected)


def skipped(data, number):
    """A frame that readers skip (RFC 8878, 3.1.2)."""
    return struct.pack("<II", 0x184D2A50 + number, len(data)) + data


@pytest.mark.parametrize("number", [0, 13, 14, 15])
def test_frames_that_are_skipped_may_stand_anywhere(number):
    """pzstd puts one before each of its own, with its length; others end with an index."""
    one = zstandard.compress(TEXT)
    whole = skipped(struct.pack("<I", len(one)), 0) + one + skipped(b"index" * 999, number) + one + skipped(b"", number)
    assert read(whole, ZSTD) == TEXT * 2


@pytest.mark.parametrize("packed", [bytes, zstandard.compress], ids=["plain", "compressed"])
def test_a_stream_may_begin_with_the_dictionary_of_its_frames(packed):
    records = [b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n" % n for n in range(2000)]
    dictionary = zstandard.train_dictionary(4096, records)
    compress = zstandard.ZstdCompressor(dict_data=dictionary).compress
    whole = skipped(packed(dictionary.as_bytes()), 13) + b"".join(map(compress, records))
    assert read(whole, ZSTD, most=50) == b"".join(records)
    for length in (6, 400, len(whole) - 1):
        with pytest.raises(ERRORS):
            read(whole[:length])


def test_a_dictionary_that_is_too_large_is_refused_before_it_is_in_memory():
    claimed = bytearray(zstandard.compress(bytes(300)))
    claimed[4:] = b"\xe0" + struct.pack("<Q", 1 << 60) + claimed[7:]  # says that it holds an exabyte
    too_long = struct.pack("<II", 0x184D2A5D, LARGEST_DICTIONARY_BYTES + 1)
    too_large = skipped(zstandard.compress(bytes(LARGEST_DICTIONARY_BYTES + 1)), 13)
    for begin in (too_long, too_large):
        with pytest.raises(OSError, match="a dictionary of 67,108,865 bytes or more, above 67,108,864"):
            read(begin + zstandard.compress(TEXT))
    with pytest.raises(ERRORS):
        read(skipped(bytes(claimed), 13) + zstandard.compress(TEXT))


@pytest.mark.slow
def test_a_huge_ratio_does_not_fill_the_memory():
    """A gigabyte of zeros in some kilobytes: it comes in pieces of bounded size."""
    packer = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)) + packer.flush()
    raw = decompressed(Raw(packed)).raw
    largest = read = 0
    buffer = bytearray(1 << 20)
    while count := raw.readinto(buffer):
        read += count
        largest = max(largest, len(raw._ready))
    assert read == 1 << 30
    assert largest < 64 << 20
