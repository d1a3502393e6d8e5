"""Runs of combining marks, counted before a text is normalised.

Normalisation puts the marks behind a letter in order, by insertion: 20,000 in one run take 0.4 s, 65,000 take 4 s, and
a page of 10 MB has room for 75 of these. No writing has more than a dozen; Unicode's own bound for streams is 30
(UAX #15, section 13).
"""

from __future__ import annotations

import unicodedata

from simhash.errors import PageError

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
