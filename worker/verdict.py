"""The verdict: what goes out, one a page. A frozen value and its bytes.

A verdict holds nothing that depends on who computed it or when, so a replayed page gets its first verdict byte for
byte; and it holds all that a rebuild of the index needs (hence `observation`, `verifier` and `seq`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.records import Source

Kind = Literal["exact", "near"]


class Match(msgspec.Struct, frozen=True):
    """The earlier page, itself called unique, that a duplicate matches."""

    url: str
    id: str | None
    distance: int
    kind: Kind
    same_url: bool
    fetched_at: str | None
    seq: int


class SourceFields(msgspec.Struct, frozen=True):
    """Where the page came from."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None


class Verdict(msgspec.Struct, frozen=True):
    """One page's verdict; the fields in the order in which they are written."""

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


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Verdict)


def encode(verdict: Verdict) -> bytes:
    """A verdict as JSON, without a line end."""
    return _encoder.encode(verdict)


def decode(data: bytes) -> Verdict:
    """The verdict in `data`.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _decoder.decode(data)


def source_fields(source: Source) -> SourceFields:
    """A source as the verdict writes it."""
    return SourceFields(*source)


def hexadecimal(value: int | None, bits: int) -> str | None:
    """A fingerprint or verifier of `bits` bits as verdicts write it: most significant first, with all its zeros."""
    return None if value is None else f"{value:0{-(-bits // 4)}x}"
