"""What verdicts say of hosts, for frontiers and operators: how many pages of each are new, and what its copies share.

All is bounded, whatever a host has. Of representatives and traits those that occur most are kept, by Space-Saving
(Metwally, Agrawal, El Abbadi 2005): one that comes anew takes the place, and the rank, of the one that is ranked last.
What is counted of it begins then, so it is never too much. Of the URLs of each a sample is kept, those with the lowest
hashes ("k minimum values": Bar-Yossef et al. 2002): a page that is crawled again and again is in it once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
import xxhash

from simhash.decoding import Decoder
from worker.records.hints import host_of
from worker.records.verdict import Verdict

MOST_COPIED = 48
MOST_TRAITS = 128
SAMPLE = 20
HASH_BITS = 36
NOTE_BITS = 16
"""Beside each URL's hash; both together are whole numbers that JavaScript can hold."""
LEAST_URLS = 20
"""Fewer are no evidence."""
USELESS = 10
"""A trait is useless when at most one in so many of its URLs has content of its own."""
LONGEST_URL = 1024
"""A representative with a longer one is not kept by name."""

RepeatedKind = Literal["soft-404", "trap"]


class Seen(msgspec.Struct):
    """A representative or trait.

    Attributes:
        rank: pages, and those of what stood in its place before.
        sample: of URLs, ascending: `HASH_BITS` of the hash, and a note. Of a trait's the note says whether the URL has
            content of its own; of a representative's copies it is a hash of the path.
    """

    rank: int
    pages: int = 0
    sample: list[int] = []

    def note(self, url: str, note: int) -> None:
        """Take a URL into the sample, or say something else of it."""
        low = (xxhash.xxh3_64_intdigest(url.encode()) >> (64 - HASH_BITS)) << NOTE_BITS
        at = bisect_left(self.sample, low)
        is_there = at < len(self.sample) and self.sample[at] >> NOTE_BITS == low >> NOTE_BITS
        self.sample[at : at + is_there] = [low | note]
        del self.sample[SAMPLE:]

    @property
    def urls(self) -> int:
        """About how many different ones there are; exactly, where they are fewer than a sample."""
        if len(self.sample) < SAMPLE:
            return len(self.sample)
        return max(SAMPLE, round((SAMPLE - 1) * (1 << HASH_BITS) / max(1, self.sample[-1] >> NOTE_BITS)))

    @property
    def notes(self) -> list[int]:
        """Those of the sample."""
        return [each & ((1 << NOTE_BITS) - 1) for each in self.sample]


class MostCopied(msgspec.Struct):
    """The representative that most pages are copies of, and their share of all pages."""

    url: str
    pages: int
    share: float


class Repeated(msgspec.Struct):
    """A representative that many URLs give: `soft-404` under many paths, `trap` under few."""

    url: str
    urls: int
    kind: RepeatedKind


class Host(msgspec.Struct):
    """A host: a line of `hosts`, a record of the hosts topic.

    Attributes:
        pages, unique, near, exact: verdicts, by what they say.
        most_copied, repeated: see there.
        flags: the kinds of `repeated`.
        useless: traits whose URLs have nothing of their own (see "Traits").
        copied, traits: what the rest is worked out from: by the URL of the representative, by the trait.
    """

    host: str
    pages: int = 0
    unique: int = 0
    near: int = 0
    exact: int = 0
    most_copied: MostCopied | None = None
    repeated: list[Repeated] = []
    flags: list[RepeatedKind] = []
    useless: list[str] = []
    copied: dict[str, Seen] = {}
    traits: dict[str, Seen] = {}

    def add(self, verdict: Verdict) -> None:
        """Count a verdict on one of its pages; `work_out` says what that comes to."""
        match = verdict.match
        self.pages += 1
        self.unique += match is None
        self.near += match is not None and match.kind == "near"
        self.exact += match is not None and match.kind == "exact"
        has_own = match is None or match.same_url
        for trait in traits_of(verdict.url):
            _slot(self.traits, trait, MOST_TRAITS).note(verdict.url, has_own)
        if match is not None and not match.same_url and len(match.url) <= LONGEST_URL:
            path = verdict.url.partition("?")[0].partition(";")[0]
            note = xxhash.xxh3_64_intdigest(path.encode()) >> (64 - NOTE_BITS)
            _slot(self.copied, match.url, MOST_COPIED).note(verdict.url, note)

    def work_out(self) -> None:
        """Say what was counted."""
        first = max(self.copied.items(), key=lambda item: (item[1].pages, item[0]), default=None)
        if first is not None:
            url, seen = first
            self.most_copied = MostCopied(url, seen.pages, round(seen.pages / self.pages, 3))
        many = sorted(url for url, seen in self.copied.items() if seen.urls >= LEAST_URLS)
        self.repeated = [Repeated(url, self.copied[url].urls, _kind(self.copied[url])) for url in many]
        self.flags = sorted({each.kind for each in self.repeated})
        self.useless = sorted(trait for trait, seen in self.traits.items() if _is_useless(seen))


