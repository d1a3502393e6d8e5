"""The decision: pages and an index in, verdicts out. No Kafka, no files, no clock.

`prepare` does for one record all that needs no index (decode, extract, fingerprint) and may refuse it; it runs in child
processes. `judge` asks the index about what `prepare` let through and cannot refuse anything any more, so that no
page that is in the index is ever a dead letter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from simhash.errors import PageError
from simhash.index import Duplicate, Entry, Index, Partition, Position, Unique
from simhash.index.interface import Answer
from simhash.index.versions import change, packed
from simhash.reading.charset import MAX_NUL_SHARE
from simhash.reading.charset import decode as decode_charset
from simhash.reading.extract import extract
from simhash.reading.extracted import Extracted
from simhash.relation.overlap import contained, is_longer
from simhash.signature.profiles import Profile, Signature
from worker.records.hints import NO_HINTS, Hints, hints_of, host_of, is_same_address
from worker.records.page import Limits, PageFormat, observation, page_in
from worker.records.passing import Page, RawRecord, Source
from worker.records.verdict import Match, Previous, SourceFields, Verdict, hexadecimal


class Recipe(NamedTuple):
    """What `prepare` must know, small enough to travel to a child process."""

    profile: Profile
    page_format: PageFormat
    limits: Limits


class StageSeconds(NamedTuple):
    """How long each stage of preparing a page took."""

    decode: float
    extract: float
    fingerprint: float


class Prepared(NamedTuple):
    """A page that can be judged. A tuple, as `Signature` is: what passes between processes costs half as much so."""

    source: Source
    observation: bytes
    url: str
    id: str | None
    fetched_at: str | None
    signature: Signature
    seconds: StageSeconds
    hints: Hints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that cannot be judged: a dead letter.

    Attributes:
        stage, error, message: where, what kind, and what was wrong, with the numbers.
        by_chance: refused for what happened this time (a deadline, a lost process), not for what the page is.
    """

    source: Source
    stage: str
    error: str
    message: str
    by_chance: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what it cost."""

    verdict: Verdict
    candidates: int
    crowded: bool = False


def prepare(record: RawRecord, recipe: Recipe) -> Prepared | Rejected:
    """Decode, extract and fingerprint one record; the same result on every run."""
    try:
        return _prepare(record, recipe)
    except PageError as error:
        return rejected(record.source, error)


def rejected(source: Source, error: PageError) -> Rejected:
    """The rejection that an error means."""
    message = str(error).encode("utf-8", "replace").decode()  # it may quote the page
    return Rejected(source, error.stage, type(error).__name__, message)


def _prepare(record: RawRecord, recipe: Recipe) -> Prepared:
    profile = recipe.profile
    start = time.perf_counter()
    page = page_in(record, recipe.page_format, recipe.limits)
    raw = page.content
    own = observation(record.source, record.key, raw if record.value is None else record.value)
    utf8 = utf8_of(page)
    decoded = time.perf_counter()
    content = extract(utf8, profile.extractor) if page.is_html else Extracted(utf8.decode())
    extracted = time.perf_counter()
    signature = profile.signature(content.text, raw, content.title)
    hints = hints_of(content, page.url)
    seconds = StageSeconds(decoded - start, extracted - decoded, time.perf_counter() - extracted)
    return Prepared(record.source, own, page.url, page.id, page.fetched_at, signature, seconds, hints)


def utf8_of(page: Page) -> bytes:
    """A page's content in UTF-8, without NUL: browsers drop it in HTML, and in no text it says anything.

    Raises:
        PageError: stage "decode": no charset explains its bytes, or so many are NUL that it is no text at all.
    """
    utf8 = page.content if page.is_utf8 else decode_charset(page.content, page.charset).utf8
    if b"\0" not in utf8:
        return utf8
    nuls, characters = utf8.count(0), len(utf8.decode())
    if nuls > MAX_NUL_SHARE * characters:
        share = f"{nuls:,} of {characters:,} characters are NUL, U+0000"
        raise PageError("decode", f"{share}, more than {MAX_NUL_SHARE:.0%}: the page is no text")
    return utf8.replace(b"\0", b"")


def judge(
    pages: Sequence[Prepared],
    index: Index,
    profile: Profile,
    committed: Mapping[Partition, int] | None = None,
    versions: bool = False,
) -> list[Judged]:
    """The verdict on each page, in order.

    Args:
        versions: keep what a page was like under its URL, and say how much it changed since the last time.
        committed: for input topics, each partition's committed offset (see `Index.check_and_insert`); None for
            inputs that have no offsets, whose decisions are not journalled.

    Raises:
        IndexFault: the index cannot answer; nothing is decided (hand the same pages in again).
    """
    entries = [entry_of(page, journalled=committed is not None) for page in pages]
    if versions:
        entries = [
            replace(entry, version=packed(page.signature, page.observation, page.fetched_at, profile))
            for page, entry in zip(pages, entries, strict=True)
        ]
    answers = index.check_and_insert(entries, committed or {})
    return [_judged(*each, profile) for each in zip(pages, entries, answers, strict=True)]


def _judged(page: Prepared, entry: Entry, answer: Answer, profile: Profile) -> Judged:
    verdict = verdict_of(page, answer.decision, profile, _changed(entry, answer, profile))
    return Judged(verdict, answer.candidates, answer.crowded)


def _changed(entry: Entry, answer: Answer, profile: Profile) -> Previous | None:
    """What a verdict tells of the last version of the page's URL."""
    if entry.version is None or answer.previous is None:
        return None
    found = change(answer.previous, entry.version, profile)
    return Previous(found.fetched_at, found.distance, _told(found.similarity))


