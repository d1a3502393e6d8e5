"""Captures: what a WARC has of one page, and what is written of it where the page is unique, or an exact copy.

A crawler writes a page as a response and, beside it, the request and what else it knows (metadata). These name each
other by `WARC-Concurrent-To` or `WARC-Refers-To`, and stand one behind the other. They are written as they came, byte
for byte.

A copy whose payload has the bytes of its original's becomes a `revisit` (ISO 28500:2017, 6.7.2): the HTTP head of the
copy, and the address, date and payload digest of the original, by which a replay finds the payload. It keeps the
response's record ID, so that request and metadata go on naming it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from worker.files.warc import HOLDING_PAGES, WarcRecord, split_http
from worker.records.verdict import Match

BESIDE_A_PAGE = ("request", "metadata")
MOST_RECORDS = 16
"""Of a capture."""
_NAMED = re.compile(rb"^WARC-(?:Concurrent-To|Refers-To):[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(rb"[^\n]*\n(?:[ \t][^\n]*\n)*")
"""A field of a head with the lines that continue it."""
_OF_A_RESPONSE = (
    b"warc-type",
    b"content-length",
    b"warc-block-digest",
    b"warc-payload-digest",
    b"warc-profile",
    b"warc-truncated",
    b"warc-refers-to",
    b"warc-refers-to-target-uri",
    b"warc-refers-to-date",
)
"""Fields that a revisit has otherwise."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Records that name each other, by number; one of them at most may hold a page.

    Attributes:
        info: the `warcinfo` that they stand under.
    """

    info: WarcRecord | None
    records: list[tuple[int, WarcRecord]]


def runs(records: Iterable[tuple[int, WarcRecord]], largest: int) -> Iterator[Capture]:
    """The captures of a WARC; a record that names no neighbour is one of its own.

    Args:
        largest: bytes of a capture; one that is longer is broken into several.
    """
    info, run = None, _OpenCapture()
    try:
        for number, record in records:
            if run.records and not run.takes(record, largest):
                yield Capture(info, run.records)
                run = _OpenCapture()
            if record.headers.get("warc-type") == "warcinfo":
                info = record
            run.add(number, record)
    except Exception:
        if run.records:
            yield Capture(info, run.records)
        raise
    if run.records:
        yield Capture(info, run.records)


class _OpenCapture:
    """A capture so far."""

    def __init__(self) -> None:
        self.records: list[tuple[int, WarcRecord]] = []
        self._ids: set[bytes] = set()
        self._named: set[bytes] = set()
        self._bytes = 0

    def takes(self, record: WarcRecord, largest: int) -> bool:
        """Whether a record belongs to it too."""
        kinds = [each.headers.get("warc-type") for _, each in self.records] + [record.headers.get("warc-type")]
        if not set(kinds) <= {*HOLDING_PAGES, *BESIDE_A_PAGE} or sum(kind in HOLDING_PAGES for kind in kinds) > 1:
            return False
        if len(kinds) > MOST_RECORDS or self._bytes + len(record.block) > largest:
            return False
        return _id(record) in self._named or bool(_names(record) & self._ids)

    def add(self, number: int, record: WarcRecord) -> None:
        """Take it."""
        self.records.append((number, record))
        self._ids.add(_id(record))
        self._named |= _names(record)
        self._bytes += len(record.block)


def _id(record: WarcRecord) -> bytes:
    return record.headers.get("warc-record-id", "").encode()


def _names(record: WarcRecord) -> set[bytes]:
    return set(_NAMED.findall(record.head))


# Written on ------------------------------------------------------------------------------------------------------


def framed(record: WarcRecord) -> bytes | None:
    """A record as it came; None where it was too long to be kept."""
    if len(record.block) < record.length:
        return None
    return record.head + b"\r\n" + record.block + b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload of a response.

    Attributes:
        digest: SHA-1 of its bytes as they are stored, transfer and content encodings included.
        told: how it stands in the record's head, or would stand there: a label and a digest.
    """

    digest: bytes
    told: str


def payload_of(record: WarcRecord) -> Payload | None:
    """The payload of a response; None of other records: these are not captured again."""
    if record.headers.get("warc-type") != "response":
        return None
    digest = hashlib.sha1(split_http(record.block)[1]).digest()
    return Payload(digest, record.headers.get("warc-payload-digest") or _labelled(digest))


def revisit_of(record: WarcRecord, payload: Payload, match: Match) -> WarcRecord:
    """The revisit in place of a response.

    Args:
        payload: the original's, which has the same bytes.
        match: the original.
    """
    block, _ = split_http(record.block)
    version, *fields = _FIELD.findall(record.head)
    kept = [field for field in fields if _name(field) not in _OF_A_RESPONSE]
    profile = "1.1" if version.strip() == b"WARC/1.1" else "1.0"
    added = {
        "WARC-Type": "revisit",
        "WARC-Profile": f"http://netpreserve.org/warc/{profile}/revisit/identical-payload-digest",
        "WARC-Refers-To": match.id,
        "WARC-Refers-To-Target-URI": match.url,
        "WARC-Refers-To-Date": match.fetched_at,
        "WARC-Payload-Digest": payload.told,
        "WARC-Block-Digest": _labelled(hashlib.sha1(block).digest()),
        "Content-Length": str(len(block)),
    }
    lines = [f"{name}: {value}\r\n".encode() for name, value in added.items() if value is not None]
    return WarcRecord({}, block, len(block), b"".join([version, *kept, *lines]))


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0].strip().lower()


def _labelled(sha1: bytes) -> str:
    return "sha1:" + base64.b32encode(sha1).decode()
