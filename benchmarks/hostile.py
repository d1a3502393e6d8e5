"""Pages made to be slow, by family: what an extractor takes of each at three sizes, `python -m benchmarks.hostile`.

A family is a piece of markup that is repeated to a page of any size. Each is what some parser, or some step behind
one, is quadratic in, runs out of stack on, or takes far more memory for than it has bytes. A browser shows them all.

    times as long   what four times the bytes take, by processor time, at the second and at the third size: 4 is linear
    MiB             how much the largest page made the process grow, at its highest, beyond what the page itself takes

A family is told as slow when four times its bytes take eight times as long (16 would be a square); the tests of this
project only compare what comes out.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count, pairwise
from multiprocessing import TimeoutError as TookTooLong
from multiprocessing import get_context
from typing import NamedTuple

import click

from benchmarks.report import markdown, shown
from simhash.errors import PageError
from simhash.reading.extract import EXTRACTORS, extract_text

Family = Callable[[int], str]
"""A page of about so many characters."""

SIZES = (655_360, 2_621_440, 10_485_760)
"""Characters; the largest is the largest page that a worker takes by default."""
SLOW = 8.0
TOO_SHORT_SECONDS = 0.02
"""Below it a time says nothing about growth."""


def repeated(piece: str, before: str = "", after: str = "") -> Family:
    """The piece over and over."""
    return lambda size: before + piece * max(1, (size - len(before) - len(after)) // len(piece)) + after


def numbered(piece: str, before: str = "", after: str = "") -> Family:
    """The same with a number in each, which `#` stands for: no two are alike."""

    def made(size: int) -> str:
        parts, left = [before], size - len(before) - len(after)
        for number in count():
            part = piece.replace("#", str(number))
            left -= len(part)
            if left < 0 and number:
                return "".join((*parts, after))
            parts.append(part)
        raise AssertionError

    return made


def halves(opening: str, closing: str) -> Family:
    """All of the one, then all of the other."""
    return lambda size: (many := max(1, size // (len(opening) + len(closing)))) * opening + closing * many


def combs(opening: str, inner: str, closing: str, depth: int = 900) -> Family:
    """As deep as many guards allow, over and over."""
    return repeated(opening * depth + inner + closing * depth)


def deep(leaf: str) -> Family:
    """Half the page opens elements, the other half is leaves inside them."""
    return lambda size: "<div>" * (size // 10) + leaf * max(1, size // 2 // len(leaf))


_NESTED = (
    *("a", "abbr", "article", "aside", "b", "blockquote", "button", "center", "code", "dd", "details", "dir", "div"),
    *("dl", "em", "fieldset", "figure", "font", "footer", "form", "h1", "h6", "header", "i", "label", "li", "main"),
    *("marquee", "math", "nav", "nobr", "object", "ol", "p", "pre", "q", "ruby", "s", "section", "select", "small"),
    *("span", "strong", "sub", "summary", "svg", "table", "tbody", "td", "template", "tr", "tt", "u", "ul", "x-y"),
)
_SENTENCE = "The council met on Tuesday and put off the vote, after a long debate, until the spring. "
_HAN = "委员会星期二开会，经过长时间的讨论，决定把表决推迟到春天。"


def _nesting() -> Iterator[tuple[str, Family]]:
    for name in _NESTED:
        yield f"<{name}> never closed", repeated(f"<{name}>")
    for name in ("a", "b", "div", "li", "p", "span", "td", "table"):
        yield f"<{name}> never closed, with words", repeated(f"<{name}>word ")
    for name in ("b", "div", "font", "li", "section", "svg", "table", "ul"):
        yield f"<{name}>, all opened and then all closed", halves(f"<{name}>", f"</{name}>")


_MISNESTED: dict[str, Family] = {
    "lists in lists": repeated("<ul><li>"),
    "lists of a letter in lists": repeated("<ul>x"),
    "tables in tables": repeated("<table><tr><td>"),
    "groups in svg": repeated("<g>", "<svg>"),
    "html inside svg inside html": repeated("<svg><foreignObject><div>"),
    "math inside html inside math": repeated("<math><mtext><p>"),
    "cells inside svg, where they nest": repeated("<td>", "<svg>"),
    "style inside svg, where it holds markup": repeated("<style><g></style>", "<svg>"),
    "links around blocks": repeated("<a><div>"),
    "links in links": repeated("<a href=x>y"),
    "forms around blocks": repeated("<form><div></form>"),
    "bold around blocks, closed wrongly": repeated("<b><div>x</b>y"),
    "bold around paragraphs, closed wrongly": repeated("<b><p>x</b>y"),
    "bold and italics crossed": repeated("<b><i>x</b>y</i>"),
    "a thousand bold, then blocks, then the ends": lambda size: (
        "<b>" * 1000 + "<div>" * max(1, size // 10) + "</b>" * 1000
    ),
    "a thousand fonts, then paragraphs": repeated("</p><p>x", "<p>" + "<font size=1>" * 1000),
    "a font in each paragraph": repeated("<p><font size=1>x"),
    "fonts that all differ": numbered("<p><font color=#>x"),
    "bold with attributes that all differ": numbered("<b a#>x"),
    "bold and italics in each paragraph": repeated("<p><b><i>x</p>"),
    "nobr in nobr": repeated("<nobr>x"),
    "headings in headings": repeated("<h1>x<h2>y"),
    "buttons in buttons": repeated("<button>x<p>"),
    "definitions never closed": repeated("<dt>x<dd>y", "<dl>"),
    "items never closed": repeated("<li>x", "<ul>"),
    "cells never closed": repeated("<tr><td>x<td>y", "<table>"),
    "options never closed": repeated("<option>x", "<select>"),
    "options closed": repeated("<option>x</option>", "<select>"),
    "groups of options": repeated("<optgroup><option>x", "<select>"),
    "selects with one option": repeated("<select><option>x</select>"),
    "words between rows": repeated("word <tr>", "<table>"),
    "bold between rows": repeated("<b>x<tr>", "<table>"),
    "paragraphs between rows": repeated("<p>x<tr>", "<table>"),
    "tables between rows": repeated("<table>x<tr>", "<table>"),
    "captions and columns": repeated("<caption>x<col><colgroup>", "<table>"),
    "frames": repeated("<frameset><frame>"),
    "bodies": repeated("<body class=x>y"),
    "heads and bodies": repeated("<html><head><body>"),
    "ends of body": repeated("</body>x"),
    "ends that match nothing": repeated("</x>"),
    "ends that match nothing, inside a deep page": deep("</x>"),
    "ends of paragraphs that were not open": repeated("</p>"),
    "ends of breaks": repeated("</br>x"),
    "ends of all headings": repeated("</h1></h2>x", "<h1>"),
    "leaves inside a deep page": deep("<b>x</b>"),
    "paragraphs inside a deep page": deep("<p>x"),
    "breaks inside a deep page": deep("x<br>"),
    "combs of blocks": combs("<div>", "x", "</div>"),
    "combs of lists": combs("<ul><li>", "x", "</ul>"),
    "combs of tables": combs("<table><tr><td>", "x", "</table>"),
    "blocks that end themselves, and do not": repeated("<div/>"),
    "elements that end themselves in svg": repeated("<path/>", "<svg>"),
    "void elements": repeated("<img><input><wbr>"),
    "templates with cells": repeated("<template><td>x</template>"),
    "menus in mains in menus": repeated("<nav>x<main>y"),
    "articles and asides in turn": repeated("<article>x<aside>y"),
    "ruby": repeated("<ruby>漢<rp>(<rt>kan<rp>)</ruby>"),
}
_ATTRIBUTES: dict[str, Family] = {
    "attributes of one tag": numbered(" a#=1", "<div", ">x"),
    "attributes of one end tag": numbered(" a#=1", "<div></div", ">x"),
    "attributes of one script": numbered(" a#=1", "<script", "></script>x"),
    "the same attribute": repeated(" a=1", "<div", ">x"),
    "attributes without spaces": repeated("a/", "<div ", ">x"),
    "attributes of a tag that never ends": repeated("<a "),
    "attributes gathered by one body": numbered("<body a#=1>"),
    "attributes gathered by one html": numbered("<html a#=1>"),
    "tags of a hundred attributes": repeated("<p" + "".join(f" a{n}=1" for n in range(100)) + ">x"),
    "names of tags that all differ": numbered("<x#>y</x#>"),
    "names of attributes that all differ": numbered("<p a#>x"),
    "classes that all differ": numbered("<p class=c#>x"),
    "identities that all differ": numbered('<p id="i#">x'),
    "one class of many words": repeated("content ", '<div class="', '">x</div>'),
    "one class of one word": repeated("content", '<div class="', '">x</div>'),
    "classes of fifty words": repeated(f'<p class="{"sidebar nav post " * 17}">x</p>'),
    "one value": repeated("x", '<div title="', '">x'),
    "one value without quotes": repeated("x", "<div title=", ">x"),
    "one value full of entities": repeated("&amp;", '<div title="', '">x'),
    "values full of entities": repeated('<p title="&lt;&gt;&amp;">x'),
    "one style": repeated("color:red;", '<div style="', '">x'),
    "hidden by styles": repeated('<div style="display:none">x'),
    "hidden by attributes": repeated("<div hidden aria-hidden=true>x"),
    "a value that never ends": repeated("<p>x ", '<div title="'),
    "a value that never ends, in single quotes": repeated("<p>x ", "<div title='"),
    "values with angles": repeated("<a title='>' href=\"x>y\">z</a>"),
    "quotes without values": repeated("<p \"'>x"),
    "signs": repeated("=", "<a ", ">"),
    "signs and quotes": repeated("=\"'", "<a ", ">"),
    "slashes": repeated("/", "<div ", ">"),
    "white space in a tag": repeated(" ", "<a", ">"),
    "slashes and white space": repeated(" /", "<a", ">"),
    "slashes without an end": repeated("/", "<a "),
    "white space behind a name": repeated(" ", "<a x", "=1>"),
    "white space behind a sign": repeated(" ", "<a x=", ">"),
    "white space in a quote without an end": repeated(" ", "<a x='"),
    "white space in an end tag": repeated(" ", "</a", ">"),
    "attributes between slashes": repeated("/x", "<a", ">"),
    "a name of a tag": repeated("x", "<", ">"),
    "a name of an end tag": repeated("x", "</", ">"),
    "a name of an attribute": repeated("x", "<a ", ">"),
    "an address": repeated("/a", "<a href='", "'>x</a>"),
}
_TEXT: dict[str, Family] = {
    "one word": repeated("x"),
    "words": repeated("word "),
    "sentences": repeated(_SENTENCE),
    "sentences in paragraphs": repeated(f"<p>{_SENTENCE}</p>"),
    "sentences in divisions": repeated(f"<div>{_SENTENCE}"),
    "sentences between breaks": repeated(f"{_SENTENCE}<br>"),
    "sentences in cells": repeated(f"<td>{_SENTENCE}</td>", "<table><tr>"),
    "sentences in one preformatted text": repeated(_SENTENCE + "\n", "<pre>"),
    "Han": repeated(_HAN),
    "Han in paragraphs": repeated(f"<p>{_HAN}</p>"),
    "Arabic in paragraphs": repeated("<p>اجتمع المجلس يوم الثلاثاء وأجل التصويت إلى الربيع.</p>"),
    "Thai without a space": repeated("สภาประชุมเมื่อวันอังคาร"),
    "emoji": repeated("\U0001f600"),
    "combining marks": repeated("e\u0301"),
    "zero width": repeated("\u200b"),
    "no-break spaces": repeated("\xa0"),
    "spaces": repeated(" "),
    "line breaks": repeated("\n"),
    "carriage returns": repeated("\r"),
    "form feeds and tabs": repeated("\f\t"),
    "NUL": repeated("\0"),
    "NUL between letters": repeated("x\0"),
    "control characters": repeated("\x01\x0b\x7f"),
    "full stops": repeated("."),
    "punctuation": repeated("?!,;:"),
    "digits": repeated("0123456789"),
    "entities": repeated("&amp;"),
    "entities without semicolons": repeated("&amp "),
    "entities run together": repeated("&ampx"),
    "entities of no name": repeated("&nosuch;"),
    "entities with the longest name": repeated("&CounterClockwiseContourIntegral;"),
    "beginnings of the longest name": repeated("&CounterClockwiseContourIntegra"),
    "entities by number": repeated("&#65;"),
    "entities by hexadecimal number": repeated("&#x1F600;"),
    "entities of halves": repeated("&#xD83D;&#xDE00;"),
    "entities beyond all characters": repeated("&#x110000;"),
    "an entity of many digits": repeated("0", "&#", "65;"),
    "an entity of many letters": repeated("a", "&", ";"),
    "ampersands": repeated("&"),
    "ampersands and numbers that begin": repeated("&#"),
    "angles": repeated("<"),
    "angles to the right": repeated(">"),
    "angles and spaces": repeated("< "),
    "paragraphs never closed": repeated("<p>x"),
    "breaks": repeated("<br>"),
    "rules": repeated("<hr>x"),
    "spans of a letter": repeated("<span>x</span>"),
    "blocks of a letter": repeated('<div class="a">x</div>\n'),
    "links of a word": repeated('<li><a href="/x">word</a></li>\n', "<ul>"),
    "links within a paragraph": repeated('<a href="/x">word</a>, ', "<p>"),
    "blocks that speak for and against": repeated(f"<p class=content>{_SENTENCE}<p class=sidebar>x"),
    "titles": repeated("<title>x</title>"),
    "metas": repeated('<meta name="description" content="x">'),
    "canonical addresses": repeated('<link rel="canonical" href="/x">'),
    "bases": repeated('<base href="/x/">'),
    "images with other text": repeated('<img src="/x" alt="a picture of a house">'),
}
_RAW: dict[str, Family] = {
    "a comment": repeated("x", "<!--", "-->x"),
    "a comment that never ends": repeated("<div>", "<!--"),
    "comments": repeated("<!---->"),
    "comments that end early": repeated("<!-->x<!--->y"),
    "comments that end with a bang": repeated("<!--x--!>"),
    "comments in comments": repeated("<!-- "),
    "dashes in a comment": repeated("-", "<!--"),
    "dashes and bangs in a comment": repeated("--!", "<!--"),
    "comments for old browsers": repeated("<!--[if IE]><p>x</p><![endif]-->"),
    "declarations": repeated("<!DOCTYPE html>"),
    "one declaration": repeated("x", '<!DOCTYPE html PUBLIC "', '">x'),
    "instructions": repeated("<?x>"),
    "character data": repeated("<![CDATA[y]]>"),
    "character data in svg": repeated("<![CDATA[<p>]]>", "<svg>"),
    "character data that never ends": repeated("<p>", "<svg><![CDATA["),
    "ends of nothing": repeated("</>"),
    "ends of a space": repeated("</ >"),
    "tags that begin": repeated("</"),
    "declarations that begin": repeated("<!"),
    "a script": repeated("if (a<b) x = '<div>';", "<script>", "</script>x"),
    "a script that never ends": repeated("x = '<div>';", "<script>"),
    "scripts": repeated("<script>x</script>"),
    "ends of a script that do not come": repeated("</scrip", "<script>"),
    "ends of a script with another letter": repeated("</scriptx", "<script>"),
    "a script that is escaped": repeated("<!--", "<script>"),
    "a script that is escaped twice": repeated("<script>", "<script><!--"),
    "a script that is escaped twice, and ends": repeated("<script></script>", "<script><!--"),
    "dashes in an escaped script": repeated("-", "<script><!--"),
    "scripts escaped in turn": repeated("<script><!--<script></script>--></script>x"),
    "a style": repeated("<div>", "<style>", "</style>x"),
    "a style that never ends": repeated("p{}", "<style>"),
    "ends of a style that do not come": repeated("</styl", "<style>"),
    "a text area that never ends": repeated("<div>", "<textarea>"),
    "ends of a text area that do not come": repeated("</textare", "<textarea>"),
    "entities in a text area": repeated("&amp;", "<textarea>"),
    "a title that never ends": repeated("&lt;x", "<title>"),
    "frames within the page": repeated("<iframe><p>x</iframe>"),
    "a frame that never ends": repeated("<p>", "<iframe>"),
    "pages without scripts": repeated("<noscript><p>x</noscript>"),
    "pages without scripts, in each other": repeated("<noscript>x"),
    "pages without frames": repeated("<noframes><p>x"),
    "no embedding": repeated("<noembed><p>x"),
    "examples": repeated("<xmp><p>x</xmp>"),
    "listings": repeated("<listing>x"),
    "plain text": repeated("<p>x", "<plaintext>"),
    "templates": repeated("<template><p>x</template>"),
    "upper and lower case": repeated("<SCRIPT>x</sCrIpT><DIV>y</dIv>"),
}
FAMILIES: Mapping[str, Family] = {**dict(_nesting()), **_MISNESTED, **_ATTRIBUTES, **_TEXT, **_RAW}


class Cost(NamedTuple):
    """What a page took: processor seconds, and bytes by which the process grew; or why it was refused."""

    seconds: float
    grown: int
    refused: str = ""


def cost(extractor: str, family: str, size: int) -> Cost:
    """The cost of one page, in this process: the growth is right only for the first page of a process."""
    page = FAMILIES[family](size)
    before, began = _most_memory(), time.process_time()
    try:
        extract_text(page, extractor)
    except PageError as error:
        return Cost(time.process_time() - began, _most_memory() - before, str(error))
    return Cost(time.process_time() - began, _most_memory() - before)


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@click.command()
@click.option("--extractor", type=click.Choice([*EXTRACTORS]), default="resiliparse-main", show_default=True)
@click.option("--family", "families", type=click.Choice([*FAMILIES]), multiple=True, help="these alone (repeatable)")
@click.option("--seconds", default=60.0, show_default=True, help="a page that takes longer is given up")
def main(extractor: str, families: tuple[str, ...], seconds: float) -> None:
    """Extract each family at three sizes up to 10 MiB, each page in a process of its own."""
    extract_text("<p>x", extractor)  # what is loaded once is loaded here
    rows, slow, refused = [], 0, 0
    for family in families or FAMILIES:
        costs = [_in_child(extractor, family, size, seconds) for size in SIZES]
        ratios = [_ratio(*pair) for pair in pairwise(costs)]
        slow += any(ratio is not None and ratio >= SLOW for ratio in ratios) or any(c is None for c in costs)
        refused += any(c is not None and bool(c.refused) for c in costs)
        rows.append(
            [family, *(_shown(c) for c in costs), *(f"{r:.1f}" if r else "" for r in ratios), _memory(costs[-1])]
        )
        print("  ".join(rows[-1]), flush=True)
    header = ("", *(f"{size / 1048576:.3g} MiB" for size in SIZES), "times as long", "times as long", "MiB")
    print(markdown(f"{extractor}: {len(rows)} families, {slow} slow, {refused} refused", header, rows))


def _in_child(extractor: str, family: str, size: int, seconds: float) -> Cost | None:
    """The cost; None when it took too long or ended the process."""
    with get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(cost, (extractor, family, size)).get(seconds)
        except TookTooLong:  # or the process was killed, for its memory: then nothing comes either
            return None


def _ratio(less: Cost | None, more: Cost | None) -> float | None:
    if less is None or more is None or more.seconds < TOO_SHORT_SECONDS:
        return None
    return more.seconds / max(less.seconds, TOO_SHORT_SECONDS / 4)


def _shown(found: Cost | None) -> str:
    if found is None:
        return "given up"
    return f"{shown(1000 * found.seconds)} ms{', refused' if found.refused else ''}"


def _memory(found: Cost | None) -> str:
    return "" if found is None else f"{found.grown / 1048576:,.0f}"


if __name__ == "__main__":
    main()
