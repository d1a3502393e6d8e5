"""Where a fingerprint goes in all tables of an index at once, packed for the script: what a client does most often.

A permutation moves each bit on its own, so the places of a fingerprint are the bitwise or of the places of its bits.
`FingerprintPlaces` looks them up byte by byte, as one long number a byte value, instead of permuting once a table:
64 bits take 8 look-ups, however many tables. The places come out as text (keys in hex, fields in decimal) and bytes
(the rests), as `FingerprintPlaces.struct` takes them apart:

    key field | key field | ... | rest | rest | ...
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A table: what its keys start with, and how many digits and bytes follow."""

    start: str
    bucket_digits: int
    field_digits: int
    rest_bytes: int

    @property
    def text(self) -> bytes:
        """The format of key and field."""
        return f"{self.start.replace('%', '%%')}%0{self.bucket_digits}x%0{self.field_digits}d".encode()

    @property
    def struct(self) -> str:
        """Key and field, as the script unpacks them."""
        return f"c{len(self.start.encode()) + self.bucket_digits}c{self.field_digits}"


Place = tuple[int, int, int]
"""Bucket (up to 32 bits), field (up to 64 bits), rest."""


class FingerprintPlaces:
    """The places of fingerprints of so many bits in some columns.

    Args:
        place: for a fingerprint its place in each column: a permutation of its bits and nothing else.
    """

    def __init__(self, columns: Sequence[Column], bits: int, place: Callable[[int], Sequence[Place]]) -> None:
        self._text = b"".join(column.text for column in columns)
        self._numbers = struct.Struct(">" + "IQ" * len(columns))
        self._columns = columns
        self._size = self._numbers.size + sum(column.rest_bytes for column in columns)
        of_bits = [self._number(place(1 << bit)) for bit in range(bits)]
        self._by_byte = [_all_or(of_bits[at : at + 8]) for at in reversed(range(0, bits, 8))]
        rests = (f"c{column.rest_bytes}" for column in columns)
        self.struct = "".join((*(column.struct for column in columns), *rests))

    def packed(self, fingerprint: bytes) -> bytes:
        """The places of a fingerprint, in bytes."""
        number = 0
        for numbers, byte in zip(self._by_byte, fingerprint, strict=True):
            number |= numbers[byte]
        data = number.to_bytes(self._size)
        return self._text % self._numbers.unpack_from(data) + data[self._numbers.size :]

    def _number(self, places: Sequence[Place]) -> int:
        """Buckets, fields and rests behind each other, as one number."""
        numbers: list[int] = []
        rests = b""
        for column, (bucket, field, rest) in zip(self._columns, places, strict=True):
            numbers += bucket, field
            rests += rest.to_bytes(column.rest_bytes)
        return int.from_bytes(self._numbers.pack(*numbers) + rests)


def _all_or(numbers: Sequence[int]) -> list[int]:
    """The bitwise or of every choice of `numbers`; bit i of the place says whether number i is in it."""
    chosen = [0]
    for number in numbers:
        chosen += [one | number for one in chosen]
    return chosen
