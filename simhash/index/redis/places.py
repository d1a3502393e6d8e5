"""Where a fingerprint goes in all tables of an index at once, packed for the script: what a client does most often.

A permutation moves each bit on its own, so the places of a fingerprint are the bitwise or of the places of its bits.
`Places` looks them up byte by byte, as one long number a byte value, instead of permuting once a table: 64 bits take 8
look-ups, however many tables. The places come out as text (keys in hex, scores in decimal) and bytes (members), in the
order in which `Places.struct` takes them apart:

    key score | key score | ... | member | member | ...
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One key that a fingerprint has: what it starts with, and how many digits and bytes follow.

    Attributes:
        score_digits, member_bytes: 0 where there is no score, no member.
    """

    start: str
    bucket_digits: int
    score_digits: int = 0
    member_bytes: int = 0

    @property
    def text(self) -> bytes:
        """The format of key and score."""
        score = f"%0{self.score_digits}d" if self.score_digits else ""
        return f"{self.start.replace('%', '%%')}%0{self.bucket_digits}x{score}".encode()

    @property
    def numbers(self) -> str:
        """Bucket and score as numbers of fixed size."""
        return "IQ" if self.score_digits else "I"

    @property
    def struct(self) -> str:
        """Key and score, as the script unpacks them."""
        key = f"c{len(self.start.encode()) + self.bucket_digits}"
        return f"{key}c{self.score_digits}" if self.score_digits else key


Place = tuple[int, int, int]
"""Bucket (up to 32 bits), score (up to 64 bits), member."""


class Places:
    """The places of fingerprints of so many bits in some columns.

    Args:
        place: for a fingerprint its place in each column: a permutation of its bits and nothing else.
    """

    def __init__(self, columns: Sequence[Column], bits: int, place: Callable[[int], Sequence[Place]]) -> None:
        self._text = b"".join(column.text for column in columns)
        self._numbers = struct.Struct(">" + "".join(column.numbers for column in columns))
        self._columns = columns
        self._size = self._numbers.size + sum(column.member_bytes for column in columns)
        of_bits = [self._number(place(1 << bit)) for bit in range(bits)]
        self._by_byte = [_all_or(of_bits[at : at + 8]) for at in reversed(range(0, bits, 8))]
        members = (f"c{column.member_bytes}" for column in columns if column.member_bytes)
        self.struct = "".join((*(column.struct for column in columns), *members))

    def packed(self, fingerprint: bytes) -> bytes:
        """The places of a fingerprint, in bytes."""
        number = 0
        for numbers, byte in zip(self._by_byte, fingerprint, strict=True):
            number |= numbers[byte]
        data = number.to_bytes(self._size)
        return self._text % self._numbers.unpack_from(data) + data[self._numbers.size :]

    def _number(self, places: Sequence[Place]) -> int:
        """Buckets, scores and members behind each other, as one number."""
        numbers: list[int] = []
        members = b""
        for column, (bucket, score, member) in zip(self._columns, places, strict=True):
            numbers += (bucket, score) if column.score_digits else (bucket,)
            members += member.to_bytes(column.member_bytes)
        return int.from_bytes(self._numbers.pack(*numbers) + members)


def _all_or(numbers: Sequence[int]) -> list[int]:
    """The bitwise or of every choice of `numbers`; bit i of the place says whether number i is in it."""
    chosen = [0]
    for number in numbers:
        chosen += [one | number for one in chosen]
    return chosen
