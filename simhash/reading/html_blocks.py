"""HTML to blocks: stretches of text between block-level tags, and which elements are open around each.

A page is read as its bytes of UTF-8, a character each, since all that is markup is ASCII; what is kept is decoded.

There is no tree. One regular expression finds the tokens in one pass; a stack holds what is open. An end tag looks for
its start among the innermost elements only (`END_TAG_REACH`), an attribute is read up to `ATTRIBUTE_CHARACTERS`: so a
page costs what its characters cost, however it is nested. An element is a range of blocks, from where it begins to
where it ends, so what it holds is a difference of two running sums.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.entities import html5

import numpy as np

from simhash.reading.html_tokens import ATTRIBUTES, ATTRIBUTES_AND_END, SCRIPT_TEXT, STOP, any_case

END_TAG_REACH = 32
"""How many of the innermost open elements an end tag may end."""
ATTRIBUTE_CHARACTERS = 256
"""How much of a tag's attributes is read for words."""

RAW = ("script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp", "plaintext")
"""Elements whose content is text up to their end tag."""
SHOWN = ("xmp", "plaintext")
"""Those of `RAW` that a browser shows."""
NOSCRIPT = "noscript"
SKIPPED = (NOSCRIPT, "template", "svg", "select", "canvas", "video", "audio")
"""Elements whose text a reader does not see, but for a template that `is_shadow`."""
LINE = "br"
RULES = ("hr", "body")
"""Tags that end a block and are no elements here."""
METADATA = ("meta", "link")
"""Tags that end no block; their attributes are read."""
PAGE = "html"
_SAYING = {PAGE: "lang", "link": "canonical", "meta": "robots"}
"""What a tag holds somewhere that says something of the page."""
METADATA_CHARACTERS = 4096
TITLE_CHARACTERS = 1000
MOST_BLOCKS = 20_000
MOST_ELEMENTS = 100_000
"""From so many on a page is large: its blocks' texts are kept, and nothing else. Pages have a few hundred of each."""
_TOKENS_AT_ONCE = 20_000
# Names of one row mean the same to the decision; a row's number is the bit that its names set in an element's mask.
KINDS = (
    ("h1",),
    ("h2", "h3", "h4", "h5", "h6"),
    ("p",),
    ("li", "ul", "ol", "menu", "dir"),
    ("dl", "dt", "dd"),
    ("td", "th"),
    ("table", "caption", "thead", "tbody", "tfoot", "tr"),
    ("pre", "listing"),
    ("blockquote",),
    ("figcaption", "figure"),
    ("article",),
    ("main",),
    ("section",),
    ("nav",),
    ("aside",),
    ("footer", "address"),
    ("header", "hgroup"),
    ("form", "fieldset", "legend", "search"),
    ("button", "option", "optgroup"),
    ("details", "summary", "dialog"),
)
PLAIN = ("head", "div", "center")

# What an element is to the tags that end it without an end tag of its own (13.1.2.4 of the standard, "optional tags").
_P, _LI, _DT, _CELL, _ROW, _GROUP, _OPTION, _HEADING, _HIDDEN, _HEAD = (1 << bit for bit in range(10))
_ENDED_AS = {
    "p": _P,
    "li": _LI,
    **dict.fromkeys(("dt", "dd"), _DT),
    **dict.fromkeys(("td", "th"), _CELL),
    "tr": _ROW,
    **dict.fromkeys(("thead", "tbody", "tfoot", "caption"), _GROUP),
    **dict.fromkeys(("option", "optgroup"), _OPTION),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _HEADING),
    **dict.fromkeys(("svg", "select"), _HIDDEN),
    "head": _HEAD,
}
_FLOW = _P | _HIDDEN | _OPTION | _HEAD
_IN_CELL = _FLOW | _LI | _DT | _HEADING
_ENDS = {
    "li": _FLOW | _LI,
    **dict.fromkeys(("dt", "dd"), _FLOW | _DT),
    **dict.fromkeys(("td", "th"), _IN_CELL | _CELL),
    "tr": _IN_CELL | _CELL | _ROW,
    **dict.fromkeys(("thead", "tbody", "tfoot", "caption"), _IN_CELL | _CELL | _ROW | _GROUP),
    **dict.fromkeys(("option", "optgroup"), _OPTION),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _FLOW | _HEADING),
    "svg": 0,
    "select": 0,
}
_TABLE_PARTS = ("td", "th", "tr", "thead", "tbody", "tfoot", "caption")