def _slot(table: dict[str, Seen], key: str, most: int) -> Seen:
    """The place of a key among the most frequent, one higher."""
    seen = table.get(key)
    if seen is None:
        rank = 0
        if len(table) >= most:
            last = min(table, key=lambda each: (table[each].rank, each))
            rank = table.pop(last).rank
        seen = table[key] = Seen(rank)
    seen.rank += 1
    seen.pages += 1
    return seen


def _kind(seen: Seen) -> RepeatedKind:
    return "soft-404" if 2 * len(set(seen.notes)) >= len(seen.sample) else "trap"


def _is_useless(seen: Seen) -> bool:
    return len(seen.sample) >= LEAST_URLS and USELESS * sum(seen.notes) <= len(seen.sample)


# Traits ---------------------------------------------------------------------------------------------------------------
#
# What a URL has in common with others of its host: the parameters of its query, and the shape of a path with numbers.
#
#     ?sid              it has that parameter              ?action=diff      ... with that word for a value
#     ;jsessionid       the same in its path               /calendar/#/#     its path, numbers standing for each other
#
# Numbers in names count as one another too. To tell by such traits which URLs never bring anything new is after
# Bar-Yossef, Keidar, Schonfeld: Do Not Crawl in the DUST (WWW 2007), with verdicts in the place of fetched samples.

TRAITS_OF_URL = 16
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
    return [trait for trait in found if len(trait) <= MOST_CHARACTERS][:TRAITS_OF_URL]


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


# All hosts ------------------------------------------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_decoder = Decoder(Host)


class Hosts:
    """All hosts: each kept as the bytes that are written of it, and opened while its verdicts are counted.

    Args:
        known: of each host its bytes.
    """

    def __init__(self, known: dict[str, bytes] | None = None) -> None:
        self._known = known or {}
        self.nowhere = 0
        """Pages whose URL names no host."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[bytes]:
        """The bytes of each, those with most pages first."""
        pages = {name: decoded(line).pages for name, line in self._known.items()}
        return (self._known[name] for name in sorted(pages, key=lambda name: (-pages[name], name)))

    def names(self) -> list[str]:
        """Of all hosts."""
        return sorted(self._known)

    def add(self, verdicts: Iterable[Verdict]) -> dict[str, bytes]:
        """Count these; the hosts that changed, and what is to be written of them."""
        opened: dict[str, Host] = {}
        for verdict in verdicts:
            name = host_of(verdict.url)
            if not name:
                self.nowhere += 1
                continue
            if name not in opened:
                line = self._known.get(name)
                opened[name] = Host(name) if line is None else decoded(line)
            opened[name].add(verdict)
        for host in opened.values():
            host.work_out()
        changed = {name: _encoder.encode(host) for name, host in opened.items()}
        self._known |= changed
        return changed


def decoded(line: bytes) -> Host:
    """A host; msgspec.DecodeError: it is none."""
    return _decoder.decode(line)
