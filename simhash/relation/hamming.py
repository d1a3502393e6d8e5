"""Fingerprints as values: their width, their print, and the Hamming distance between them.

A fingerprint travels as a Python int; its width travels with the profile. Bit 0 is the *leftmost* (most
significant) bit in print, and hex has bits / 4 digits, zero padded.

Worked example at 8 bits: 00101110 and 00001111 give 00100001 under XOR, so their distance is 2.
"""

from __future__ import annotations

from simhash.errors import WidthError


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