@dataclass(frozen=True, slots=True)
class Name:
    """What a block-level name does.

    Attributes:
        number: its place among the names; an end tag ends the element of its number.
        mask: the bit of its kind.
        ended_as: what it is to the start tags that end it.
        ends: what of those its own start tag ends, as long as one is innermost.
        behind: what its end tag does not look behind: `ended_as` bits, or the number of <table>.
        skipped: whether a reader does not see its text.
    """

    number: int
    mask: int
    ended_as: int
    ends: int
    stops_at_table: bool
    stops_at_cell: bool
    skipped: bool


def _names() -> dict[str, Name]:
    kinds = {name: 1 << bit for bit, row in enumerate(KINDS) for name in row}
    return {
        name: Name(
            number,
            kinds.get(name, 0),
            _ENDED_AS.get(name, 0),
            _ENDS.get(name, _FLOW),
            name in _TABLE_PARTS,
            name not in (*_TABLE_PARTS, "table"),
            name in SKIPPED,
        )
        for number, name in enumerate((*kinds, *PLAIN, *SKIPPED))
    }


NAMES: Mapping[str, Name] = _names()
_TABLE = NAMES["table"].number

# --- tokens ----------------------------------------------------------------------------------------------------------


def _one_of(words: tuple[str, ...]) -> str:
    """A pattern for any of these words, by their first letters."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[0], []).append(any_case(word[1:]))
    return "|".join(f"{any_case(head)}(?:{'|'.join(rest)})" for head, rest in heads.items())


_SCRIPT = any_case("script")
_RAW = _one_of(RAW[1:])
_BLOCK = _one_of((*NAMES, LINE, *RULES, *METADATA, PAGE))
_COMMENT = r"!--(?: -?> | .*?(?:--!?>|\Z) ) | [!?/][^>]*+ >?+"
# One token: text, with inline tags and comments in it, up to a block-level tag; and that tag: an end tag's name; or a
# start tag's name, by its kind, its attributes, what ends it in itself, and the text of an element without inner
# markup. One that ends itself has no text, as in SVG and XHTML; elsewhere a browser would show no more of the page.
TOKEN = re.compile(
    rf"""
    ( (?: [^<]++ | <(?! /?+ (?:{_SCRIPT}|{_RAW}|{_BLOCK}){STOP} )
                   (?: /?+[a-zA-Z][^\t\n\f\r\ />]*+ {ATTRIBUTES} >?+ | {_COMMENT} )?+ )*+ )
    (?: </([a-zA-Z][a-zA-Z0-9]*+) {ATTRIBUTES} >?+
      | <(?: ({_BLOCK}) | ({_SCRIPT}) | ({_RAW}) )(?={STOP})
        ({ATTRIBUTES_AND_END}) >?+
        ((?(7) | (?(4) {SCRIPT_TEXT} | (?(5) (?: [^<]++ | <(?!/(?ai:\5){STOP}) )*+ | ))))
      | \Z )
    """,
    re.VERBOSE | re.DOTALL,
)
# What is no text between two block-level tags; the groups are the name of a link or a span, and its attributes.
_INLINE = re.compile(
    rf"""<(?: (/?+(?:[aA]|[sS][pP][aA][nN]))(?={STOP}) ({ATTRIBUTES}) >?+
            | /?+[a-zA-Z][^\t\n\f\r\ />]*+ {ATTRIBUTES} >?+
            | {_COMMENT} )""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile("[A-Za-z][a-z]+")
_VALUE = re.compile(
    r"""[\t\n\f\r\ /]*+ ( =[^\t\n\f\r\ />=]*+ | [^\t\n\f\r\ />=]++ )
    (?: [\t\n\f\r\ ]*+ = [\t\n\f\r\ ]*+ (?: "([^"]*+)(?:"|\Z) | '([^']*+)(?:'|\Z) | ((?!["'])[^\t\n\f\r\ >]*+) ) )?+""",
    re.VERBOSE,
)
_SPACES = re.compile("[\t\n\f\r ]+")

