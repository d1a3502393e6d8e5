"""Where a fingerprint goes in all tables of an index at once, packed for the script: what a client does most often.

A permutation moves each bit on its own, so the places of a fingerprint are the bitwise or of the places of its bits.
`Places` looks them up byte by byte, as one long number a byte value, instead of permuting once a table: 64 bits take 8
look-ups, however many tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Place = tuple[int, int]
"""Bucket and member."""


class Places:
    """The places of fingerprints of so many bits in some tables.

    Args:
        tables: how many; their buckets' fields begin with their numbers.
        bucket_bytes, member_bytes: of a bucket's number and of a member.
        records: the bucket of a fingerprint's records.
        place: for a fingerprint its place in each table. Both are permutations of its bits and nothing else.
    """

    def __init__(
        self,
        bits: int,
        tables: int,
        bucket_bytes: int,
        member_bytes: int,
        records: Callable[[int], int],
        place: Callable[[int], Sequence[Place]],
    ) -> None:
        self._bucket_bytes, self._member_bytes = bucket_bytes, member_bytes
        self._numbers = int.from_bytes(self._bytes(0, [(0, 0)] * tables, range(tables)))
        self._size = bucket_bytes + tables * (1 + bucket_bytes + member_bytes)
        self._members_at = self._size - tables * member_bytes
        none = [0] * tables
        of_bits = [int.from_bytes(self._bytes(records(1 << bit), place(1 << bit), none)) for bit in range(bits)]
        self._by_byte = [_all_or(of_bits[at : at + 8]) for at in reversed(range(0, bits, 8))]

    def packed(self, fingerprint: bytes) -> tuple[int, bytes, bytes]:
        """The bucket of its records; the fields of its buckets one behind the other; and its members likewise."""
        number = self._numbers
        for numbers, byte in zip(self._by_byte, fingerprint, strict=True):
            number |= numbers[byte]
        data = number.to_bytes(self._size)
        records = int.from_bytes(data[: self._bucket_bytes])
        return records, data[self._bucket_bytes : self._members_at], data[self._members_at :]

    def _bytes(self, records: int, places: Sequence[Place], numbers: Sequence[int]) -> bytes:
        fields = (
            bytes([n]) + bucket.to_bytes(self._bucket_bytes) for n, (bucket, _) in zip(numbers, places, strict=True)
        )
        members = (member.to_bytes(self._member_bytes) for _, member in places)
        return b"".join((records.to_bytes(self._bucket_bytes), *fields, *members))


def _all_or(numbers: Sequence[int]) -> list[int]:
    """The bitwise or of every choice of `numbers`; bit i of the place says whether number i is in it."""
    chosen = [0]
    for number in numbers:
        chosen += [one | number for one in chosen]
    return chosen
