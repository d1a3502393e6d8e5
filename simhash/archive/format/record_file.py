"""The side file: records under their keys, sorted, in blocks that Zstandard compresses.

The key of a page with a fingerprint is that; several records may share one. The key of a page without is its tagged
digest, and such records lie in a file of their own. Before compression a block is

    keys     whole bytes each, ascending; equal ones in the order of their bodies, so the lowest seq first
    u32 end  of each body, little-endian, counted from the first body
    bodies   seq 8 | inserted ms 8 | verifier | msgpack [observation, tag and digest, url, id, fetched, features]

with big-endian numbers in bodies. The verifier, its band keys behind it, has no bytes where there is none. Observation
and digest are as short as `Record` has them; records from before there were features end without.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import zstandard

from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import Encoded, check
from simhash.archive.format.container import RECORDS, Container, ContainerWriter, Header
from simhash.archive.format.durable import whole
from simhash.archive.format.keys import Keys
from simhash.index.interface import Record

DIGEST_BITS = 8 * 17
"""A tag, and the 16 bytes of a whole digest."""
BLOCK_RECORDS = 64
"""Records of a block: about 10 KiB, which Zstandard unpacks in some 10 us."""
ZSTD_LEVEL = 3
_HEAD = struct.Struct(">QQ")
_TAGS = {"text": b"t", "raw": b"r"}
_NAMES = {tag: name for name, tag in _TAGS.items()}
_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18
_TAIL = msgspec.msgpack.Encoder()


class _Tail(msgspec.Struct, array_like=True):
    observation: bytes
    digest: bytes
    url: str
    id: str | None
    fetched_at: str | None
    features: int | None = None


_TAIL_DECODER = msgspec.msgpack.Decoder(_Tail)


class Body(NamedTuple):
    """A record's bytes under the bytes of its key. They sort as the file has them."""

    key: bytes
    body: bytes


@dataclass(frozen=True)
class RecordCodec:
    """Records of pages with `bits`-bit fingerprints and verifiers of so many bytes, band keys included."""

    bits: int
    verifier_bytes: int

    def encode(self, fingerprint: int | None, record: Record) -> Body:
        """The record of a page with that fingerprint, or of one without."""
        digest = tagged(record.digest)
        head = _HEAD.pack(record.seq, record.inserted_ms)
        of_page = (record.url, record.id, record.fetched_at, record.features)
        tail = _TAIL.encode(_Tail(record.observation, digest, *of_page))
        if fingerprint is None:
            return Body(digest, head + tail)
        verifier = (record.verifier or 0).to_bytes(self.verifier_bytes)
        return Body(key_bytes(fingerprint, self.bits), head + verifier + tail)

    def decode(self, body: bytes, has_fingerprint: bool) -> Record:
        """The inverse of `encode`, but for the fingerprint."""
        seq, inserted = _HEAD.unpack_from(body)
        at = _HEAD.size + (self.verifier_bytes if has_fingerprint else 0)
        verifier = int.from_bytes(body[_HEAD.size : at]) if at > _HEAD.size else None
        told = _TAIL_DECODER.decode(body[at:])
        named = f"{_NAMES[told.digest[:1]]}:{told.digest[1:].hex()}"
        of_page = (told.url, told.id, told.fetched_at, told.features)
        return Record(seq, inserted, told.observation, verifier, named, *of_page)


def tagged(digest: str) -> bytes:
    """'t' or 'r', and the digest of the text or of the raw bytes."""
    name, _, digits = digest.partition(":")
    return _TAGS[name] + bytes.fromhex(digits)


