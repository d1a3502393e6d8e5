"""Real pages, damaged: what two readers of HTML are compared on, since made-up markup never meets what pages do.

`mutated` changes a page in a few places, each time in a way that matters to a tokenizer or to what stands behind it;
`as_bytes` sends it as a server might, in another charset than it says. The same page and random numbers give the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[str, Random], str]

MOST_MUTATIONS = 4
MOST_REPEATED = 300
_TAG = re.compile(r"<[^<>]*>")
_ATTRIBUTE = re.compile(r"""=\s*("[^"<>]*"|'[^'<>]*')""")
_WORD = re.compile(r"[^\W\d_]+")
_NAMES = (
    *("a", "article", "aside", "b", "blockquote", "body", "br", "button", "code", "div", "dl", "dt", "font", "footer"),
    *("form", "h1", "h2", "head", "header", "hr", "html", "i", "iframe", "img", "input", "li", "link", "main", "math"),
    *("meta", "nav", "noscript", "ol", "option", "p", "pre", "script", "section", "select", "span", "style", "svg"),
    *("table", "tbody", "td", "template", "textarea", "title", "tr", "ul", "wbr", "x-y", "xmp", "plaintext", "image"),
)
_RAW = ("script", "style", "textarea", "title", "template", "noscript", "iframe", "xmp", "noembed", "noframes")
_MARKS = (
    *("<!--", "-->", "--!>", "<!-->", "<!--->", "<!", "<?", "<![CDATA[", "]]>", "</", "</>", "<", ">", "<!DOCTYPE x>"),
    *('"', "'", "`", "=", "/>", "\0", "<\0p>", "\r", "\r\n", "\f", "\v", "\x01", "\x85", "\xa0", "\u2028", "\ufeff"),
    *(
        "\u200b",
        "\u0301",
        "\ufffd",
        "\ufdd0",
        "\U0001f468\u200d\U0001f469",
        "漢",
        "かな",
        "한글",
        "عربي",
        "ไทย",
        "İ",
        "ß",
    ),
)
_REFERENCES = (
    *("&amp;", "&amp", "&ampx", "&lt", "&lt;p&gt;", "&nbsp", "&notit;", "&notin;", "&CounterClockwiseContourIntegral;"),
    *(
        "&#65",
        "&#65;",
        "&#x41",
        "&#X41;",
        "&#0;",
        "&#128;",
        "&#xD83D;&#xDE00;",
        "&#55357;",
        "&#1114112;",
        "&#x;",
        "&#;",
    ),
    *("&nosuch;", "&", "&;", "&#99999999999999999999;", "&copy=x", "&fjlig;", "&NotEqualTilde;", "&acE;", "&#13;"),
)
_ATTRIBUTES = (
    *(' class="sidebar nav"', " class=content", ' id="comments"', " hidden", ' aria-hidden="true"', " role=main"),
    *(' style="display:none"', " itemprop=articleBody", ' title="a>b"', " title='a\"b'", " x=&quot;", " a=1 a=2", " ="),
    *(' class="', " class='", " / / ", "\t\n", ' data-x="<p>"', ' CLASS="FOOTER"', " class=a\0b", ' class="&amp;nav"'),
)
_CHARSETS = ("utf-8", "windows-1252", "iso-8859-15", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr", "koi8-r")
_WIDE = ("utf-16-le", "utf-16-be", "utf-16", "utf-8-sig", "iso-2022-jp")
_CHARSET = re.compile(r"(charset\s*=\s*[\"']?)[\w-]+", re.IGNORECASE)


def mutated(page: str, random: Random) -> str:
    """The page with one to four mutations, one after the other."""
    for mutation in random.choices(MUTATIONS, k=random.randint(1, MOST_MUTATIONS)):
        page = mutation(page, random)
    return page


def as_bytes(page: str, random: Random) -> bytes:
    """The page in some charset, declared or not, with a few broken bytes in one of three."""
    charset = random.choice((*_CHARSETS, *_WIDE))
    declared = random.choice((charset, *_CHARSETS))
    sent = _CHARSET.sub(rf"\g<1>{declared}", page, count=1).encode(charset, "replace")
    for _ in range(random.choice((0, 0, random.randint(1, 5)))):
        where = random.randrange(len(sent) + 1)
        sent = sent[:where] + random.randbytes(random.randint(1, 3)) + sent[where:]
    return sent


def _cut(page: str, random: Random) -> str:
    """Cut off: a transfer that broke."""
    return page[: _place(page, random)]


def _without_piece(page: str, random: Random) -> str:
    start, end = _piece(page, random)
    return page[:start] + page[end:]


def _with_piece_again(page: str, random: Random) -> str:
    (start, end), where = _piece(page, random), _place(page, random)
    return page[:where] + page[start:end] + page[where:]


def _without_tag(page: str, random: Random) -> str:
    return _at_match(_TAG, page, random, lambda tag: "")


def _with_cut_tag(page: str, random: Random) -> str:
    return _at_match(_TAG, page, random, lambda tag: tag[: random.randrange(len(tag))])


def _in_other_case(page: str, random: Random) -> str:
    return _at_match(_TAG, page, random, str.swapcase)


def _without_quotes(page: str, random: Random) -> str:
    return _at_match(_ATTRIBUTE, page, random, lambda value: value.replace('"', "").replace("'", ""))


def _with_half_a_quote(page: str, random: Random) -> str:
    return _at_match(_ATTRIBUTE, page, random, lambda value: value[:-1])


def _with_other_name(page: str, random: Random) -> str:
    name = random.choice(_NAMES)
    return _at_match(_TAG, page, random, lambda tag: re.sub(r"(?<=[</])[a-zA-Z][\w-]*", name, tag, count=1))


def _with_attribute(page: str, random: Random) -> str:
    added = random.choice(_ATTRIBUTES)
    return _at_match(_TAG, page, random, lambda tag: f"{tag[:-1]}{added}>")


def _with_tag(page: str, random: Random) -> str:
    end = random.choice(("", "/"))
    return _inserted(page, f"<{end}{random.choice(_NAMES)}{random.choice(('', *_ATTRIBUTES))}>", random)


def _with_mark(page: str, random: Random) -> str:
    return _inserted(page, random.choice(_MARKS) * random.choice((1, 1, 1, 7)), random)


def _with_reference(page: str, random: Random) -> str:
    return _at_match(_WORD, page, random, lambda word: word[:1] + random.choice(_REFERENCES) + word[1:])


def _with_raw_text(page: str, random: Random) -> str:
    """An element that holds no markup, around a piece, or never closed, or never opened."""
    name, (start, end) = random.choice(_RAW), _piece(page, random)
    opening, closing = random.choice(((f"<{name}>", f"</{name}>"), (f"<{name}>", ""), ("", f"</{name} x>")))
    return page[:start] + opening + page[start:end] + closing + page[end:]


def _with_nesting(page: str, random: Random) -> str:
    name = random.choice(_NAMES)
    return _inserted(page, f"<{random.choice(('', '/'))}{name}>" * random.randint(2, MOST_REPEATED), random)


def _in_a_comment(page: str, random: Random) -> str:
    start, end = _piece(page, random)
    return f"{page[:start]}<!--{page[start:end]}{random.choice(('-->', '--!>', '->', ''))}{page[end:]}"


MUTATIONS: Sequence[Mutation] = (
    _cut,
    _without_piece,
    _with_piece_again,
    _without_tag,
    _with_cut_tag,
    _in_other_case,
    _without_quotes,
    _with_half_a_quote,
    _with_other_name,
    _with_attribute,
    _with_tag,
    _with_mark,
    _with_reference,
    _with_raw_text,
    _with_nesting,
    _in_a_comment,
)


def _place(page: str, random: Random) -> int:
    return random.randrange(len(page) + 1)


def _piece(page: str, random: Random) -> tuple[int, int]:
    """Where a piece begins and ends, mostly a short one."""
    start = _place(page, random)
    return start, min(len(page), start + int(random.expovariate(1 / 200)))


def _inserted(page: str, added: str, random: Random) -> str:
    where = _place(page, random)
    return page[:where] + added + page[where:]


def _at_match(pattern: re.Pattern[str], page: str, random: Random, change: Callable[[str], str]) -> str:
    """The page with the first match behind a random place changed; as it is where there is none."""
    found = pattern.search(page, _place(page, random))
    return page[: found.start()] + change(found[0]) + page[found.end() :] if found else page