def entry_of(page: Prepared, journalled: bool) -> Entry:
    """The page as the index sees it."""
    source, signature = page.source, page.signature
    position = Position(Partition(source.topic, source.partition), source.offset) if journalled else None
    return Entry(
        page.observation,
        position,
        signature.fingerprint,
        signature.verifier,
        signature.digest,
        page.url,
        page.id,
        page.fetched_at,
        signature.features,
    )


def verdict_of(
    page: Prepared, decision: Unique | Duplicate, profile: Profile, previous: Previous | None = None
) -> Verdict:
    """What goes out of a page, whoever decided."""
    signature = page.signature
    match = match_of(page, decision, profile) if isinstance(decision, Duplicate) else None
    better = _is_better(page, match)
    return Verdict(
        url=page.url,
        id=page.id,
        verdict="unique" if isinstance(decision, Unique) else "duplicate",
        match=match,
        fingerprint=hexadecimal(signature.fingerprint, profile.bits),
        verifier=hexadecimal(signature.verifier, profile.verifier_width),
        digest=signature.digest,
        features=signature.features,
        profile=profile.label,
        seq=decision.seq if isinstance(decision, Unique) else None,
        fetched_at=page.fetched_at,
        observation=page.observation.hex(),
        source=SourceFields(*page.source),
        better=better,
        canonical=page.hints.canonical,
        language=page.hints.language,
        robots=page.hints.robots,
        previous=previous,
    )


def match_of(page: Prepared, decision: Duplicate, profile: Profile) -> Match:
    """What a verdict tells of the page that a duplicate matches."""
    record, signature, canonical = decision.match, page.signature, page.hints.canonical
    exact, host = record.has_text_of(signature.digest), host_of(page.url)
    similarity = 1.0 if exact else profile.similarity(signature.verifier, record.verifier)
    return Match(
        url=record.url,
        id=record.id,
        distance=decision.distance,
        kind="exact" if exact else "near",
        same_url=record.url == page.url,
        fetched_at=record.fetched_at,
        seq=record.seq,
        same_host=record.url == page.url or (host is not None and host == host_of(record.url)),
        similarity=_told(similarity),
        containment=1.0 if exact else _told(_contained(similarity, signature.features, record.features)),
        size=record.features,
        is_canonical=None if canonical is None else is_same_address(record.url, canonical),
    )


def _contained(similarity: float | None, features: int, other: int | None) -> float | None:
    return None if similarity is None or other is None else contained(similarity, features, other)


def _told(share: float | None) -> float | None:
    """A share as verdicts have it: more digits would say nothing."""
    return None if share is None else round(share, 3)


def _is_better(page: Prepared, match: Match | None) -> bool | None:
    if match is None or match.size is None:
        return None
    return match.kind == "near" and is_longer(page.signature.features, match.size)
