"""Raw bytes of a page to UTF-8: which charset is it really in?

One question lives here, answered from the bytes and the declaration alone, the same on every run. The order:

    1. a byte order mark, or the zero bytes that UTF-16 markup is full of
    2. ISO-2022, when its escape sequence `ESC $` occurs (such bytes are valid UTF-8 as well, so this comes first)
    3. UTF-8, strictly
    4. UTF-8 with a few broken bytes: a page cut off inside a character, one bad comment in a good page
    5. the declared charset, strictly: the caller's (an HTTP header), then the page's own <meta> or XML declaration
    6. the detector (chardetng, the one of Firefox), strictly
    7. the candidates of 5 and 6 again, with a few broken bytes; before 6 where the detector shrugs (`_readings`)

Declarations lie. A multi-byte charset often gives a lie away by failing; a single-byte one accepts anything, so where
there are enough bytes to judge by, the detector overrules the declaration (`_is_overruled`). What no candidate
explains, or only with control characters in the result, is no text (an image, an archive) and is refused.

Labels mean what they mean on the web (WHATWG): `gb2312` is gb18030, `iso-8859-1` windows-1252, `shift_jis` cp932.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import webencodings
from chardetng_py import EncodingDetector

from simhash import native
from simhash.errors import PageError

# WHATWG's prescan reads 1,024 bytes; pages that open with comments or scripts have their <meta> further down.
META_PRESCAN_BYTES = 4096
MOST_DECLARED = 4
"""Of the charsets that a page declares so many are tried: each is a pass over all of it."""
_META = re.compile(
    rb"""<meta\b[^>]{0,1024}?\bcharset\s*=\s*["']?\s*([\w.:-]{1,40})"""
    rb"""|<\?xml\b[^>]{0,256}?\bencoding\s*=\s*["']([\w.:-]{1,40})""",
    re.IGNORECASE,
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)

# What the detector reads, from the first non-ASCII byte on; it takes 13 MB/s.
DETECTOR_SAMPLE_BYTES = 64 * 1024

# Valid non-ASCII characters needed for each broken sequence. 800 pages in 20 legacy charsets, as UTF-8, had at most
# 0.53; cut to 60 characters, at most 2.0 (GBK).
GOOD_PER_BROKEN = 8
GOOD_PER_BROKEN_IF_DECLARED = 2
# The same for a declared multi-byte charset: German text read as GBK has 8 and more, as its letters pair with ASCII.
GOOD_PER_BROKEN_LEGACY = 64

# Random bytes hold 11 % of control characters; text holds none, or a few by accident.
MAX_CONTROL_SHARE = 0.01
# NUL is apart: 67 of 34,240 pages of a crawl held some, mostly one, news among them, and browsers drop it.
MAX_NUL_SHARE = 0.05
CONTROLS = (*range(0x01, 0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), *range(0x7F, 0x85), *range(0x86, 0xA0))

# From so many non-ASCII bytes on the detector may contradict, if so many different ones are among them: those of a page
# in English are a few signs over and over, and may be anything. Of 4,371 true declarations (real pages in 13 charsets,
# whole and cut short) it overruled 5; 111 without the second number, at 24 bytes. Of as many of a charset of another
# family 2,276 end in the right text, 2,171 at 24; most others have too few such bytes to tell.
MIN_BYTES_TO_OVERRULE = 16
MIN_DIFFERENT_TO_OVERRULE = 10
_NON_ASCII = re.compile(rb"[\x80-\xff]")
_ASCII = bytes(range(0x80))

# UTF-16 without a mark: markup has a zero in this share of its characters at least, nearly all of them on one side.
MIN_UTF16_ZERO_SHARE = 0.1
MIN_UTF16_ZEROS = 32
MIN_UTF16_ZERO_RATIO = 4

