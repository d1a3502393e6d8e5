"""What a page says of itself in its markup, fit for a verdict: what makes no sense is left out.

Addresses are made absolute and compared by RFC 3986: section 5 for references, 6.2.2.1 and 6.2.3 for equality (case of
scheme and host, the scheme's own port, an empty path); fragments do not count.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urldefrag, urljoin, urlsplit

from simhash.reading.extracted import Extracted

MAX_CANONICAL_BYTES = 2048
MAX_ROBOTS_BYTES = 256
_ADDRESS = re.compile(r"""https?://[^\x00-\x20\x7f/?#@\\<>"^`{|}]+(?:[/?][^\x00-\x20\x7f<>"]*)?""", re.IGNORECASE)
"""A host without a user's name, and nothing that a template left unfilled."""
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}")
"""A language tag in form (RFC 5646), or one with the underscore of locales."""
_PLAIN_HOST = re.compile(r"https?://([a-z0-9.-]+)(?:[/?#]|\Z)")
"""Nearly all URLs begin so; `urlsplit` takes ten times as long to say the same."""
_OWN_PORTS = {"http": 80, "https": 443}


class Hints(NamedTuple):
    """What a page says of itself; None: nothing that makes sense.

    Attributes:
        canonical: the absolute URL of `<link rel="canonical">`, without fragment.
        language: the `lang` of `<html>`.
        robots: the directives of `<meta name="robots">`, in lower case, parted by ", ".
    """

    canonical: str | None = None
    language: str | None = None
    robots: str | None = None


NO_HINTS = Hints()


def hints_of(content: Extracted, url: str) -> Hints:
    """What an extractor found in the page at this URL."""
    if not (content.canonical or content.language or content.robots):
        return NO_HINTS
    language = content.language if _LANGUAGE.fullmatch(content.language) else None
    return Hints(canonical_url(content.canonical, url), language, _directives(content.robots))


def canonical_url(reference: str, base: str) -> str | None:
    """The absolute URL that a reference means in the page at `base`; None: none, no web address, or too long a one."""
    if not reference or len(reference) > MAX_CANONICAL_BYTES:
        return None
    try:
        address = urldefrag(urljoin(base, reference.replace(" ", "%20"))).url
        _ = urlsplit(address).port  # which raises where it is none
    except ValueError:
        return None
    fits = _ADDRESS.fullmatch(address) and len(address.encode()) <= MAX_CANONICAL_BYTES
    return address if fits else None


def host_of(url: str) -> str | None:
    """The host of a URL; None: it has none."""
    if plain := _PLAIN_HOST.match(url):
        return plain[1]
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_same_address(url: str, other: str) -> bool:
    """Whether two URLs are one."""
    return url == other or (_normal(url) or url) == (_normal(other) or other)


def _normal(url: str) -> tuple[str, str, int | None, str, str] | None:
    try:
        parts = urlsplit(url.replace(" ", "%20"))
        port = parts.port or _OWN_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return parts.scheme, parts.hostname or "", port, parts.path or "/", parts.query


def _directives(content: str) -> str | None:
    said = ", ".join(filter(None, (part.strip().lower() for part in content.split(","))))
    return said if said and len(said.encode()) <= MAX_ROBOTS_BYTES else None
