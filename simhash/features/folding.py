"""What the native kernel knows of characters: the form of each under a normalisation, and which forms depend on what
stands before.

Of most texts every character has one form, wherever it stands. A text with any other character (a combining mark, say)
is left to `schemes.normalise`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import compress

from simhash.features.ignorable import replacements
from simhash.features.schemes import Normalisation, normalise
from simhash.features.segment import code_points

KNOWN = 0x40000
"""Characters from here on have no form in the table; pages have none."""
_RUN = 128
"""Neighbouring characters that are looked at together first: most of the 260,000 are their own form."""
_BETWEEN = chr(KNOWN)
"""Of no run, its own form, and nothing is reordered across it or composes with it."""
_SURROGATES = range(0xD800, 0xE000)
_SECOND_JAMO = frozenset((*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))


def _runs() -> Iterator[str]:
    """All characters below KNOWN but surrogates."""
    every = code_points(KNOWN)
    return (every[i : i + _RUN] for i in range(0, KNOWN, _RUN) if i not in _SURROGATES)


def changed(how: Normalisation) -> list[tuple[int, str]]:
    """Each code point that becomes something else, alone, and what: "" for nothing.

    A run that normalisation leaves as it is has no character that would change. Those of another are normalised
    together, each alone between two of _BETWEEN.
    """
    changing = (run for run in _runs() if normalise(run, how) != run)
    forms = ((run, normalise(_BETWEEN.join(run), how).split(_BETWEEN)) for run in changing)
    return [(ord(i), form) for run, those in forms for i, form in zip(run, those, strict=True) if form != i]


@cache
def contextual(how: Normalisation) -> tuple[int, ...]:
    """Code points whose form depends on what stands before them; what "folded" replaces before NFKC does not.

    NFKC reorders combining characters and composes a character with the one before; a text in which no character's
    decomposition begins with one that takes part in this is normalised character by character (Unicode Standard Annex
    15, section 9, on boundaries). What composes backward is the second of any two-character canonical decomposition
    (more than enough: some never compose again) or a vowel or final consonant of Hangul.
    """
    runs = (run for run in _runs() if not unicodedata.is_normalized("NFKD", run))
    decomposed = ((run, unicodedata.normalize("NFKD", _BETWEEN.join(run)).split(_BETWEEN)) for run in runs)
    begins = {character: form[0] for run, forms in decomposed for character, form in zip(run, forms, strict=True)}
    every = code_points(KNOWN)
    looking_back = {*compress(every, map(unicodedata.combining, every)), *map(chr, _SECOND_JAMO)}
    for character in begins:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            looking_back.add(chr(int(parts[1], 16)))
    replaced = replacements() if how == "folded" else {}
    candidates = (begins.keys() | looking_back) - replaced.keys()
    return tuple(sorted(ord(i) for i in candidates if begins.get(i, i) in looking_back))