# --- characters ------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"&(?:#(?:[xX]([0-9a-fA-F]++)|([0-9]++));?+|([A-Za-z][A-Za-z0-9]{1,31}+;?+))")
LONGEST_BARE = max(len(name) for name in html5 if not name.endswith(";"))
# Numbers that stand for what windows-1252 has there (13.2.5.80).
WINDOWS_1252 = bytes(range(0x80, 0xA0)).decode("windows-1252", "replace")


def character_of(number: int) -> str:
    """The character of a numeric reference; nothing for control characters and noncharacters."""
    if 0x80 <= number < 0xA0 and (character := WINDOWS_1252[number - 0x80]) != "\ufffd":
        return character
    if number == 0 or number > 0x10FFFF or 0xD800 <= number < 0xE000:
        return "\ufffd"
    is_control = 0x7F <= number < 0xA0 or (number < 0x20 and number not in (9, 10, 12, 13))
    if is_control or 0xFDD0 <= number < 0xFDF0:
        return ""
    return "" if number & 0xFFFE == 0xFFFE else chr(number)


def _referred(match: re.Match[str]) -> str:
    digits, base = (match[1], 16) if match[1] else (match[2], 10)
    if digits:
        digits = digits.lstrip("0")
        return character_of(int(digits or "0", base) if len(digits) < 8 else 0)
    name = match[3]
    if name in html5:
        return html5[name]
    for end in range(min(len(name) - 1, LONGEST_BARE), 1, -1):
        if name[:end] in html5:
            return html5[name[:end]] + name[end:]
    return match[0]


def _referred_in_value(match: re.Match[str]) -> str:
    """In an attribute a name without `;` counts only where nothing of a URL's query follows (13.2.5.73)."""
    name = match[3]
    if name is None:
        return _referred(match)
    is_reference = name in html5 and (name.endswith(";") or match.string[match.end() : match.end() + 1] != "=")
    return html5[name] if is_reference else match[0]


def decoded(text: str) -> str:
    """The characters of which a text has the bytes."""
    return text if text.isascii() else text.encode("latin-1").decode()


def plain(text: str) -> str:
    """Text as it is read: character references resolved, white space collapsed."""
    if "&" in text:
        text = _REFERENCE.sub(_referred, text)
    return " ".join(text.split())


def _plain_value(value: str) -> str:
    """The same of an attribute's value."""
    return " ".join(_REFERENCE.sub(_referred_in_value, value).split())


# --- blocks ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Blocks:
    """What one pass over a page finds, column by column.

    Attributes:
        texts, links: of each block its text, and how many links begin in it.
        linked: of each block the text inside links.
        owners: of each block the element that holds it.
        broken: of each block whether only a line break stands between it and the one before.
        parents, masks, keys: of each element its parent, the bits of its kind and words, and what it has in common with
            elements made alike. Element 0 is the page; a parent has a smaller number than its children.
        starts, ends: of each element the first of its blocks and the one behind the last.
        depths: of each element the number of those around it.
    """

    title: str = ""
    language: str = ""
    canonical: str = ""
    robots: str = ""
    texts: list[str] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)
    parents: tuple[int, ...] = (0,)
    masks: tuple[int, ...] = (0,)
    keys: tuple[int, ...] = (0,)
    depths: tuple[int, ...] = (0,)
    starts: tuple[int, ...] = (0,)
    ends: list[int] = field(default_factory=lambda: [0])

    @property
    def is_large(self) -> bool:
        """Whether only the texts are complete."""
        return len(self.texts) > MOST_BLOCKS or len(self.parents) >= MOST_ELEMENTS


