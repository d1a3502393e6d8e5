"""Which elements a parser of HTML would have open behind each tag: the names that decide it, and their count."""

from collections import defaultdict
from dataclasses import dataclass, field

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# Elements that never hold others, or that a parser ends by itself before the next of their kind.
NOT_NESTING = frozenset(
    [
        "area",
        "base",
        "basefont",
        "bgsound",
        "body",
        "br",
        "caption",
        "col",
        "colgroup",
        "dd",
        "dt",
        "embed",
        "frame",
        *_HEADINGS,
        "head",
        "hr",
        "html",
        "iframe",
        "image",
        "img",
        "input",
        "keygen",
        "li",
        "link",
        "meta",
        "noembed",
        "noframes",
        "option",
        "p",
        "param",
        "plaintext",
        "rb",
        "rp",
        "rt",
        "rtc",
        "script",
        "source",
        "style",
        "tbody",
        "td",
        "textarea",
        "tfoot",
        "th",
        "thead",
        "title",
        "tr",
        "track",
        "wbr",
        "xmp",
    ]
)
# Their start tags end SVG and MathML (13.2.6.5).
_BREAKOUT = frozenset(
    [
        "b",
        "big",
        "blockquote",
        "body",
        "br",
        "center",
        "code",
        "dd",
        "div",
        "dl",
        "dt",
        "em",
        "embed",
        *_HEADINGS,
        "head",
        "hr",
        "i",
        "img",
        "li",
        "listing",
        "menu",
        "meta",
        "nobr",
        "ol",
        "p",
        "pre",
        "ruby",
        "s",
        "small",
        "span",
        "strong",
        "strike",
        "sub",
        "sup",
        "table",
        "tt",
        "u",
        "ul",
        "var",
    ]
)
# A second one ends the first (13.2.6.4.7), so that at most one is open.
SINGLE = frozenset(("a", "button", "form", "nobr"))
FORMATTING = frozenset(
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
)
# Of equal formatting elements a parser reopens three ("Noah's Ark", 13.2.4.3).
_MAX_EQUAL_FORMATTING = 3
FOREIGN = ("math", "svg")


@dataclass(slots=True)
class OpenElements:
    """How many elements of each name a parser would have open; `foreign` are the <svg> and <math> among them."""

    depth: int = 0
    formatting: int = 0
    foreign: int = 0
    _open: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _reopened: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def start(self, name: str, attributes: str, text: str) -> None:
        """A start tag; `text` is what a script and its like hold."""
        self.whole(name)
        if self.foreign:
            # In SVG a <style> or <title> holds markup: what was taken for its text may nest, and ends nowhere.
            self._push(name, text.count("<") + (not attributes.endswith("/")))
        elif name not in NOT_NESTING and not (name in SINGLE and self._open[name]):
            self._push(name, 1)
            if name in FORMATTING and (attributes or self._reopened[name] < _MAX_EQUAL_FORMATTING):
                self._reopened[name] += 1
                self.formatting += 1

    def whole(self, name: str) -> None:
        """An element begins, and perhaps ends at once: HTML's names leave SVG and MathML, for good as counted here."""
        if self.foreign and name in _BREAKOUT:
            for foreign in FOREIGN:
                self._push(foreign, -self._open[foreign])

    def end(self, name: str) -> None:
        """An end tag; one of nothing open changes nothing."""
        if self._open[name]:
            self._push(name, -1)
            if self._reopened[name]:
                self._reopened[name] -= 1
                self.formatting -= 1

    def _push(self, name: str, count: int) -> None:
        self._open[name] += count
        self.depth += count
        if name in FOREIGN:
            self.foreign += count
