"""What the native kernel knows of characters: the form of each under a normalisation, and which forms depend on what
stands before.

Of most texts every character has one form, wherever it stands. A text with any other character (a combining mark, say)
is left to `schemes.normalise`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache

from simhash.features.ignorable import replacements
from simhash.features.schemes import Normalisation, normalise

KNOWN = 0x40000
"""Characters from here on have no form in the table; pages have none."""
_SURROGATES = range(0xD800, 0xE000)
_SECOND_JAMO = frozenset((*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))


def known_points() -> Iterator[int]:
    """All code points below KNOWN but surrogates."""
    return (i for i in range(KNOWN) if i not in _SURROGATES)


def changed(how: Normalisation) -> list[tuple[int, str]]:
    """Each code point that becomes something else, alone, and what: "" for nothing."""
    return [(i, form) for i in known_points() if (form := normalise(chr(i), how)) != chr(i)]


@cache
def contextual(how: Normalisation) -> tuple[int, ...]:
    """Code points whose form depends on what stands before them; what "folded" replaces before NFKC does not.

    NFKC reorders combining characters and composes a character with the one before; a text in which no character's
    decomposition begins with one that takes part in this is normalised character by character (Unicode Standard Annex
    15, section 9, on boundaries). What composes backward is the second of any two-character canonical decomposition
    (more than enough: some never compose again) or a vowel or final consonant of Hangul.
    """
    backward = set(_SECOND_JAMO)
    for code_point in known_points():
        parts = unicodedata.decomposition(chr(code_point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            backward.add(int(parts[1], 16))
    replaced = replacements() if how == "folded" else {}
    candidates = (i for i in known_points() if chr(i) not in replaced)
    return tuple(i for i in candidates if _looks_back(unicodedata.normalize("NFKD", chr(i))[0], backward))


def _looks_back(first: str, backward: set[int]) -> bool:
    return bool(unicodedata.combining(first)) or ord(first) in backward
