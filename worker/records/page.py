"""The page: what comes in. From a record's bytes to a `Page`, or a PageError that says what is wrong with them.

JSON, UTF-8: `url` (required), exactly one of `html` | `text` | `html_base64` (with optional `charset`), optional `id`,
`fetched_at`, `content_type`; unknown fields are ignored. In the format "html" the record's key is the URL and its
value the raw page.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from typing import Literal, NamedTuple, NoReturn

import msgspec
import xxhash

from simhash.errors import PageError
from simhash.native import is_utf8
from worker.records.passing import Page, RawRecord, Source, Unread, size_of

PageFormat = Literal["json", "html"]
MAX_URL_BYTES = 32 << 10
"""The most that `max_url_bytes` may be."""
MAX_FETCHED_AT_BYTES = 64
MAX_ID_BYTES = 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';,]{1,40})""", re.IGNORECASE)


class Limits(NamedTuple):
    """Sizes, in bytes, above which a record is refused: all that its outputs could be too large for."""

    page: int
    url: int
    key: int


class _Wire(msgspec.Struct, frozen=True):
    url: str
    html: str | None = None
    text: str | None = None
    html_base64: str | None = None
    charset: str | None = None
    id: str | None = None
    fetched_at: str | None = None
    content_type: str | None = None


_decoder = msgspec.json.Decoder(_Wire)
CONTENTS = ("html", "text", "html_base64")
"""Where a page has its content: in one of these."""


def largest_record(largest_page: int) -> int:
    """The most bytes a JSON record can need for a page: escapes lengthen it up to six times ("\\u0041")."""
    return 6 * largest_page + (1 << 20)


def observation(source: Source, key: bytes | None, value: bytes) -> bytes:
    """16 bytes that name one delivery of one record: equal when, and only when, it is read again."""
    digest = xxhash.xxh3_128(value)
    digest.update(b"\0" if key is None else b"\1" + key)
    place = f"{source.topic}\0{source.partition}\0{source.offset}\0{source.timestamp}\0"
    return xxhash.xxh3_128_digest(place.encode("utf-8", "surrogatepass") + digest.digest())


def observed(record: RawRecord) -> bytes | None:
    """The observation of a topic's record that is no page, or is one no more; None: its bytes were not kept."""
    if isinstance(record.value, Unread) or isinstance(record.key, Unread):
        return None
    return observation(record.source, record.key, record.value or b"")


def page_in(record: RawRecord, page_format: PageFormat, limits: Limits) -> Page:
    """The page in a record, whatever container told what is what in it.

    Raises:
        PageError: stage "decode": it is no page, or larger than the limits.
    """
    if record.page is None:
        return decode_page(record.key, record.value, page_format, limits)
    page = checked(record.page, limits)
    if page.is_utf8:
        _check_utf8(page.content)
    return page


def decode_page(key: bytes | None, value: bytes | None, page_format: PageFormat, limits: Limits) -> Page:
    """The page in a record.

    Raises:
        PageError: stage "decode": it is no page, or larger than the limits.
    """
    if value is None:
        raise _refused("the record has no value (a tombstone)")
    if (size := size_of(key)) > limits.key:
        raise _refused(f"the key has {size:,} bytes, more than max_key_bytes = {limits.key:,}")
    if isinstance(value, Unread):
        size = size_of(value)
        raise _refused(f"the record has {size:,} bytes, far more than max_page_bytes = {limits.page:,}")
    return checked(_from_json(value, limits) if page_format == "json" else _from_raw(key, value), limits)


def checked(page: Page, limits: Limits) -> Page:
    """The page itself, within the limits.

    Raises:
        PageError: stage "decode": it is larger than the limits, or has no URL.
    """
    if (size := len(page.content)) > limits.page:
        raise _refused(f"the page has {size:,} bytes, more than max_page_bytes = {limits.page:,}")
    _check_url(page.url, limits)
    _check_short("id", page.id, MAX_ID_BYTES)
    _check_short("fetched_at", page.fetched_at, MAX_FETCHED_AT_BYTES)
    return page


