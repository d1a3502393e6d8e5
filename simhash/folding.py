"""Texts folded by one table: NFKC and case folding of characters that become the same wherever they stand.

`features.normalise` hands a text to Python twice, and what reads it then asks for the kind of each character once
more. Of most texts every character has one form, known beforehand: then one look into a table gives forms and kinds
together. A text with any other character (a combining mark, say) is left to `normalise`. The native kernel has its
forms from here too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simhash.segment import kinds_table
from simhash.shingles import Tokens, ascii_runs, tokens_of_characters, tokens_of_runs

KNOWN = 0x40000
"""Characters from here on have no form in the table; pages have none."""
_SURROGATES = range(0xD800, 0xE000)
_SECOND_JAMO = frozenset((*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))

_Unsigned = TypeVar("_Unsigned", np.uint8, np.uint32)
_ENTRY = np.dtype("<u4")
_CODE_POINT = np.uint32(0xFFFFFF)
_KIND_BYTE = 3
_OTHER = 0x80
"""In place of a kind: this character has no form of one character that is its own wherever it stands."""
_SPACE = ord(" ")
_OFTEN = tuple((character, unicodedata.normalize("NFKC", character).casefold()) for character in "…™ß№℃")
"""What usually keeps a text from being folded by the table; replaced, it does not."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A normalised text.

    Attributes:
        collapsed: in UTF-8, each run of white space as one space and none at its ends.
        tokens: of the whole text.
    """

    collapsed: bytes
    tokens: Tokens


def fold(text: str, most: int) -> Folded | None:
    """Fold any string; None where it has more than `most` characters or one that the table does not know."""
    if len(text) > most:
        return None
    if text.isascii():
        return _of_ascii(text.encode())
    found = _of_characters(text)
    if found is None:
        for character, form in _OFTEN:
            text = text.replace(character, form)
        found = _of_characters(text) if len(text) <= most else None
    return found


def _of_ascii(text: bytes) -> Folded:
    folded = text.translate(_ascii_forms())
    collapsed = _without_repeated_spaces(np.frombuffer(folded, dtype=np.uint8)).tobytes().strip(b" ")
    return Folded(collapsed, tokens_of_runs(folded.translate(ascii_runs())))


def _of_characters(text: str) -> Folded | None:
    try:
        characters = np.frombuffer(text.encode("utf-32-le"), dtype=_ENTRY)
    except UnicodeEncodeError:
        return None
    entries = _table().take(characters, mode="clip")
    kinds = entries.view(np.uint8)[_KIND_BYTE::4].copy()
    present = int(np.bitwise_or.reduce(kinds))
    if present & _OTHER:
        return None
    entries &= _CODE_POINT
    collapsed = _without_repeated_spaces(entries).tobytes().decode("utf-32-le").strip(" ").encode()
    return Folded(collapsed, tokens_of_characters(entries, kinds, present))


def _without_repeated_spaces(characters: NDArray[_Unsigned]) -> NDArray[_Unsigned]:
    """The characters without spaces that follow one."""
    space = characters == _SPACE
    kept = np.empty_like(space)
    kept[:1] = True
    np.logical_and(space[1:], space[:-1], out=kept[1:])
    np.logical_not(kept[1:], out=kept[1:])
    once: NDArray[_Unsigned] = characters[kept]
    return once


@cache
def _ascii_forms() -> bytes:
    """For `bytes.translate`: ASCII folded, a space for all white space."""
    return bytes(_SPACE if chr(code).isspace() else ord(chr(code).lower()) for code in range(128)) + bytes(128)


@cache
def _table() -> NDArray[np.uint32]:
    """Of each character below KNOWN its form and, in the highest byte, that one's kind; shape (KNOWN + 1,), 1 MB.

    The last entry is that of all others. All white space is a space. Takes 0.3 s.
    """
    table = np.full(KNOWN + 1, _OTHER << 24, dtype=_ENTRY)
    looking_back = set(contextual())
    for point in known_points():
        form = form_of(point)
        if len(form) == 1 and point not in looking_back:
            table[point] = _SPACE if form.isspace() else ord(form)
    alone = table < _OTHER << 24
    table[alone] |= kinds_table()[table[alone]].astype(_ENTRY) << np.uint32(24)
    return table


def known_points() -> Iterator[int]:
    """All code points below KNOWN but surrogates."""
    return (i for i in range(KNOWN) if i not in _SURROGATES)


def form_of(code_point: int) -> str:
    """What a character becomes, alone."""
    return unicodedata.normalize("NFKC", chr(code_point)).casefold()


@cache
def contextual() -> tuple[int, ...]:
    """Code points whose NFKC depends on what stands before them.

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
    return tuple(i for i in known_points() if _looks_back(unicodedata.normalize("NFKD", chr(i))[0], backward))


def _looks_back(first: str, backward: set[int]) -> bool:
    return bool(unicodedata.combining(first)) or ord(first) in backward
