"""Fingerprints as values: their width, their print, and the Hamming distance between them.

A fingerprint travels as a Python int; its width travels with the profile. Bit 0 is the *leftmost* (most
significant) bit in print, and hex has bits / 4 digits, zero padded. Where no profile stands by,
`Fingerprint` carries the width along.

Worked example at 8 bits: 00101110 and 00001111 give 00100001 under XOR, so their distance is 2; the first
bit that differs is bit 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.errors import WidthError


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """A fingerprint that knows its width in bits."""

    bits: int
    value: int

    def __post_init__(self) -> None:
        _fitting(self.value, self.bits)

    def __str__(self) -> str:
        """Hexadecimal, bits / 4 digits."""
        return to_hex(self.value, self.bits)

    @classmethod
    def from_binary(cls, text: str) -> Fingerprint:
        """Read 0s and 1s, leftmost first; their number is the width."""
        return cls(len(text), int(text, 2))

    @classmethod
    def from_hex(cls, text: str) -> Fingerprint:
        """Read hexadecimal digits; four bits each."""
        return cls(4 * len(text), int(text, 16))

    def distance(self, other: Fingerprint) -> int:
        """Number of differing bits; raises WidthError where the widths are unequal."""
        if self.bits != other.bits:
            raise WidthError(f"a fingerprint of {self.bits} bits cannot be compared with one of {other.bits}")
        return (self.value ^ other.value).bit_count()

    def near(self, other: Fingerprint, k: int) -> bool:
        """Whether at most k bits differ (k itself included)."""
        return self.distance(other) <= k


def _fitting(value: int | None, bits: int) -> int:
    """The value itself, if it is a fingerprint of that width."""
    if not isinstance(value, int):
        raise TypeError(_no_fingerprint(value))
    if value < 0 or value.bit_length() > bits:
        raise WidthError(f"{value:#x} is no fingerprint of {bits} bits")
    return value


def _no_fingerprint(value: object) -> str:
    if value is None:
        return "None is no fingerprint: a text without words has none"
    said = "; a text's is `simhash.fingerprint(text)`" if isinstance(value, str) else ""
    return f"a fingerprint is an int, not {type(value).__name__}{said}"


def to_hex(value: int, bits: int) -> str:
    """Print a fingerprint: ceil(bits / 4) hexadecimal digits, zero padded."""
    _fitting(value, bits)
    return f"{value:0{-(-bits // 4)}x}"


def to_binary(value: int, bits: int) -> str:
    """Print a fingerprint as 0s and 1s, bit 0 leftmost."""
    _fitting(value, bits)
    return f"{value:0{bits}b}"


def distance(a: int | None, b: int | None, bits: int = 64) -> int:
    """Return the number of bits in which two fingerprints differ: their Hamming distance.

    Raises:
        TypeError: one is no fingerprint: None, which a text without words has, or anything but an int.
        WidthError: one is negative or wider than `bits`.
    """
    return (_fitting(a, bits) ^ _fitting(b, bits)).bit_count()


def near(a: int | None, b: int | None, k: int = 3, bits: int = 64) -> bool:
    """Return whether at most k bits differ (k itself included); raises as `distance` does.

    This is the classical rule of Manku et al. (WWW 2007), k = 3. An index asks more of two texts, and finds more: see
    the profile's `reach` and its verifier.
    """
    return distance(a, b, bits) <= k


def distances(one: int, many: NDArray[np.uint64] | Iterable[int]) -> NDArray[np.uint8]:
    """Hamming distance of one 64-bit fingerprint to many; shape (n,). Raises WidthError if `one` is wider."""
    _fitting(one, 64)
    stored = many if isinstance(many, np.ndarray) else np.fromiter(many, dtype=np.uint64)
    counted: NDArray[np.uint8] = np.bitwise_count(stored ^ np.uint64(one))
    return counted


def first_difference(a: int, b: int, bits: int) -> int | None:
    """Position, from 0 at the left, of the first bit that differs; None if the two are equal.

    The compressed tables of Manku et al. (WWW 2007, section 3.2) store this position h and the bits after it:
    11011011 after 11011001 is h = 6 and the rest "1".
    """
    _fitting(a, bits)
    _fitting(b, bits)
    return None if a == b else bits - (a ^ b).bit_length()
