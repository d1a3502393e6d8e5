"""One host, as far as verdicts tell: how many pages, how many of them new, and what its copies have in common.

All is bounded, whatever a host has. Of representatives and traits those that occur most are kept, by Space-Saving
(Metwally, Agrawal, El Abbadi 2005): one that comes anew takes the place, and the rank, of the one that is ranked last.
What is counted of it begins then, so it is never too much. Of the URLs of each a sample is kept, those with the lowest
hashes ("k minimum values": Bar-Yossef et al. 2002): a page that is crawled again and again is in it once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import msgspec
import xxhash

from worker.hosts.traits import traits_of
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
        useless: traits whose URLs have nothing of their own (`worker.hosts.traits`).
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
