"""From a text to its fingerprint, and from a page to its text, in one call each."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from simhash.signature.profiles import DEFAULT, Profile, checked


def fingerprint(text: str, profile: Profile = DEFAULT) -> int | None:
    """Return the simhash of a text, an integer of `profile.bits` bits (64); None where it has no words at all.

    Similar texts have fingerprints that differ in few bits (Charikar, STOC 2002). A short text has one too; an index
    compares it by its digest alone where it has fewer than `profile.min_features` different features, since a few
    words say little about one another.

    Examples:
        >>> fingerprint("The quick brown fox: it jumps!") == fingerprint("the quick brown fox it jumps")
        True

    Raises:
        TypeError: it is bytes, None or anything else that is no text; or the profile is none.
        PageError: it has more than 500 combining marks in a row.
    """
    return _of_any_length(checked(profile)).signature(text, b"").fingerprint


@lru_cache(maxsize=16)
def _of_any_length(profile: Profile) -> Profile:
    return replace(profile, min_features=1)


def main_text(page: str | bytes, charset: str | None = None, profile: Profile = DEFAULT) -> str:
    """Return the main text of an HTML page, without navigation and boilerplate, by the profile's extractor.

    Args:
        page: the page as it came; its bytes are read by a byte order mark or as UTF-8, then by `charset`, then by what
            they declare, then by a detector.
        charset: what the server declared.

    Raises:
        TypeError: it is neither; or the profile is none.
        PageError: no charset explains the bytes, or the markup is beyond the limits.
    """
    if not isinstance(page, str | bytes):
        raise TypeError(f"a page is str or bytes, not {'None' if page is None else type(page).__name__}")
    from simhash.reading.charset import decode  # what reads HTML loads only where there is HTML
    from simhash.reading.extract import extract_text

    html = decode(page, charset).utf8 if isinstance(page, bytes) else page
    return extract_text(html, checked(profile).extractor)