# Labels seen on pages, or said by the detector, that WHATWG's table lacks.
_MORE_LABELS = {
    "cp874": "windows-874",
    "cp932": "shift_jis",
    "cp936": "gbk",
    "cp949": "euc-kr",
    "cp950": "big5",
    "euc_jp": "euc-jp",
    "euc_kr": "euc-kr",
    "eucjp": "euc-jp",
    "euckr": "euc-kr",
    "gb_18030": "gb18030",
    "ms949": "euc-kr",
    "uhc": "euc-kr",
    "utf8mb4": "utf-8",
}
# Python's codecs for a WHATWG name, where webencodings' one is too narrow; the first that decodes counts.
_CODECS = {
    "big5": ("big5hkscs", "cp950"),
    "euc-jp": ("euc_jp", "euc_jis_2004"),
    "gbk": ("gb18030",),
    "iso-2022-jp": ("iso2022_jp_ext", "iso2022_jp_2"),
    "iso-2022-kr": ("iso2022_kr",),
    "windows-874": ("cp874", "iso8859_11"),
}
# Charsets that differ in a few characters only: between them the declaration is the better witness.
_FAMILIES = {
    "arabic": ("windows-1256", "iso-8859-6"),
    "chinese": ("gbk", "gb18030"),
    "greek": ("windows-1253", "iso-8859-7"),
    "hebrew": ("windows-1255", "iso-8859-8", "iso-8859-8-i"),
    "koi8": ("koi8-r", "koi8-u"),
    "latin": [
        "windows-1250",
        "windows-1252",
        "windows-1254",
        "windows-1257",
        "windows-1258",
        "macintosh",
        "iso-8859-2",
        "iso-8859-3",
        "iso-8859-4",
        "iso-8859-10",
        "iso-8859-13",
        "iso-8859-14",
        "iso-8859-15",
        "iso-8859-16",
    ],
}
_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names}
_MULTI_BYTE = frozenset(("big5", "euc-jp", "euc-kr", "gb18030", "gbk", "shift_jis"))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A page in UTF-8, without a byte order mark, and the WHATWG name of the charset that it was in.

    Most pages are in UTF-8 as they come: of those nothing is copied, and no string is made.
    """

    utf8: bytes
    encoding: str

    @property
    def text(self) -> str:
        """The page's characters."""
        return self.utf8.decode()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to read the bytes: a charset and how many good characters excuse a broken one (None: strictly)."""

    encoding: str
    good_per_broken: int | None = None


_STRICT_UTF8 = _Attempt("utf-8")


def decode(raw: bytes, declared: str | None = None) -> Decoded:
    """The text of a page in bytes.

    Args:
        raw: the page as it was served.
        declared: the charset label that came with it, if any (`charset=` of a Content-Type header).

    Raises:
        PageError: stage "decode": no charset explains these bytes; the message says which were tried.
    """
    tried = []
    for reading in _readings(raw, declared):
        try:
            return Decoded(_read(raw, reading), reading.encoding)
        except UnicodeError as error:
            tried.append(f"{reading.encoding} ({_reason(error)})")
    raise PageError("decode", f"{len(raw)} bytes are text in no charset; tried {', '.join(dict.fromkeys(tried))}")


def _readings(raw: bytes, declared: str | None) -> Iterator[_Attempt]:
    """The ways to read the bytes, the likeliest first; lazily, since the detector runs only when it is needed."""
    if unit := _wide_unit(raw):
        yield _Attempt(unit)
        yield _Attempt(unit, GOOD_PER_BROKEN)
    if b"\x1b" in raw and b"\x1b$" in raw:  # one byte is found at ten times the rate of two
        escaped = "iso-2022-kr" if b"\x1b$)C" in raw else "iso-2022-jp"
        yield _Attempt(escaped)
        yield _Attempt(escaped, GOOD_PER_BROKEN)  # Python's codecs lack what Windows writes in such pages
    yield _Attempt("utf-8")
    names = list(dict.fromkeys(_declared_names(raw, declared)))[:MOST_DECLARED]
    # Chinese in UTF-16 has few zeros, in its markup; text in single bytes, which could be read as such too, has none.
    if declared and b"\0" in raw and (wide := _whatwg_name(declared) or "").startswith("utf-16"):
        yield _Attempt(wide)
    yield _Attempt("utf-8", GOOD_PER_BROKEN_IF_DECLARED if "utf-8" in names else GOOD_PER_BROKEN)
    guess = _detected(raw)
    # WHATWG reads UTF-16 that the page itself declares as UTF-8, since ASCII declared it.
    legacy = [name for name in names if not name.startswith("utf-")]
    trusted = [name for name in legacy if not _is_overruled(raw, name, guess)]
    yield from map(_Attempt, trusted)
    # One broken byte makes the detector give up on a multi-byte charset and say windows-1252, which reads anything.
    if _FAMILY.get(guess) == "latin":
        yield from (_Attempt(name, GOOD_PER_BROKEN_LEGACY) for name in legacy if name in _MULTI_BYTE)
    yield _Attempt(guess)
    yield from (_Attempt(name, GOOD_PER_BROKEN_LEGACY) for name in [*trusted, guess] if name in _MULTI_BYTE)
    yield _Attempt(_detected(raw, is_cut=False))
    yield from (_Attempt(name, GOOD_PER_BROKEN) for name in dict.fromkeys([*trusted, guess, *legacy]))


def _read(raw: bytes, reading: _Attempt) -> bytes:
    """The clean page. Raises UnicodeError when the bytes do not fit, or when what comes out is no text."""
    if reading == _STRICT_UTF8:
        if not native.is_utf8(raw):
            raw.decode()  # says where it is not, or looks at it without the kernel
        utf8 = raw
    elif reading.good_per_broken is None:
        utf8 = _decode_strictly(raw, reading.encoding).encode()
    else:
        utf8 = _decode_broken(raw, reading.encoding, reading.good_per_broken).encode()
    _refuse_controls(utf8)
    return utf8.removeprefix(codecs.BOM_UTF8)


def _refuse_controls(utf8: bytes) -> None:
    controls = count_controls(utf8)
    if not controls and b"\0" not in utf8:
        return
    nuls, characters = utf8.count(0), len(utf8.decode())
    if controls > MAX_CONTROL_SHARE * characters or nuls > MAX_NUL_SHARE * characters:
        raise UnicodeError(f"{controls + nuls} control characters among {characters}")


def count_controls(utf8: bytes) -> int:
    """How many characters are `CONTROLS`."""
    found = native.count_controls(utf8)
    return count_controls_in_numpy(utf8) if found is None else found


def count_controls_in_numpy(utf8: bytes) -> int:
    """The same without the native kernel; comparisons take a tenth of what a pattern or a table takes."""
    data = np.frombuffer(utf8, dtype=np.uint8)
    low, spared = (data - 1) < 0x1F, (data - 9) < 5
    count = np.count_nonzero(low) - np.count_nonzero(spared)
    count += np.count_nonzero(data == 0x7F) - np.count_nonzero(data == 0x1B)
    behind = data[1:][data[:-1] == 0xC2]  # U+0080 to U+00BF are C2 and their own number
    return int(count + np.count_nonzero((behind < 0xA0) & (behind != 0x85)))


def _decode_strictly(raw: bytes, encoding: str) -> str:
    *others, last = _codecs(encoding)
    for codec in others:
        try:
            return _decode_whole(raw, encoding, codec)
        except UnicodeDecodeError:
            continue
    return _decode_whole(raw, encoding, last)


def _decode_whole(raw: bytes, encoding: str, codec: str) -> str:
    if encoding.startswith("windows-"):
        return codecs.charmap_decode(raw, "strict", _characters(codec))[0]
    return codecs.decode(raw, codec)


@cache
def _characters(codec: str) -> str:
    """Of each byte of a Windows charset its character; U+FFFE: it has none.

    One from 80 to 9F that Python's codec lacks is the control character of its number, as in WHATWG's indexes.
    """
    known = [bytes([byte]).decode(codec, "ignore") for byte in range(256)]
    return "".join(known[byte] or (chr(byte) if byte < 0xA0 else "\ufffe") for byte in range(256))


def _decode_broken(raw: bytes, encoding: str, good_per_broken: int) -> str:
    """The text with U+FFFD for what is broken; a last character cut in two is not held against it."""
    codec = _codecs(encoding)[0]
    text = codecs.decode(raw, codec, "replace")
    replaced = text.count("\ufffd")
    broken = replaced - text.endswith("\ufffd") - _written_replacements(raw, codec)
    # In a charset that extends ASCII an ASCII character proves nothing; in UTF-16 it does.
    proofs = len(text) if codec.startswith("utf-16") else len(text) - len(text.encode("ascii", "ignore"))
    good = proofs - replaced
    if good < max(broken * good_per_broken, min(good_per_broken, GOOD_PER_BROKEN)):
        raise UnicodeError(f"{broken} broken sequences to {good} non-ASCII characters")
    return text


def _written_replacements(raw: bytes, codec: str) -> int:
    """How many U+FFFD the page itself holds, properly encoded: another tool's damage, not a wrong charset."""
    return raw.count("\ufffd".encode(codec)) if codec.startswith("utf-8") else 0