def _from_raw(key: bytes | None, value: bytes) -> Page:
    if not key:
        raise _refused("the record has no key; in page format html the key is the URL")
    try:
        return Page(key.decode(), value, is_html=True)
    except UnicodeDecodeError as error:
        raise _refused(f"the key, which should be the URL, is not UTF-8: {error}") from error


def _from_json(value: bytes, limits: Limits) -> Page:
    if len(value) > largest_record(limits.page):  # do not even parse it
        raise _refused(f"the record has {len(value):,} bytes, far more than max_page_bytes = {limits.page:,}")
    wire = _parse(value.removeprefix(_BYTE_ORDER_MARK))
    given = [name for name in CONTENTS if getattr(wire, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise _refused(f"a page has exactly one of html, text and html_base64; this one has {found}")
    characters: str = getattr(wire, given[0])
    is_utf8 = given[0] != "html_base64"
    content = characters.encode() if is_utf8 else _from_base64(characters)
    charset = wire.charset or charset_of(wire.content_type)
    return Page(wire.url, content, given[0] != "text", charset, wire.id, wire.fetched_at, is_utf8)


def _parse(value: bytes) -> _Wire:
    try:
        return _decoder.decode(value)
    except msgspec.ValidationError as error:
        raise _refused(f"not a page: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(_why_not_json(value, str(error))) from error
    except RecursionError as error:
        raise _refused("not a page: JSON nested too deeply") from error


def _why_not_json(value: bytes, first: str) -> str:
    """What is wrong, with its place: the fast parser's words are terse, and it takes lone surrogates for truncation."""
    if not value.strip():
        return "not JSON: the value is empty"
    try:
        parsed = json.loads(value.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return _not_utf8(error)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
    except (RecursionError, ValueError) as error:
        return f"not JSON: {str(error) or first}"
    return _lone_surrogate(parsed) or f"not JSON: {first}"


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"not UTF-8: byte {error.start} of {len(error.object)} is {error.object[error.start]:#04x}"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _lone_surrogate(parsed: object) -> str | None:
    for name, text in parsed.items() if isinstance(parsed, dict) else ():
        found = _SURROGATE.search(text) if isinstance(text, str) else None
        if found:
            code, where = ord(found[0]), found.start()
            return f"not a page: {name!r:.60} has a lone surrogate, U+{code:04X}, at character {where} of {len(text)}"
    try:
        found = _SURROGATE.search(json.dumps(parsed, ensure_ascii=False))
    except RecursionError:
        return None
    return f"not a page: a name or a nested value has a lone surrogate, U+{ord(found[0]):04X}" if found else None


def _from_base64(content: str) -> bytes:
    try:
        return b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(f"html_base64 is not base64: {error}") from error


def charset_of(content_type: str | None) -> str | None:
    """The charset that a Content-Type declares."""
    found = _CHARSET.search(content_type[:1024]) if content_type else None
    return found[1] if found else None


def _check_utf8(content: bytes) -> None:
    """What a container says to be characters; those of JSON were read as such."""
    try:
        if not is_utf8(content):
            content.decode()  # says where it is not, or looks at it without the kernel
    except UnicodeDecodeError as error:
        raise _refused(_not_utf8(error)) from error


def _check_url(url: str, limits: Limits) -> None:
    if not url.strip():
        raise _refused("url is empty")
    if (size := _utf8_length("url", url)) > limits.url:
        raise _refused(f"url has {size:,} bytes, more than max_url_bytes = {limits.url:,}")
    if found := _CONTROL.search(url):
        raise _refused(f"url has a control character, U+{ord(found[0]):04X}, at character {found.start()}")


def _check_short(name: str, text: str | None, limit: int) -> None:
    if text is not None and (size := _utf8_length(name, text)) > limit:
        raise _refused(f"{name} has {size:,} bytes, more than {limit:,}")


def _utf8_length(name: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise _refused(f"{name} is not UTF-8: U+{ord(text[error.start]):04X} at character {error.start}") from error


def _refused(message: str) -> PageError:
    return PageError("decode", message)
