"""What a URL has in common with others of its host: the parameters of its query, and the shape of a path with numbers.

    ?sid              it has that parameter              ?action=diff      ... with that word for a value
    ;jsessionid       the same in its path               /calendar/#/#     its path, where numbers stand for each other

Numbers in names count as one another too. To tell by such traits which URLs never bring anything new is after
Bar-Yossef, Keidar, Schonfeld: Do Not Crawl in the DUST (WWW 2007), with verdicts in the place of fetched samples.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

MOST_TRAITS = 16
"""Of one URL: of more parameters the first ones count."""
MOST_CHARACTERS = 100
_NUMBERS = re.compile(r"(?<![0-9a-zA-Z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?:-[0-9a-f]+)*(?![0-9a-zA-Z])|[0-9]+")
"""A word of hexadecimal digits, or decimal ones anywhere."""
_WORD = re.compile(r"[A-Za-z_-]{1,20}")


def traits_of(url: str) -> list[str]:
    """The traits of a URL, each once."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    found: dict[str, None] = {}
    for mark, name, value in _parameters(parts):
        found[mark + name] = None
        if _WORD.fullmatch(value):
            found[f"{mark}{name}={value}"] = None
    path = _alike(parts.path.partition(";")[0])
    if "#" in path:
        found[path] = None
    return [trait for trait in found if len(trait) <= MOST_CHARACTERS][:MOST_TRAITS]


def without(url: str, traits: set[str]) -> str:
    """The URL without those of its parameters that are, or make, one of these traits."""
    parts = urlsplit(url)
    path, *rest = parts.path.split(";")
    path = ";".join([path, *(part for part in rest if not _is_one(";", part, traits))])
    query = "&".join(part for part in parts.query.split("&") if not _is_one("?", part, traits))
    return url if (path, query) == parts[2:4] else parts._replace(path=path, query=query).geturl()


def _parameters(parts: SplitResult) -> list[tuple[str, str, str]]:
    """Mark, name and value of each parameter."""
    inside = [(";", each) for each in parts.path.split(";")[1:]]
    behind = [("?", each) for each in parts.query.split("&")]
    return [(mark, *_named(each)) for mark, each in inside + behind if each]


def _named(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return _alike(name), value


def _is_one(mark: str, parameter: str, traits: set[str]) -> bool:
    name, value = _named(parameter)
    return mark + name in traits or f"{mark}{name}={value}" in traits


def _alike(text: str) -> str:
    return _NUMBERS.sub("#", text)
