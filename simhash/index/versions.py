"""The last version of a URL: what an index keeps of its page, if it is asked to, to say how much the next one differs.

To an index it is bytes (`Entry.version`), which it gives back when the URL comes again. In them, big-endian:

    delivery 4 | fetched at 4 | fingerprint, 8 at least | sketch 16      of a page with a fingerprint
    delivery 4 | fetched at 4 | digest 7                                 of one without

`delivery` begins the page's observation: a page that is read again is no new version. `fetched at` is in seconds since
1970; 0: nobody knows. Of a MinHash sketch the first 128 bits are kept: from them the Jaccard similarity is told with a
standard deviation of .04 at .8 (`default`). A URL is known by the first bits of its hash, those of a bucket and 32
more: among ten million URLs a new one is taken for another once in 10^8 times.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import xxhash

from simhash.index.interface import Entry
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import Profile, Signature

DELIVERY_BYTES = 4
SKETCH_BITS = 128
_SKETCH_BYTES = SKETCH_BITS // 8
_DIGEST_BYTES = 7
_FEWEST_BYTES = _DIGEST_BYTES + 1
"""Of a fingerprint, so that nobody takes a narrow one for a digest."""
_HEAD = DELIVERY_BYTES + 4
_MOST_SECONDS = (1 << 32) - 1


class Change(NamedTuple):
    """How a page differs from the last version of its URL.

    Attributes:
        fetched_at: when that was fetched, in UTC; None: nobody knows.
        distance: bits in which the fingerprints differ; 0 for equal texts without; None: they cannot be compared.
        similarity: estimated Jaccard similarity of the texts' sequences of tokens; None: likewise.
    """

    fetched_at: str | None
    distance: int | None
    similarity: float | None


def packed(signature: Signature, observation: bytes, fetched_at: str | None, profile: Profile) -> bytes:
    """The version that a page is of its URL."""
    head = observation[:DELIVERY_BYTES] + _seconds(fetched_at).to_bytes(4)
    if signature.fingerprint is None:
        return head + bytes.fromhex(signature.digest.partition(":")[2])[:_DIGEST_BYTES]
    return head + signature.fingerprint.to_bytes(_size(-(-profile.bits // 8))) + _sketch(signature.verifier, profile)


def change(previous: bytes, own: bytes, profile: Profile) -> Change:
    """What two versions of one URL, the earlier first, say of how much it changed."""
    seconds = int.from_bytes(previous[DELIVERY_BYTES:_HEAD])
    fetched_at = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None
    before, now = previous[_HEAD:], own[_HEAD:]
    if len(before) != len(now) or (len(now) == _DIGEST_BYTES and before != now):
        return Change(fetched_at, None, None)
    if len(now) == _DIGEST_BYTES:
        return Change(fetched_at, 0, 1.0)
    size = _size(-(-profile.bits // 8))
    return Change(fetched_at, _apart(before[:size], now[:size]), _similarity(before[size:], now[size:], profile))


def least_and_most(fingerprint_bytes: int) -> tuple[int, int]:
    """How many bytes a version has."""
    return _HEAD + _DIGEST_BYTES, _HEAD + _size(fingerprint_bytes) + _SKETCH_BYTES


def _size(fingerprint_bytes: int) -> int:
    return max(_FEWEST_BYTES, fingerprint_bytes)


def url_hash(url: str) -> int:
    """64 bits by which a URL is known."""
    return xxhash.xxh3_64_intdigest(url.encode())


def is_of(version: bytes, entry: Entry) -> bool:
    """Whether a version is of this very delivery."""
    return version[:DELIVERY_BYTES] == entry.observation[:DELIVERY_BYTES]


def _sketch(verifier: int | None, profile: Profile) -> bytes:
    if verifier is None or not isinstance(profile.verifier, MinHashSketch):
        return b""
    whole = verifier.to_bytes(profile.verifier_width // 8)
    return whole[: min(_SKETCH_BYTES, profile.verifier_bits // 8)]


def _similarity(before: bytes, now: bytes, profile: Profile) -> float | None:
    if not now or not isinstance(profile.verifier, MinHashSketch):
        return None
    return profile.verifier.similarity_at(_apart(before, now), 8 * len(now))


def _apart(a: bytes, b: bytes) -> int:
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


def _seconds(text: str | None) -> int:
    """Of a time as ISO 8601 has it, in UTC where no offset is given; 0: it is none, or out of range."""
    try:
        moment = datetime.fromisoformat(text or "")
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return 0
    return seconds if 0 <= seconds <= _MOST_SECONDS else 0
