"""What an extractor finds in a page, and by which version of it."""

from typing import NamedTuple


class Extracted(NamedTuple):
    """A page's text, and what the page says of itself: "" where it says nothing, or the extractor does not look.

    Attributes:
        text: the main text.
        title: the content of `<title>`; it tells short pages apart (`Profile.short_digest`).
        language: the `lang` of `<html>`.
        canonical: the URL of `<link rel="canonical">`, as it is written.
        robots: the content of `<meta name="robots">`.
    """

    text: str
    title: str = ""
    language: str = ""
    canonical: str = ""
    robots: str = ""


_VERSIONS = {"main-text": 5}
"""Of the extractors that are this project's own. Whatever changes a text of theirs makes a new version."""


def versioned(extractor: str) -> str:
    """An extractor as a recipe names it: with its version, where it has one."""
    return f"{extractor}/{_VERSIONS[extractor]}" if extractor in _VERSIONS else extractor
