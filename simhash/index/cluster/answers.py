"""What the claim slot answers: claims and what became of them, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from simhash.index.cluster.placement import is_digest

REMOVAL = b"removal of"


class Numbered(NamedTuple):
    """A page that was decided to be unique and may be partly written: by whom so far, and what its record is."""

    writers: list[int]
    record: bytes


class Busy(NamedTuple):
    """A page that must wait: the claim that is in its way."""

    claim: bytes


class Journalled(NamedTuple):
    """A page that was decided before."""

    answer: bytes


Reply = Literal["claimed", "again"] | Numbered | Busy | Journalled
"""What became of a page: ours to judge; the same as one earlier in the call; and see the classes."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a call for claims.

    Attributes:
        nonce: proves at later calls that the claims are still ours.
        seq: the last number given; kept: how many records are not too many, those that are still being written too.
        gone: the numbers without a record, rising, by which the oldest one kept may come to lie higher with this call.
    """

    nonce: int
    now_ms: int
    seq: int
    kept: int
    gone: Sequence[int]
    window: Window
    replies: Sequence[Reply]

    def floor(self, new: int, most: int | None) -> int:
        """The number of the oldest record that is not too many once `new` pages more are numbered."""
        oldest = max(self.window)
        if most is None or (excess := self.kept + new - most) <= 0:
            return oldest
        oldest += excess
        for gone in self.gone:
            oldest += gone < oldest
        return oldest


class Window(NamedTuple):
    """The number of the oldest record there is, and of the oldest that is not too many (or of one before the first)."""

    first: int
    floor: int


class Removal(NamedTuple):
    """A record to be removed: its number, and its fingerprint or tagged digest."""

    seq: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim that has changed hands: of a page decided to be unique, or (`removal`) of a record being removed.

    `key` is the fingerprint, or the tagged digest of a page without one; `journal` the key of the journal that its
    decision goes into, empty when there is none.
    """

    id: bytes
    removal: bool
    journal: str
    key: bytes
    numbered: Numbered


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as an operator sees it.

    Attributes:
        id: the page's observation, or REMOVAL and the record's number.
        state: "held": being judged; "numbered": unique, being written; "removal".
        journal: key of the journal that its decision goes into; empty: none.
        key: its fingerprint or tagged digest.
        nonce: the holder's.
    """

    id: bytes
    state: str
    journal: str
    offset: int
    key: bytes
    seq: int | None
    nonce: int

    @property
    def fingerprint(self) -> int | None:
        """The fingerprint; None: the page has a digest only."""
        return None if is_digest(self.key) else int.from_bytes(self.key)


class Audit(NamedTuple):
    """What the claim slot says of itself, at one moment.

    Attributes:
        first, seq: the numbers of the oldest record there is, and of the last.
        documents: what the counter says; stored: what it should.
        astray: ids of claims that cannot be met, or met that are no claims.
    """

    first: int
    seq: int
    documents: int
    stored: int
    astray: list[bytes]


def reply_of(data: bytes) -> Reply:
    """What became of a page."""
    kind, rest = data[:1], data[1:]
    if kind == b"j":
        return Journalled(rest)
    if kind == b"b":
        return Busy(rest)
    if kind == b"n":
        return _numbered(rest)
    return "again" if kind == b"s" else "claimed"


def _numbered(data: bytes) -> Numbered:
    at = 1 + 6 * data[0]
    return Numbered(nonces(data[1:at]), data[at:])


def nonces(data: bytes) -> list[int]:
    """Nonces, 6 bytes each."""
    return [int.from_bytes(data[at : at + 6]) for at in range(0, len(data), 6)]


def taken_of(id_: bytes, state: bytes, journal: bytes, key: bytes, data: bytes) -> Taken:
    """A claim that has changed hands."""
    return Taken(id_, state == b"removal", journal.decode(), key, _numbered(data))


def claim_of(id_: bytes, state: bytes, journal: bytes, offset: bytes, key: bytes, seq: int, nonce: int) -> Claim:
    """A claim as it is listed."""
    return Claim(id_, state.decode(), journal.decode(), int.from_bytes(offset), key, seq or None, nonce)