class _Reader:
    """One pass over a page."""

    def __init__(self, words: Mapping[str, int], shown: str = "") -> None:
        self.blocks = Blocks()
        self._shown_name = NAMES.get(shown)
        self._words = words
        self._elements = [(0, 0, 0, 0, 0)]  # of each what `Blocks` has in columns, but where it ends
        self._named: defaultdict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._keys: dict[tuple[int | str, ...], int] = {}
        self._stack: list[tuple[int, Name | None]] = [(0, None)]
        self._skipping = 0  # how many elements were open, with it, where the skipped one began that is open; 0: none is
        self._spans = 0  # how many spans are open since a hidden one, where that is what is skipped
        self._link = 0  # how many elements were open where the link began that is open; 0: none is

    def read(self, html: bytes) -> Blocks:
        pending: list[str] = []  # text before a tag that ends no block
        broken = False
        for chunk, end, block, script, raw, attributes, ends_itself, text in _tokens(html):
            tag = (end or block or raw).lower()
            named = NAMES.get(tag)
            if not named and (script or tag in _PASSED or (end and tag != LINE)):  # `</br>` is a line break too
                pending.append(chunk)
                self._passed(tag, attributes, text)
                continue
            if pending:
                self._text([*pending, chunk], broken)
                pending.clear()
            elif chunk and not chunk.isspace():
                self._text([chunk], broken)
            broken = tag == LINE
            if named and end:
                self._end(named)
            elif named and not (ends_itself and tag == "svg"):
                self._start(named, attributes)
            elif raw:
                self._shown(text)
            else:
                self.say(tag, attributes)
        while len(self._stack) > 1:
            self._pop()
        blocks = self.blocks
        blocks.ends[0] = len(blocks.texts)
        blocks.parents, blocks.masks, blocks.keys, blocks.depths, blocks.starts = zip(*self._elements, strict=True)
        return blocks

    def has(self, name: str) -> bool:
        """Whether there was an element of this name."""
        return NAMES[name].number in self._named

    def _passed(self, tag: str, attributes: str, text: str) -> None:
        """A tag that ends no block."""
        self.say(tag, attributes)
        if text and tag == "title" and not self.blocks.title and (self._spans or not self._skipping):
            self.blocks.title = plain(decoded(text)[:METADATA_CHARACTERS])[:TITLE_CHARACTERS]

    def _text(self, chunks: list[str], broken: bool) -> None:
        """A block of what stands between two tags that end one, in parts if there are tags in it that end none."""
        if self._skipping and not self._spans:
            return
        texts: list[str] = []
        linked: list[str] = []  # those of them inside links
        links = 0
        for chunk in chunks:
            parts = _INLINE.split(chunk) if "<" in chunk else (chunk,)
            for at in range(0, len(parts), 3):
                if at and (tag := parts[at - 2]):
                    links += self._tag(tag.lower(), parts[at - 1])
                if (text := parts[at]) and not self._skipping:
                    texts.append(text)
                    if self._link:
                        linked.append(text)
        if texts and (whole := plain(decoded("".join(texts)))):
            all_linked = len(linked) == len(texts)
            self._add(whole, whole if all_linked else plain(decoded("".join(linked))), links, broken)

    def _tag(self, tag: str, attributes: str) -> int:
        """A tag of a link or a span; how many links begin."""
        if tag in ("span", "/span"):
            if self._spans or "hidden" in attributes.lower():
                self._span(tag, attributes)
        elif self._skipping:
            return 0
        elif tag == "/a":
            self._link = 0
        elif "href" in attributes.lower():
            self._link = len(self._stack)
            return 1
        return 0

    def _span(self, tag: str, attributes: str) -> None:
        if self._spans:
            self._spans += 1 if tag == "span" else -1
            self._skipping = self._skipping if self._spans else 0
        elif not self._skipping and tag == "span" and is_hidden(attributes):
            self._spans, self._skipping = 1, len(self._stack)

    def _add(self, text: str, linked: str, links: int, broken: bool) -> None:
        blocks = self.blocks
        blocks.texts.append(text)
        if len(blocks.texts) > MOST_BLOCKS:
            return
        blocks.linked.append(linked)
        blocks.links.append(links)
        blocks.owners.append(self._stack[-1][0])
        blocks.broken.append(broken)

    def _shown(self, text: str) -> None:
        if not self._skipping and (shown := " ".join(decoded(text).split())):
            self._add(shown, "", 0, False)

    def say(self, tag: str, attributes: str) -> None:
        """Note what a tag says of the page, if it is one that does."""
        if tag not in _SAYING or _SAYING[tag] not in attributes.lower():
            return
        blocks, values = self.blocks, _values(decoded(attributes)[:METADATA_CHARACTERS])
        if tag == PAGE:
            blocks.language = blocks.language or _plain_value(values.get("lang", ""))
        elif tag == "link" and "canonical" in _words(values.get("rel", "")):
            blocks.canonical = blocks.canonical or _plain_value(values.get("href", ""))
        elif tag == "meta" and "robots" in _words(values.get("name", "")):
            blocks.robots = blocks.robots or _plain_value(values.get("content", ""))

    def _start(self, name: Name, attributes: str) -> None:
        stack = self._stack
        while (top := stack[-1][1]) and top.ended_as & name.ends:
            self._pop()
        if name.skipped and not self._skipping and name is not self._shown_name and not is_shadow(attributes):
            self._skipping = len(stack) + 1
        elements = self._elements
        if len(elements) >= MOST_ELEMENTS:
            stack.append((0, name))
            return
        known = self._named[name.number]
        named = known.get(attributes)
        if named is None:
            named = known[attributes] = self._name(name, attributes)
        stack.append((len(elements), name))
        elements.append((stack[-2][0], *named, len(stack) - 1, len(self.blocks.texts)))
        self.blocks.ends.append(0)

    def _name(self, name: Name, attributes: str) -> tuple[int, int]:
        """The mask of an element and the number of what it has in common with others."""
        words = _WORD.findall(decoded(attributes)[:ATTRIBUTE_CHARACTERS])
        mask = name.mask
        for word in words:
            mask |= self._words.get(word.lower(), 0)
        return mask, self._keys.setdefault((name.number, *words), len(self._keys) + 1)

    def _end(self, name: Name) -> None:
        stack = self._stack
        if stack[-1][1] is name:
            self._pop()
            return
        for back in range(1, min(END_TAG_REACH, len(stack) - 1) + 1):
            top = stack[-back][1]
            assert top is not None
            if top.number == name.number:
                for _ in range(back):
                    self._pop()
                return
            if (name.stops_at_cell and top.ended_as & _CELL) or (name.stops_at_table and top.number == _TABLE):
                return

    def _pop(self) -> None:
        element, _ = self._stack.pop()
        self.blocks.ends[element] = len(self.blocks.texts)
        if len(self._stack) < self._skipping:
            self._skipping = self._spans = 0
        if len(self._stack) < self._link:
            self._link = 0


