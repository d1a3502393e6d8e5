"""What a page's markup would cost the HTML parsers, counted before they see it.

HTML parsing is quadratic, or worse, on pages made for it: nested elements are searched through by every tag inside
them, an unclosed <font> is opened again in every paragraph. `check_markup` counts these costs in one linear pass and
refuses a page beyond `MarkupLimits`. The counts follow the tree that a parser would build closely, not exactly: void
and self-ending elements, comments, scripts and quoted attributes are known, the repair of misnested tags is not. A page
built against this very pass can still be slow; the caller's deadline stands behind it.

Why not the deadline alone: 100 kB can take 20 s, as long as 4,000 usual pages, and twice, for a page that fails is
tried again. And what a clock refuses depends on the machine and its load, while a page must be answered alike when it
is read again, by another worker or in a batch. An extractor that builds no tree needs none of this (`main_text`).

Measured harmless at 10 MB, hence without a limit: one huge attribute, text, comment, doctype or tag name; entities;
bare `<`.
"""

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice

from simhash.errors import PageError
from simhash.reading.html_tokens import TOKEN, attribute_names, tokens


@dataclass(frozen=True, slots=True)
class MarkupLimits:
    """The most of each cost that one page may have.

    The seconds beside them are resiliparse 2.0.1's (or selectolax 1.0.2's, where said) on one core.
    """

    # Elements open at once. 20,000 nested <div> (100 kB) took 9 s, 12,500 <ul><li> in selectolax 3.5 s.
    depth: int = 2_000
    # The elements open around each tag, summed: 70 ns apiece whatever nests. 1 MB of <b>x</b> inside 900 <div>: 8 s.
    steps: int = 20_000_000
    # Tags, and for each the unclosed <b>, <font> and their like that may be opened again there: 3 us apiece.
    # 10 MB of <b>x: 6 s. 100 kB of <p><font color=N>, or of <p>x after 1,000 such fonts: over 20 s.
    elements: int = 500_000
    # Attributes of a tag, squared, summed: a new one is compared to all. 11,000 in one tag: 0.3 s; 110,000: over 20 s.
    # Repeated <html> and <body> tags gather theirs in one element: 67,000 there took over 20 s.
    attribute_pairs: int = 100_000_000
    # Different names of tags and attributes; the parser's table degrades. 110,000: 2 s; 1,000,000: over 20 s.
    names: int = 30_000
    # <option> elements: the parser goes through the <select> again for each. 11,000: 1 s; 110,000: over 20 s.
    options: int = 10_000
    # Bytes of memory, about: the page's characters three times over, and the nodes of its tree. 430,000 times
    # `<div class="a">x</div>` on a line of its own are 9.9 MB, and 490 MB while they are parsed.
    memory: int = 140_000_000


# What a node takes in the parser's tree and in what is extracted from it, at most: resiliparse 2.0.1, measured.
_ELEMENT_BYTES = 300
_TEXT_BYTES = 280
_COMMENT_BYTES = 144
_ATTRIBUTE_BYTES = 281
_COPIES_OF_TEXT = 3


@dataclass(frozen=True, slots=True)
class _Markup:
    """The tokens of a page, column by column.

    A label is the name in lower case: `/b` of an end tag, `=b` of an element that holds only text, empty of a comment.
    A text is what a script and its like hold, or the rest of an element that holds only text.
    """

    html: str
    labels: list[str]
    attributes: list[str]
    texts: list[str]
    counts: Counter[str]

    @classmethod
    def of(cls, html: str, most: int) -> "_Markup":
        """The first `most` tokens; beyond them a page is refused anyway. Equal strings are kept once."""
        labels: list[str] = []
        attributes: list[str] = []
        texts: list[str] = []
        once: dict[str, str] = {}
        for some in tokens(html, most):
            named = (
                (end or ("=" + name if rest and not script and not raw else name)).lower()
                for end, name, script, raw, _, rest in some
            )
            labels += [once.setdefault(label, label) for label in named]
            attributes += [once.setdefault(token[4], token[4]) for token in some]
            texts += [once.setdefault(token[5], token[5]) for token in some]
        return cls(html, labels, attributes, texts, Counter(labels))

    def refusal(self, token: int, limit: str, most: int, found: int, what: str) -> PageError:
        """The error that blames the token of that number; its position is looked up only now."""
        position = next(islice(TOKEN.finditer(self.html), token, None)).start()
        return PageError("extract", f"markup limit {limit} = {most}: {found} {what} at character {position}")


def check_markup(html: str, limits: MarkupLimits) -> None:
    """Refuse a page that would cost a parser too much; linear in its length.

    Raises:
        PageError: stage "extract"; names the limit, the count found and the position of the tag that is one too many.
    """
    if _is_small(html, limits):
        return
    markup = _Markup.of(html, limits.elements + 1)
    _check_attributes(markup, limits)
    _check_names(markup, limits)
    _check_options(markup, limits)
    if not _is_flat(markup, limits):
        _check_tree(markup, limits)
    _check_memory(markup, limits)


