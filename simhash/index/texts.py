"""Texts in, decisions out: what both backends have for a program that holds an index in its hands.

    from simhash import MemoryIndex

    index = MemoryIndex()
    index.add("https://example.org/a", text)     # Unique(seq=1)
    index.add("https://example.org/b", text)     # Duplicate(distance=0, match=Record(seq=1, …))

The pipeline does not come through here: its pages have positions in topics (`Index.check_and_insert`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import xxhash

from simhash.errors import IndexMismatch, IndexServerChanged
from simhash.features.normalisation import without_surrogates
from simhash.index.interface import MOST_NAME_BYTES, Answer, Duplicate, Entry, IndexSpec, Partition, Relation, Unique
from simhash.index.redis.layout import bucket_bits
from simhash.relation.tables import automatic_design
from simhash.signature.profiles import DEFAULT, Profile, checked

DOCUMENTS = 1_000_000
"""How many unique pages an index of one's own is laid out for where nobody says it (no limit)."""


class _Judging(Protocol):
    profile: Profile

    @property
    def spec(self) -> IndexSpec: ...

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]: ...

    def present(self, watermarks: Iterable[str]) -> None: ...

    def watermark(self) -> str: ...

    def add_many(self, pages: Iterable[tuple[str, str]]) -> list[Unique | Duplicate]: ...


class TextIndex:
    """What is asked with texts.

    Attributes:
        profile: the recipe by which a text is compared: the one that the index was made for.
    """

    profile: Profile = DEFAULT

    def add(self: _Judging, url: str, text: str) -> Unique | Duplicate:
        """Judge a text, and store it if it is unique.

        Args:
            url: the page's name, as a match will tell it.
            text: its main text (`simhash.main_text` takes it from HTML).

        Returns:
            `Unique` with the page's number, or `Duplicate` with the *oldest* stored page that it matches and the
            distance in bits. The same text under the same URL, handed in again, gets its first answer: a call that
            failed half way is safe to repeat.

        Raises:
            TypeError: a URL or text that is bytes, None or anything else that is no text.
            ValueError: the URL is empty, too long, or has a lone surrogate.
            PageError: the text has more than 500 combining marks in a row.
            IndexMismatch: the index was made for another profile than `profile`.
        """
        return self.add_many([(url, text)])[0]

    def add_many(self: _Judging, pages: Iterable[tuple[str, str]]) -> list[Unique | Duplicate]:
        """Judge many (url, text) in order, see `add`: on Redis some thousands at once take few round trips.

        A server that was restarted or failed over meanwhile is held against what this index has told: it goes on, or
        raises IndexLost.
        """
        if self.spec.profile != self.profile.recipe():
            raise IndexMismatch(f"the index was made for another profile than {self.profile.name}: set its `profile`")
        entries = [entry_of(url, text, self.profile) for url, text in pages]
        try:
            answers = self.check_and_insert(entries, {})
        except IndexServerChanged:
            self.present([self.watermark()])
            answers = self.check_and_insert(entries, {})
        return [answer.decision for answer in answers]


def entry_of(url: str, text: str, profile: Profile) -> Entry:
    """A text as an index sees it. The same one under the same URL is the same observation."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is a str, not {type(url).__name__}")
    if not url.strip():
        raise ValueError("a page needs a URL, or another name of its own: a match is told by it")
    if url != without_surrogates(url):
        raise ValueError(f"a URL has no lone surrogates, which no encoding can hold: {url!r:.200}")
    if len(url.encode()) > MOST_NAME_BYTES:
        raise ValueError(f"a URL has at most {MOST_NAME_BYTES:,} bytes, not {len(url.encode()):,}: {url!r:.200}")
    signature = profile.signature(text, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b"")
    observation = xxhash.xxh3_128_digest(f"{url}\0{text}".encode("utf-8", "surrogatepass"))
    return Entry(
        observation,
        None,
        signature.fingerprint,
        signature.verifier,
        signature.digest,
        url,
        features=signature.features,
    )


def spec_for(profile: Profile, documents: int = DOCUMENTS) -> IndexSpec:
    """What an index of one's own is made with: the profile's relation, over the tables for its size.

    Raises:
        TypeError: the profile is none.
    """
    design = automatic_design(checked(profile).k, profile.bits, documents)
    relation = Relation(design, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)
    return IndexSpec(profile.recipe(), relation, bucket_bits(documents, design), documents)