_PASSED = frozenset((*METADATA, *(set(RAW) - set(SHOWN))))


def read_metadata(html: bytes) -> Blocks:
    """What a page says of itself, but for its title, and no blocks: for those that read its text another way."""
    reader = _Reader({})
    for _, _, block, _, _, attributes, *_ in _tokens(html):
        reader.say(block.lower(), attributes)
    return reader.blocks


def _tokens(html: bytes) -> Iterable[tuple[str, ...]]:
    """The groups of `TOKEN`, all at once where they are few."""
    is_small = np.count_nonzero(np.frombuffer(html, np.uint8) == ord("<")) <= _TOKENS_AT_ONCE
    text = html.decode("latin-1")
    return TOKEN.findall(text) if is_small else (match.groups("") for match in TOKEN.finditer(text))


def _values(attributes: str) -> dict[str, str]:
    """Attributes by name in lower case; of equal names the first."""
    values: dict[str, str] = {}
    at = 0
    while match := _VALUE.match(attributes, at):
        name, double, single, bare = match.groups("")
        values.setdefault(name.lower(), double or single or bare)
        at = match.end()
    return values


def is_hidden(attributes: str) -> bool:
    """Whether there is the attribute `hidden`."""
    return "hidden" in attributes.lower() and "hidden" in _values(decoded(attributes)[:METADATA_CHARACTERS])


def is_shadow(attributes: str) -> bool:
    """Whether a template's content is shown in the place of the element around it, as its shadow tree (4.12.3)."""
    if "shadowrootmode" not in attributes.lower():
        return False
    mode = _values(decoded(attributes)[:METADATA_CHARACTERS]).get("shadowrootmode", "")
    return mode.lower() in ("open", "closed")


def _words(value: str) -> list[str]:
    return _SPACES.split(value.lower())


def read_blocks(html: bytes, words: Mapping[str, int]) -> Blocks:
    """The blocks of a page in UTF-8, without NUL; `words` gives the bits of words in attributes.

    Where there are none, those of what the page has for readers without scripts: some have all their text there.
    """
    reader = _Reader(words)
    found = reader.read(html)
    return found if found.texts or not reader.has(NOSCRIPT) else _Reader(words, NOSCRIPT).read(html)
