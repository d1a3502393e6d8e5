"""One verdict, dead letter, takedown or row of an export, out of its bytes: this folder's own reading of them."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import xxhash
from msgspec import Meta

_T = TypeVar("_T")
ERRORS_PREFIX = "__connect.errors."
REPLAYED = "simhash-dedup.replayed"
_ADDRESS = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#]*?)(?::([0-9]*))?(/[^?#]*)?(?:\?([^#]*))?(?:#.*)?", re.I)
_HOST = re.compile(r"https?://([a-z0-9.-]+)(?::[0-9]*)?(?:[/?#].*)?", re.I | re.A | re.S)
"""Of these every reader of URLs finds the same host; of others not."""
_NUMBER = re.compile(rb"[0-9]{1,12}")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NO_KEY = b"\0"
"""What is hashed behind the value of a record without a key."""
IN_FILE = -1
"""The partition of a place in a file; its offset is the line."""
MOST_NUMBER = 1 << 48
MOST_OFFSET = 1 << 40
LAST_PORT = 65535
MOST_DIGITS = sys.int_info.default_max_str_digits
"""What Python takes for a number: a longer one is no port."""
Number = Annotated[int, Meta(ge=0, lt=MOST_NUMBER)]
Offset = Annotated[int, Meta(ge=0, lt=MOST_OFFSET)]
Bits = Annotated[int, Meta(ge=0, le=4096)]
Size = Annotated[int, Meta(ge=0, lt=1 << 30)]
Share = Annotated[float, Meta(ge=0, le=1)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]+\Z")]
Digest = Annotated[str, Meta(pattern=r"^(text|raw):[0-9a-f]{32}\Z")]
Observation = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
ShortDigest = Annotated[str, Meta(pattern=r"^(text|raw):([0-9a-f]{16}){1,2}\Z")]
"""Of a record: the begin of the verdict's, or all of it."""
ShortObservation = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]


class ToldMatch(msgspec.Struct):
    """What a duplicate says of the page that it matches."""

    url: str
    id: str | None
    distance: Bits
    kind: Literal["exact", "near"]
    same_url: bool
    fetched_at: str | None
    seq: Number
    same_host: bool | None = None
    similarity: Share | None = None
    containment: Share | None = None
    size: Size | None = None
    is_canonical: bool | None = None


class ToldPrevious(msgspec.Struct):
    """What a verdict says of the last version of its URL."""

    fetched_at: str | None
    distance: Bits | None
    similarity: Share | None


class ToldSource(msgspec.Struct):
    """The record that was judged."""

    topic: str
    partition: Number
    offset: Offset


class Told(msgspec.Struct):
    """A verdict."""

    url: str
    id: str | None
    verdict: Literal["unique", "duplicate"]
    match: ToldMatch | None
    fingerprint: Hex | None
    verifier: Hex | None
    digest: Digest
    profile: str
    seq: Number | None
    fetched_at: str | None
    observation: Observation
    source: ToldSource
    features: Size = 0
    better: bool | None = None
    canonical: str | None = None
    previous: ToldPrevious | None = None


class PageName(msgspec.Struct):
    """What a verdict repeats of the page that it is about."""

    url: str
    id: str | None = None
    fetched_at: str | None = None