def _is_small(html: str, limits: MarkupLimits) -> bool:
    """Whether so few characters and `<` exceed no limit, whatever they are: most pages need no closer look."""
    tags, attributes = html.count("<"), len(html) // 2
    return (
        _are_few(tags, limits)
        and tags <= limits.options
        and attributes**2 <= limits.attribute_pairs
        and attributes <= limits.names
    )


def _are_few(tags: int, limits: MarkupLimits) -> bool:
    """Whether tags can build no tree beyond the limits, even if each lies inside all that came before."""
    return tags <= limits.depth and tags * (tags + 1) // 2 <= min(limits.steps, limits.elements)


def _is_flat(markup: _Markup, limits: MarkupLimits) -> bool:
    """Whether the tags can build no tree beyond the limits, however they are arranged: three times as fast to say."""
    counts, tags = markup.counts, len(markup.labels)
    if any(name in counts for name in FOREIGN):
        return _are_few(tags, limits)
    starts = {name: count for name, count in counts.items() if name[:1] not in ("/", "=", "")}
    nesting = sum(count for name, count in starts.items() if name not in NOT_NESTING)
    reopened = sum(1 if name in SINGLE else count for name, count in starts.items() if name in FORMATTING)
    return nesting <= limits.depth and tags * nesting <= limits.steps and tags * (1 + reopened) <= limits.elements


def _check_attributes(markup: _Markup, limits: MarkupLimits) -> None:
    lengths = [*map(len, markup.attributes)]
    gathering = sum(markup.counts[label] for label in ("html", "body", "=html", "=body"))
    if max(1, gathering) * max(lengths, default=0) * sum(lengths) <= 4 * limits.attribute_pairs:
        return  # an attribute has two characters at least, so these are few enough
    pairs, gathered = 0, {"html": 0, "body": 0}
    for token, (label, text) in enumerate(zip(markup.labels, markup.attributes, strict=True)):
        count = len(attribute_names(text))
        if (name := label.lstrip("=")) in gathered:
            pairs -= gathered[name] ** 2
            count = gathered[name] = gathered[name] + count
        pairs += count**2
        if pairs > limits.attribute_pairs:
            what = f"pairs of attributes, {count} of them in one tag,"
            raise markup.refusal(token, "attribute_pairs", limits.attribute_pairs, pairs, what)


def _check_names(markup: _Markup, limits: MarkupLimits) -> None:
    texts = set(markup.attributes)
    if len(markup.counts) + sum(map(len, texts)) // 2 <= limits.names:
        return
    seen: set[str] = set()
    for token, (label, text) in enumerate(zip(markup.labels, markup.attributes, strict=True)):
        seen.add("<" + label.lstrip("/="))
        if text in texts:
            texts.remove(text)
            seen.update(map(str.lower, attribute_names(text)))
        if len(seen) > limits.names:
            raise markup.refusal(token, "names", limits.names, len(seen), "different names of tags and attributes")


def _check_memory(markup: _Markup, limits: MarkupLimits) -> None:
    html, labels = markup.html, markup.labels
    comments = markup.counts[""]
    elements = len(labels) - comments - sum(count for label, count in markup.counts.items() if label[:1] == "/")
    texts = html.count(">") - html.count("><")
    nodes = elements * _ELEMENT_BYTES + texts * _TEXT_BYTES + comments * _COMMENT_BYTES
    most = limits.memory - _COPIES_OF_TEXT * sys.getsizeof(html) - nodes
    if sum(map(len, markup.attributes)) // 2 * _ATTRIBUTE_BYTES <= most:
        return  # an attribute has two characters at least, so these are few enough
    attributes = sum(len(attribute_names(text)) * count for text, count in Counter(markup.attributes).items())
    if attributes * _ATTRIBUTE_BYTES > most:
        found = limits.memory - most + attributes * _ATTRIBUTE_BYTES
        what = f"bytes for {elements} elements, {texts} texts and {attributes} attributes,"
        raise markup.refusal(len(labels) - 1, "memory", limits.memory, found, what)


def _check_options(markup: _Markup, limits: MarkupLimits) -> None:
    if markup.counts["option"] + markup.counts["=option"] <= limits.options:
        return
    options = [token for token, label in enumerate(markup.labels) if label in ("option", "=option")]
    last = options[limits.options]
    raise markup.refusal(last, "options", limits.options, len(options), "<option> elements, one too many")


def _check_tree(markup: _Markup, limits: MarkupLimits) -> None:
    tree = OpenElements()
    steps = elements = 0
    for token, label in enumerate(markup.labels):
        mark = label[:1]
        if mark == "/":
            tree.end(label[1:])
        elif mark == "=":
            tree.whole(label[1:])
        elif mark and (label not in NOT_NESTING or tree.foreign):
            tree.start(label, markup.attributes[token], markup.texts[token])
        steps += tree.depth
        elements += 1 + tree.formatting
        if tree.depth > limits.depth or steps > limits.steps or elements > limits.elements:
            break
    else:
        return
    if tree.depth > limits.depth:
        raise markup.refusal(token, "depth", limits.depth, tree.depth, "elements open at once")
    if steps > limits.steps:
        raise markup.refusal(token, "steps", limits.steps, steps, "open elements around tags, in sum,")
    raise markup.refusal(token, "elements", limits.elements, elements, "tags and elements opened again")


# Open elements --------------------------------------------------------------------------------------------------------

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