def key_bytes(key: int, width: int) -> bytes:
    """A key as records lie under it: left-aligned in whole bytes, so that they sort as the key does."""
    size = -(-width // 8)
    return (key << (8 * size - width)).to_bytes(size)


def key_number(key: bytes, width: int) -> int:
    """The inverse of `key_bytes`."""
    return int.from_bytes(key) >> (8 * len(key) - width)


# Writing -----------------------------------------------------------------------------------------------------------


def write_run(path: Path, bodies: Sequence[Body]) -> None:
    """Sort bodies into a file of their own; it has its name when it is whole."""
    with whole(path) as file:
        for key, body in sorted(bodies):
            file.write(_LENGTH.pack(len(body)) + key + body)


def read_run(path: Path, width: int) -> Iterator[Body]:
    """The bodies of a run, ascending."""
    size = -(-width // 8)
    with path.open("rb", buffering=_READ_BYTES) as file:
        while head := file.read(_LENGTH.size + size):
            yield Body(head[_LENGTH.size :], file.read(_LENGTH.unpack_from(head)[0]))


def write_records(
    path: Path, identity: bytes, width: int, items: int, runs: Iterable[Iterator[Body]], per_block: int = BLOCK_RECORDS
) -> Iterator[int]:
    """Merge runs of `items` bodies in all into a side file; yields how many more are written, block by block."""
    out = ContainerWriter(path, Header(RECORDS, width, per_block, items, identity, b""))
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    bodies = heapq.merge(*runs)
    while block := [body for _, body in zip(range(per_block), bodies, strict=False)]:
        data = compressor.compress(_block(block))
        sizes, checks = np.array([len(data)], np.uint32), np.array([check(data)], np.uint32)
        out.add(Encoded(data, sizes, checks), arrays.from_ints([key_number(block[-1].key, width)], width))
        yield len(block)
    out.close()


def _block(bodies: Sequence[Body]) -> bytes:
    ends = np.cumsum([len(body.body) for body in bodies]).astype("<u4")
    return b"".join([*(body.key for body in bodies), ends.tobytes(), *(body.body for body in bodies)])


# Reading -----------------------------------------------------------------------------------------------------------


class _Block:
    """The records of one block."""

    def __init__(self, data: bytes, count: int, size: int) -> None:
        self.keys = [data[at : at + size] for at in range(0, count * size, size)]
        ends = np.frombuffer(data, "<u4", count, count * size).tolist()
        start = count * (size + 4)
        edges = [start, *(start + end for end in ends)]
        if edges[-1] != len(data):
            raise ValueError("it does not hold the records that it should")
        self.bodies = [data[a:b] for a, b in pairwise(edges)]


class RecordFile:
    """A side file, open to be read; see `Container` for what it raises."""

    def __init__(self, path: Path, identity: bytes | None = None) -> None:
        self.file = Container(path, RECORDS, identity)

    def __len__(self) -> int:
        return self.file.header.items

    @property
    def width(self) -> int:
        """Bits of a key."""
        return self.file.header.width

    def find(self, keys: Keys) -> list[list[bytes]]:
        """The bodies under each key, lowest seq first.

        Raises:
            TableCorrupt: a block is damaged; the message names it.
        """
        self.file.check_length()
        if not len(self.file.lasts):
            return [[] for _ in keys]
        firsts = arrays.bound(self.file.lasts, keys, after=False)
        lasts = np.minimum(arrays.bound(self.file.lasts, keys, after=True), len(self.file.lasts) - 1)
        wanted = [key_bytes(key, self.width) for key in arrays.to_ints(keys, self.width)]
        opened: dict[int, _Block] = {}
        found = []
        for key, first, last in zip(wanted, firsts.tolist(), lasts.tolist(), strict=True):
            blocks = [opened.get(n) or opened.setdefault(n, self._block(n)) for n in range(first, last + 1)]
            found.append([body for block in blocks for body in _under(key, block)])
        return found

    def scan(self, first: int = 0, last: int | None = None) -> Iterator[Body]:
        """All bodies under their keys, ascending; those of the blocks from `first` and before `last`.

        Raises:
            TableCorrupt: a block is damaged; the message names it.
        """
        for number in range(first, self.file.header.blocks if last is None else last):
            block = self._block(number)
            yield from map(Body, block.keys, block.bodies)

    def _block(self, number: int) -> _Block:
        stored = self.file.blocks(np.array([number]))
        if check(stored.data) != stored.checks[0]:
            reason = f"its check is {check(stored.data):08x}, not {int(stored.checks[0]):08x}"
            raise self.file.corrupt(number, reason)
        try:
            data = zstandard.ZstdDecompressor().decompress(stored.data)
            return _Block(data, self.file.items_of(number), -(-self.width // 8))
        except (zstandard.ZstdError, ValueError) as error:
            raise self.file.corrupt(number, str(error)) from error


def _under(key: bytes, block: _Block) -> Iterator[bytes]:
    at = bisect_left(block.keys, key)
    while at < len(block.keys) and block.keys[at] == key:
        yield block.bodies[at]
        at += 1
