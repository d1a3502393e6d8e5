"""Bit strings of any length, packed one behind the other and read again, in NumPy. Bit 0 is the most significant."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WORD = 64

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]


def low_bits(count: Counts) -> Words:
    """Numbers whose lowest `count` (0 to 64) bits are set."""
    ones = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(WORD) - np.maximum(count, 1).astype(np.uint64))
    return np.where(count > 0, ones, np.uint64(0))


def packed(values: Words, lengths: Counts, places: Counts, size: int) -> bytes:
    """Put each value's lowest `lengths` bits (0 to 64) at the bit `places`, ascending and apart, in `size` bytes."""
    some = lengths > 0
    values, length, place = values[some], lengths[some].astype(np.uint64), places[some].astype(np.uint64)
    word, offset = place >> np.uint64(6), place & np.uint64(63)
    aligned = values << (np.uint64(WORD) - length)
    out = np.zeros(size // 8 + 2, np.uint64)
    _merge(out, word, aligned >> offset)
    over = offset + length > WORD
    _merge(out, word[over] + np.uint64(1), aligned[over] << (np.uint64(WORD) - offset[over]))
    return out.astype(">u8").tobytes()[:size]


def _merge(out: Words, word: Words, values: Words) -> None:
    """Or each value into its word; words are ascending and may be equal."""
    if len(word):
        starts = np.flatnonzero(np.concatenate(([True], word[1:] != word[:-1])))
        out[word[starts].astype(np.int64)] |= np.bitwise_or.reduceat(values, starts)


class BitReader:
    """Reads 64 bits at any bit of a byte string, for many places at once; behind its end are zeros."""

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(16 - len(data) % 8)
        self._words = np.frombuffer(padded, ">u8").astype(np.uint64)

    def peek(self, places: Counts) -> Words:
        """The 64 bits that begin at each bit place."""
        word, offset = places >> 6, (places & 63).astype(np.uint64)
        word = np.minimum(word, len(self._words) - 2)
        below = (self._words[word + 1] >> np.uint64(1)) >> (np.uint64(WORD - 1) - offset)
        found: Words = (self._words[word] << offset) | below
        return found
