"""What becomes of a text's characters before tokens are made of them: which fall away, which become others, how many
marks may stand in a row, and what the native kernel knows of all that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, compress
from typing import Literal

from simhash.errors import PageError
from simhash.features.segment import IDEOGRAPHS, PIECE_CHARACTERS, code_points

Normalisation = Literal["folded", "nfkc-casefold", "none"]
CASEFOLDED: Normalisation = "nfkc-casefold"

# Most pages need the compatibility form of some of these. Replacing them first changes no result and lets
# `unicodedata.normalize` see at a glance that nothing is left to do: a fifth of the time.
_OFTEN = "\u00a0\u2026\uff0c\uff1a\uff1b\uff01\uff1f\uff08\uff09\u3000\u2122\uff0f\uff3c\uff5e"
_COMMON = tuple((character, unicodedata.normalize("NFKC", character)) for character in _OFTEN)


def normalise(text: str, how: Normalisation = CASEFOLDED) -> str:
    """Unicode NFKC, then case folding; lone surrogates become U+FFFD, pairs the character they mean.

    With "folded" what says nothing is dropped before, and Arabic letters fold (`fold_ignorable`); with "none" only the
    surrogates are replaced.

    Raises:
        PageError: what is left then has too many combining marks in a row (`check_marks`).
    """
    text = without_surrogates(text)
    if how == "none":
        return text
    if text.isascii():
        return text.lower()
    if how == "folded":
        text = fold_ignorable(text)
    check_marks(text)
    for character, form in _COMMON:
        text = text.replace(character, form)
    return unicodedata.normalize("NFKC", text).casefold()


def normalised_parts(text: str, how: Normalisation = CASEFOLDED) -> Iterator[str]:
    """Normalise in parts. A part can grow 18-fold."""
    return (normalise(part, how) for part in parts(text))


def parts(text: str) -> Iterator[str]:
    """Parts of PIECE_CHARACTERS that end in a space or a line feed: NFKC never looks across.

    Where there is no space in so many characters the part ends at their end.
    """
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + PIECE_CHARACTERS
        after_space = 1 + max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = after_space or end
        yield text[start:end]
        start = end
    yield text[start:]


def without_surrogates(text: str) -> str:
    """Make a text that every encoding of Unicode can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


# Ignorable characters -------------------------------------------------------------------------------------------------
#
# What the normalisation `folded` drops, and the letters that it takes for one another: data, with its version.
#
# **Default-ignorable code points** (soft hyphen, zero-width characters, direction marks, variation selectors, fillers,
# tags) are dropped, as NFKC_Casefold drops them: Default_Ignorable_Code_Point in DerivedCoreProperties.txt of Unicode
# 14.0.0, a property that Python's `unicodedata` lacks (Unicode Standard, section 5.21; UAX #44). Later versions may
# name more; a recipe stays with these.
#
# **Arabic.** Newspapers spell one word with its vowel marks and without, with hamza and without: marks and tatweel are
# dropped, and variants of alef, yeh, kaf and teh marbuta become one letter, as search engines do it (Larkey,
# Ballesteros, Connell, "Improving stemming for Arabic information retrieval", SIGIR 2002, normalization; Lucene's
# ArabicNormalizer and PersianNormalizer). A letter with a mark of its own (U+0624) becomes what it is without (U+0648),
# whether it is written as one character or as two.

Ranges = tuple[tuple[int, int], ...]

