"""Characters that the normalisation `folded` drops, and letters that it takes for one another: data, with its version.

**Default-ignorable code points** (soft hyphen, zero-width characters, direction marks, variation selectors, fillers,
tags) are dropped, as NFKC_Casefold drops them: Default_Ignorable_Code_Point in DerivedCoreProperties.txt of Unicode
14.0.0, a property that Python's `unicodedata` lacks (Unicode Standard, section 5.21; UAX #44). Later versions may name
more; a recipe stays with these.

**Arabic.** Newspapers spell one word with its vowel marks and without, with hamza and without: marks and tatweel are
dropped, and variants of alef, yeh, kaf and teh marbuta become one letter, as search engines do it (Larkey, Ballesteros,
Connell, "Improving stemming for Arabic information retrieval", SIGIR 2002, normalization; Lucene's ArabicNormalizer
and PersianNormalizer). A letter with a mark of its own (U+0624) becomes what it is without (U+0648), whether it is
written as one character or as two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain

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
