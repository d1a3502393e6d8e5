"""Counts as people write them: 10M, 1.5k, 2_000, 10000000."""

from __future__ import annotations

import re
from fractions import Fraction

_COUNT = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([kmg]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def count_of(text: str) -> int:
    """The whole number that `text` says; raises ValueError where it says none."""
    found = _COUNT.fullmatch(text.strip())
    number = Fraction(found[1].replace("_", "")) * _UNITS[found[2].lower()] if found else Fraction(1, 2)
    if number.denominator != 1:
        raise ValueError(f"{text!r} is no count: write 2000, 10k, 1.5M or 2G")
    return int(number)
