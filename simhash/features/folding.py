"""What the native kernel knows of characters: the form of each under a normalisation, and which forms depend on what
stands before.

Of most texts every character has one form, wherever it stands. A text with any other character (a combining mark, say)
is left to `schemes.normalise`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain

from simhash.features.ignorable import replacements
from simhash.features.schemes import Normalisation, normalise

KNOWN = 0x40000
"""Characters from here on have no form in the table; pages have none."""
_RUN = 128
"""Neighbouring characters that are looked at together first: most of the 260,000 are their own form."""
_SURROGATES = range(0xD800, 0xE000)
_SECOND_JAMO = frozenset((*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))


def _runs() -> Iterator[str]:
    """All characters below KNOWN but surrogates."""
    return ("".join(map(chr, range(i, i + _RUN))) for i in range(0, KNOWN, _RUN) if i not in _SURROGATES)


def changed(how: Normalisation) -> list[tuple[int, str]]:
    """Each code point that becomes something else, alone, and what: "" for nothing.

    A run that normalisation leaves as it is has no character that would change.
    """
    changing = (character for run in _runs() if normalise(run, how) != run for character in run)
    return [(ord(i), form) for i in changing if (form := normalise(i, how)) != i]


@cache
def contextual(how: Normalisation) -> tuple[int, ...]:
    """Code points whose form depends on what stands before them; what "folded" replaces before NFKC does not.

    NFKC reorders combining characters and composes a character with the one before; a text in which no character's
    decomposition begins with one that takes part in this is normalised character by character (Unicode Standard Annex
    15, section 9, on boundaries). What composes backward is the second of any two-character canonical decomposition
    (more than enough: some never compose again) or a vowel or final consonant of Hangul.
    """
    runs = (run for run in _runs() if not unicodedata.is_normalized("NFKD", run))
    begins = {character: unicodedata.normalize("NFKD", character)[0] for run in runs for character in run}
    looking_back = {*filter(unicodedata.combining, chain.from_iterable(_runs())), *map(chr, _SECOND_JAMO)}
    for character in begins:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            looking_back.add(chr(int(parts[1], 16)))
    replaced = replacements() if how == "folded" else {}
    candidates = (begins.keys() | looking_back) - replaced.keys()
    return tuple(sorted(ord(i) for i in candidates if begins.get(i, i) in looking_back))
