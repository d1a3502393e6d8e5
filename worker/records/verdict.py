"""The verdict: what goes out, one a page. A frozen value and its bytes.

A verdict holds nothing that depends on who computed it or when, so a replayed page gets its first verdict byte for
byte; and it holds all that a rebuild of the index needs (hence `observation`, `verifier` and `seq`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simhash.decoding import Decoder
from simhash.index.rows import Hex
from worker.records.page import MAX_FETCHED_AT_BYTES, MAX_ID_BYTES, MAX_URL_BYTES

Kind = Literal["exact", "near"]


class Match(msgspec.Struct, frozen=True):
    """The earlier page, itself called unique, that a duplicate matches.

    Attributes:
        similarity: Jaccard similarity of the two texts' word sequences, as their sketches estimate it; None: the
            profile has no sketch.
        containment: the share of the duplicate that the match has too, by that and both sizes.
        size: how many features the match has, to within 3.5 %; None: it was stored before that was kept.
        is_canonical: the match is what the duplicate says is its canonical URL; None: it says nothing.
    """

    url: str
    id: str | None
    distance: int
    kind: Kind
    same_url: bool
    fetched_at: str | None
    seq: int
    same_host: bool | None = None
    similarity: float | None = None
    containment: float | None = None
    size: int | None = None
    is_canonical: bool | None = None


class Previous(msgspec.Struct, frozen=True):
    """How much a page changed since the last one of its URL; see `simhash.index.versions.Change`."""

    fetched_at: str | None
    distance: int | None
    similarity: float | None


class SourceFields(msgspec.Struct, frozen=True):
    """Where the page came from."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None


class Verdict(msgspec.Struct, frozen=True):
    """One page's verdict; the fields in the order in which they are written. Earlier ones are without the last.

    Attributes:
        better: a near-duplicate that is longer than its match: it may hold what that does not. None: it matches
            nothing, or the match's length is not known.
        canonical, language, robots: see `Hints`.
        previous: None: the URL is new, or its versions are not kept.
    """

    url: str
    id: str | None
    verdict: Literal["unique", "duplicate"]
    match: Match | None
    fingerprint: str | None
    verifier: str | None
    digest: str
    features: int
    profile: str
    seq: int | None
    fetched_at: str | None
    observation: str
    source: SourceFields
    better: bool | None = None
    canonical: str | None = None
    language: str | None = None
    robots: str | None = None
    previous: Previous | None = None


class _ToldFrom(SourceFields, frozen=True):
    topic: Annotated[str, Meta(pattern=r"^(file:[^\x00]*|[a-zA-Z0-9._-]{1,249})\Z")]
    partition: Annotated[int, Meta(ge=0, lt=1 << 31)]
    offset: Annotated[int, Meta(ge=0, lt=1 << 48)]


class _Told(Verdict, frozen=True):
    """A verdict whose every field can become one of a record: it may have been edited or damaged."""

    fingerprint: Hex | None
    verifier: Hex | None
    digest: Annotated[str, Meta(pattern=r"^(text|raw):[0-9a-f]{32}\Z")]
    features: Annotated[int, Meta(ge=0, lt=1 << 48)]
    seq: Annotated[int, Meta(ge=1, le=10**14)] | None
    observation: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    source: _ToldFrom

    def __post_init__(self) -> None:
        if self.verdict == "duplicate" and self.seq is not None:
            raise ValueError(f"a duplicate has no number of its own, this one has seq {self.seq}")
        limits = (("url", MAX_URL_BYTES), ("id", MAX_ID_BYTES), ("fetched_at", MAX_FETCHED_AT_BYTES))
        for name, limit in limits:
            if len((getattr(self, name) or "").encode()) > limit:
                raise ValueError(f"{name} is longer than {limit:,} bytes")


_encoder = msgspec.json.Encoder()
_decoder = Decoder(Verdict)
_told = Decoder(_Told)


def encode(verdict: Verdict) -> bytes:
    """A verdict as JSON, without a line end."""
    return _encoder.encode(verdict)


def decode(data: bytes) -> Verdict:
    """The verdict in `data`.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _decoder.decode(data)


def decode_told(data: bytes) -> Verdict:
    """The verdict in `data`, fit to be stored: one that this program has told.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _told.decode(data)


def hexadecimal(value: int | None, bits: int) -> str | None:
    """A fingerprint or verifier of `bits` bits as verdicts write it: most significant first, with all its zeros."""
    return None if value is None else f"{value:0{-(-bits // 4)}x}"