DEFAULT_IGNORABLE: Ranges = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""First and last of each run."""

TATWEEL = 0x0640
ARABIC_MARKS: Ranges = (
    (0x0610, 0x061A),
    (TATWEEL, TATWEEL),
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06DC),
    (0x06DF, 0x06E4),
    (0x06E7, 0x06E8),
    (0x06EA, 0x06ED),
    (0x0898, 0x089F),
    (0x08CA, 0x08E1),
    (0x08E3, 0x08FF),
)
"""The nonspacing marks of the Arabic blocks (General_Category Mn, Unicode 14.0.0), and tatweel."""

ARABIC_LETTERS = {
    "\u0622": "\u0627",  # alef with madda, hamza above, hamza below; alef wasla
    "\u0623": "\u0627",
    "\u0625": "\u0627",
    "\u0671": "\u0627",
    "\u0624": "\u0648",  # waw with hamza
    "\u0626": "\u064a",  # yeh with hamza, alef maksura, Farsi yeh
    "\u0649": "\u064a",
    "\u06cc": "\u064a",
    "\u06a9": "\u0643",  # keheh and swash kaf
    "\u06aa": "\u0643",
    "\u0629": "\u0647",  # teh marbuta, and heh with yeh above; ae, which the latter is made of; teh marbuta goal
    "\u06c0": "\u0647",
    "\u06d5": "\u0647",
    "\u06c3": "\u0647",
    "\u06c2": "\u06c1",  # heh goal and yeh barree with hamza
    "\u06d3": "\u06d2",
}

_PRESENTATION_FORMS = (range(0xFB50, 0xFF00), range(0x1EE00, 0x1EF00))
"""Here are all compatibility forms of Arabic, the mathematical letters among them."""


def points(ranges: Ranges) -> Iterator[int]:
    """All code points of ranges."""
    return (point for first, last in ranges for point in range(first, last + 1))


@cache
def replacements() -> dict[str, str]:
    """What stands for a character before NFKC, for each that is dropped ("") or folds.

    Compatibility forms are among them with their NFKC, so that nothing is left to fold behind it.
    """
    direct = dict.fromkeys(map(chr, points((*DEFAULT_IGNORABLE, *ARABIC_MARKS))), "") | ARABIC_LETTERS
    table = str.maketrans(direct)
    forms = {chr(i): unicodedata.normalize("NFKC", chr(i)) for i in chain(*_PRESENTATION_FORMS) if chr(i) not in direct}
    return direct | {i: folded for i, form in forms.items() if (folded := form.translate(table)) != form}


@cache
def _replaced() -> re.Pattern[str]:
    """Matches one of these. By ranges: of single characters `re` would compare each."""
    ordered = sorted(map(ord, replacements()))
    known = set(ordered)
    starts, ends = ([i for i in ordered if i + step not in known] for step in (-1, 1))
    return re.compile("".join(["[", *(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True)), "]"]))


def fold_ignorable(text: str) -> str:
    """The text without what says nothing, and with one letter for its variants.

    >>> fold_ignorable("so\u00adft \u0645\u064f\u062f\u064e\u0631\u0633\u0629") == "soft \u0645\u062f\u0631\u0633\u0647"
    True
    """
    table = replacements()
    return _replaced().sub(lambda found: table[found[0]], text)


# Combining marks ------------------------------------------------------------------------------------------------------
#
# Normalisation puts the marks behind a letter in order, by insertion: 20,000 in one run take 0.4 s, 65,000 take 4 s, of
# which a page of 10 MB has room for 75. No writing has more than a dozen; Unicode's own bound for streams is 30 (UAX
# #15, section 13).

MOST_MARKS = 500
"""In one run: 10 MB of such runs take 3 s, of runs of 10,000 they would take 50 s."""


def check_marks(text: str, most: int = MOST_MARKS) -> None:
    """Refuse a text with a run of more than `most` combining marks.

    Only each `most`-th character is looked at, and around it where it is a mark: a longer run holds one of these.

    Raises:
        PageError: stage "fingerprint"; names the limit and the position.
    """
    if text.isascii():
        return
    for at in range(most, len(text), most):
        if not _is_mark(text[at]):
            continue
        start = _first(text, at, -1) + 1
        length = _first(text, at, 1) - start
        if length > most:
            message = f"more than {most:,} combining marks in a row: {length:,} at character {start:,} of {len(text):,}"
            raise PageError("fingerprint", message)


def _first(text: str, at: int, step: int) -> int:
    """The place, before or after `at`, of the first character that is no mark."""
    while 0 <= at < len(text) and _is_mark(text[at]):
        at += step
    return at


def _is_mark(character: str) -> bool:
    """Whether it is put in order with its neighbours, or decomposes into such (U+0F73 has no class of its own)."""
    return bool(unicodedata.combining(unicodedata.normalize("NFKD", character)[0]))


# What the kernel knows ------------------------------------------------------------------------------------------------
#
# The form of each character under a normalisation, and which forms depend on what stands before. Of most texts every
# character has one form, wherever it stands. A text with any other character (a combining mark, say) is left to
# `normalise`.

KNOWN = 0x40000
"""Characters from here on have no form in the table; pages have none."""
_RUN = 128
"""Neighbouring characters that are looked at together first: most of the 260,000 are their own form."""
_BETWEEN = chr(KNOWN)
"""Of no run, its own form, and nothing is reordered across it or composes with it."""
_SURROGATES = range(0xD800, 0xE000)
_SYLLABLES = range(0xAC00, 0xD780)
"""Of Hangul: they begin with a first consonant, which composes with none before."""
_SECOND_JAMO = frozenset((*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))


def _runs(end: int) -> Iterator[str]:
    """All characters below `end` but surrogates."""
    every = code_points(end)
    return (every[i : i + _RUN] for i in range(0, end, _RUN) if i not in _SURROGATES)


def changed(how: Normalisation) -> list[tuple[int, str]]:
    """Each code point that becomes something else, alone, and what: "" for nothing.

    A run that normalisation leaves as it is has no character that would change. Those of another are normalised
    together, each alone between two of _BETWEEN.
    """
    changing = (run for run in _runs(KNOWN) if normalise(run, how) != run)
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
    others = (run for run in _runs(IDEOGRAPHS) if ord(run[0]) not in _SYLLABLES)
    runs = (run for run in others if not unicodedata.is_normalized("NFKD", run))
    decomposed = ((run, unicodedata.normalize("NFKD", _BETWEEN.join(run)).split(_BETWEEN)) for run in runs)
    begins = {character: form[0] for run, forms in decomposed for character, form in zip(run, forms, strict=True)}
    every = code_points(IDEOGRAPHS)
    looking_back = {*compress(every, map(unicodedata.combining, every)), *map(chr, _SECOND_JAMO)}
    for character in begins:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            looking_back.add(chr(int(parts[1], 16)))
    replaced = replacements() if how == "folded" else {}
    candidates = (begins.keys() | looking_back) - replaced.keys()
    return tuple(sorted(ord(i) for i in candidates if begins.get(i, i) in looking_back))
