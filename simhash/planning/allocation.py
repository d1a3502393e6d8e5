"""How many bytes Redis takes for its values, by the structures that it keeps them in.

After the sources of Redis 7.0 (listpack.c, t_hash.c, dict.h, sds.h, object.c), with jemalloc's
size classes at the quantum of 16 bytes that a distribution's libjemalloc has; Redis' own build has finer small classes
and takes a little less. `used_memory` counts whole size classes, and so does this.
"""

from __future__ import annotations

import math

QUANTUM_BYTES = 16
POINTER_BYTES = 8
LISTPACK_HEAD_BYTES = 7
OBJECT_BYTES = 16
DICT_ENTRY_BYTES = 24
DICT_BYTES = 56
_SHORT_STRING, _SMALL_SDS = 64, 32


def size_class(size: float) -> int:
    """The bytes that jemalloc gives for `size` bytes: multiples of 16 up to 128, then four classes a doubling."""
    wanted = math.ceil(size)
    if wanted <= POINTER_BYTES:
        return POINTER_BYTES
    if wanted <= 8 * QUANTUM_BYTES:
        return -(-wanted // QUANTUM_BYTES) * QUANTUM_BYTES
    step = 1 << (wanted - 1).bit_length() - 3
    return -(-wanted // step) * step


def sds(length: float) -> int:
    """A string of its own: header, bytes, end."""
    return size_class(length + (2 if length < _SMALL_SDS else 4 if length < 256 else 6))


def listpack_string(length: float) -> float:
    """A string in a listpack: encoding, bytes, length to walk back by."""
    head = 1 if length < _SHORT_STRING else 2 if length < 4096 else 5
    return head + length + (1 if head + length < 128 else 2)


def listpack_integer(bits: int) -> float:
    """An integer of `bits` random bits in a listpack, on average."""
    total, below = 0.0, 0.0
    for limit, size in ((7, 2), (12, 3), (15, 4), (23, 5), (31, 6), (64, 10)):
        share = min(1.0, 2.0 ** (limit - bits))
        total += max(0.0, share - below) * size
        below = max(below, share)
    return total


def table_slots(entries: float) -> int:
    """The bytes of a hash table's slots."""
    return POINTER_BYTES * (1 << max(2, math.ceil(math.log2(max(entries, 1)))))


def key(name_bytes: int) -> int:
    """A key of the database with its value's head; without the database's slots."""
    return size_class(DICT_ENTRY_BYTES) + sds(name_bytes) + size_class(OBJECT_BYTES)