def page_in(value: bytes) -> PageName | None:
    """The page in a record of JSON; None: it is none, and has no verdict."""
    try:
        return _page.decode(value.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return None


def page_under(key: bytes | None) -> PageName | None:
    """The page whose URL is a record's key; None: it is none, and has no verdict."""
    try:
        return PageName((key or b"").decode())
    except UnicodeDecodeError:
        return None


def observation_of(place: Coordinates, timestamp: int | None, content: xxhash.xxh3_128) -> int:
    """What names the delivery of a record, as docs/formats.md says it: the first 64 of its bits.

    Args:
        content: what `content_of` gives.
    """
    where = f"{place.topic}\0{place.partition}\0{place.offset}\0{timestamp}\0"
    return xxhash.xxh3_128_intdigest(where.encode("utf-8", "surrogatepass") + content.digest()) >> 64


def content_of(key: bytes | None, value: bytes | None) -> xxhash.xxh3_128:
    """The hash of a record's bytes."""
    content = xxhash.xxh3_128(value or b"")
    content.update(NO_KEY if key is None else b"\1" + key)
    return content


def seconds_of(moment: str | None) -> int:
    """Of a time as ISO 8601 has it, since 1970, in UTC where it names no other zone; 0: it is none that is kept."""
    try:
        found = datetime.fromisoformat(moment or "")
        seconds = int((found.replace(tzinfo=UTC) if found.tzinfo is None else found).timestamp())
    except (ValueError, OverflowError):
        return 0
    return seconds if 0 <= seconds < 1 << 32 else 0


def is_wrong_of_canonical(told: Told) -> bool:
    """Whether a duplicate says of its match something else than whether that is its canonical URL."""
    if told.match is None:
        return False
    if told.canonical is None:
        return told.match.is_canonical is not None
    return told.match.is_canonical is not (_address(told.match.url) == _address(told.canonical))


def is_wrong_of_host(told: Told) -> bool:
    """Whether a duplicate says of its match something else than whether it is on the same host."""
    if told.match is None or told.match.same_host is None:
        return False
    own, other = _HOST.fullmatch(told.url), _HOST.fullmatch(told.match.url)
    return own is not None and other is not None and told.match.same_host is not (own[1].lower() == other[1].lower())


def _address(url: str) -> tuple[str, str, int, str, str] | str:
    """What two spellings of one web address have in common."""
    found = _ADDRESS.fullmatch(url.replace(" ", "%20"))
    if found is None:
        return url
    scheme, host, digits, path, query = found.groups()
    if len(digits or "") > MOST_DIGITS or (port := int(digits or 0)) > LAST_PORT:
        return url
    own = 443 if len(scheme) == 5 else 80
    name, percent, zone = host.partition("%")  # the name of a zone (RFC 6874) has upper and lower case
    return scheme.lower(), name.lower() + percent + zone, port or own, path or "/", query or ""


class _Rejected(msgspec.Struct):
    source: ToldSource


class ToldTakedown(msgspec.Struct):
    """A page that an operator removed from the index."""

    seq: Number
    observation: ShortObservation


class ExportedVerifier(msgspec.Struct):
    """What a profile has beside its fingerprints."""

    fold: Annotated[int, Meta(ge=1, le=64)] = 1


class ExportedProfile(msgspec.Struct):
    """What is read of the recipe of an index."""

    verifier: ExportedVerifier | None = None


class ExportedDesign(msgspec.Struct):
    """The tables of an index: of each its prefix and its blocks in order, (start, width); one radius, or one each."""

    name: str
    bits: Bits
    radius: Bits | list[Bits]
    tables: list[tuple[Bits, list[tuple[Bits, Bits]]]]


class Head(msgspec.Struct):
    """The first row of an export; `generation` begins with how many tables the index has had."""

    row: Literal["index"]
    generation: str
    profile: ExportedProfile
    design: ExportedDesign
    reach: Bits
    verifier_reach: Bits | None
    verifier_bits: Bits
    bands: Bits
    bucket_bits: Bits

    @property
    def is_migrated(self) -> bool:
        """Whether pages were judged by other tables before."""
        return self.generation.partition("-")[0] != "1"

    @property
    def fold(self) -> int:
        """Minima of which each bit of a verifier is made."""
        return self.profile.verifier.fold if self.profile.verifier else 1


class ExportedRecord(msgspec.Struct):
    """A record of an export: its observation and its digest are the beginnings of the verdict's."""

    row: Literal["record"]
    seq: Number
    fingerprint: Hex | None
    verifier: Hex | None
    digest: ShortDigest
    observation: ShortObservation
    url: str
    id: str | None
    fetched_at: str | None


class End(msgspec.Struct):
    """The last row of an export."""

    row: Literal["end"]
    records: int


class _Any(msgspec.Struct):
    row: str


class Coordinates(NamedTuple):
    """Where a record stands: in a topic, or in a file (its digest in place of the topic)."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As people read it: verdicts[3]@17, or file.jsonl:17."""
        at = f":{self.offset}" if self.partition == IN_FILE else f"[{self.partition}]@{self.offset}"
        return self.topic + at


_told = msgspec.json.Decoder(Told)
_page = msgspec.json.Decoder(PageName)
_rejected = msgspec.json.Decoder(_Rejected)
_takedown = msgspec.json.Decoder(ToldTakedown)
_head = msgspec.json.Decoder(Head)
_stored = msgspec.json.Decoder(ExportedRecord)
_end = msgspec.json.Decoder(End)
_any = msgspec.json.Decoder(_Any)


def _read(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def verdict(data: bytes) -> Told:
    """The verdict in `data`; ValueError says why it is none."""
    told = _read(_told, data)
    if (told.verdict == "unique") != (told.match is None) or (told.match is None) != (told.seq is not None):
        raise ValueError("a unique page has a number and no match, a duplicate a match and no number")
    return told


def rejected(data: bytes) -> Coordinates:
    """The record that a line of `file --rejected-out` is about; ValueError: it is none."""
    source = _read(_rejected, data).source
    return Coordinates(source.topic, source.partition, source.offset)


def letter(headers: dict[str, bytes]) -> Coordinates | None:
    """The record that a dead letter is about; None: it is another program's letter."""
    topic, *numbers = (headers.get(ERRORS_PREFIX + n, b"") for n in ("topic", "partition", "offset"))
    if not topic or not all(_NUMBER.fullmatch(number) for number in numbers):
        return None
    return Coordinates(topic.decode("utf-8", "replace"), *map(int, numbers))


def is_whole(headers: dict[str, bytes]) -> bool:
    """Whether a dead letter has key and value of its record, and no digest of them."""
    return not headers.keys() & {ERRORS_PREFIX + "key", ERRORS_PREFIX + "value"}


def takedown(data: bytes) -> ToldTakedown:
    """The takedown in `data`; ValueError: it is none."""
    return _read(_takedown, data)


def row(data: bytes) -> Head | ExportedRecord | End | None:
    """A row of an export; None for the kinds that nothing is held against (marks, journals). ValueError: it is none."""
    match _read(_any, data).row:
        case "index":
            return _read(_head, data)
        case "record":
            return _read(_stored, data)
        case "end":
            return _read(_end, data)
    return None