def _wide_unit(raw: bytes) -> str | None:
    """utf-8 or utf-16 by its byte order mark, or utf-16 by the zeros of its markup."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16le"),
        (codecs.BOM_UTF16_BE, "utf-16be"),
    ):
        if raw.startswith(mark):
            return encoding
    if b"\0" not in raw:
        return None
    first, second = raw[0::2].count(0), raw[1::2].count(0)
    if max(first, second) < max(MIN_UTF16_ZEROS, MIN_UTF16_ZERO_SHARE * len(raw) / 2):
        return None
    if max(first, second) < MIN_UTF16_ZERO_RATIO * min(first, second):
        return None
    return "utf-16le" if second > first else "utf-16be"


def _declared_names(raw: bytes, declared: str | None) -> Iterator[str]:
    """WHATWG names of what the caller and the page itself declare; unknown labels are skipped."""
    labels = [declared] if declared else []
    head = _COMMENT.sub(b"", raw[:META_PRESCAN_BYTES])
    labels += [(meta or xml).decode("ascii", "ignore") for meta, xml in _META.findall(head)]
    yield from filter(None, map(_whatwg_name, labels))


def _whatwg_name(label: str) -> str | None:
    plain = label.strip("\"' \t\r\n").lower()
    encoding = webencodings.lookup(_MORE_LABELS.get(plain, plain))
    if encoding is None or encoding.name in ("replacement", "x-user-defined"):
        return None
    return str(encoding.name)


def _codecs(encoding: str) -> tuple[str, ...]:
    """Python's names for a WHATWG name."""
    if encoding in _CODECS:
        return _CODECS[encoding]
    found = webencodings.lookup(encoding)
    return () if found is None else (found.codec_info.name,)


def _sample(raw: bytes) -> bytes:
    start = _NON_ASCII.search(raw)
    return raw[start.start() : start.start() + DETECTOR_SAMPLE_BYTES] if start else b""


def _detected(raw: bytes, is_cut: bool = True) -> str:
    """The detector's best guess, as a WHATWG name; of a page cut off, half a character at its end is no evidence."""
    detector = EncodingDetector()
    detector.feed(_sample(raw), last=not is_cut)
    return _whatwg_name(detector.guess(tld=None, allow_utf8=False)) or "windows-1252"


def _is_overruled(raw: bytes, declared: str, guess: str) -> bool:
    """Whether the detector's guess is the better witness: another family, readable, and enough bytes to judge by."""
    if _FAMILY.get(declared, declared) == _FAMILY.get(guess, guess):
        return False
    evidence = _sample(raw).translate(None, _ASCII)
    if len(evidence) < MIN_BYTES_TO_OVERRULE or len(set(evidence)) < MIN_DIFFERENT_TO_OVERRULE:
        return False
    try:
        _read(raw, _Attempt(guess))
    except UnicodeError:
        return False
    return True


def _reason(error: UnicodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return str(error)
