"""One article in the other forms in which sites offer it: accelerated, for telephones, for printing, as plain text."""

from __future__ import annotations

import textwrap
from html import escape

from benchmarks.extraction.frames import Article, Frame, Surroundings

COLUMNS = 72


def amp(article: Article, around: Surroundings) -> str:
    """An accelerated page: its own elements, a sidebar, an advertisement between the paragraphs."""
    half = len(article.paragraphs) // 2
    parts = [f"<p>{escape(text)}</p>" for text in article.paragraphs]
    parts.insert(half, '<amp-ad width="300" height="250" type="x" data-slot="/1/2"><div placeholder>Ad</div></amp-ad>')
    menu = "".join(f'<li><a href="/amp/{n}">{title}</a></li>' for n, title in enumerate(around.headlines(6)))
    return f"""<!doctype html><html ⚡ lang="en"><head><meta charset="utf-8"><title>{escape(article.title)}</title>
<link rel="canonical" href="https://news.example/article"><style amp-boilerplate>body{{animation:-amp-start 8s}}</style>
<script async src="https://cdn.example/v0.js"></script></head><body><amp-sidebar id="menu" layout="nodisplay"><ul>{menu}
</ul></amp-sidebar><header class="amp-wp-header"><a href="/">News</a></header><article class="amp-wp-article">
<header class="amp-wp-article-header"><h1 class="amp-wp-title">{escape(article.title)}</h1></header>
<amp-img src="/a.jpg" width="640" height="360" alt="a picture"></amp-img><div class="amp-wp-article-content">
{"".join(parts)}</div></article><amp-consent id="consent" layout="nodisplay"><div>We and our partners store cookies.
<button on="tap:consent.accept">OK</button></div></amp-consent><footer class="amp-wp-footer">Back to top</footer></body>
</html>"""


def mobile(article: Article, around: Surroundings) -> str:
    """A site's pages for telephones: short markup, a bar that praises the app, the next stories below."""
    body = "".join(f'<div class="txt">{escape(text)}</div>' for text in article.paragraphs)
    stories = "".join(f'<a class="nxt" href="/m/{n}">{title}</a>' for n, title in enumerate(around.headlines(10)))
    return f"""<!doctype html><html><head><meta name="viewport" content="width=device-width"><title>m | {
        escape(article.title)
    }</title></head><body class="m"><div class="smartbanner">Read it in our app <a href="/app">Open</a></div>
<div class="hd"><a href="/m">News</a><a href="#mn">Menu</a></div><div id="st"><h1>{escape(article.title)}</h1>{
        body
    }</div>
<div class="more"><b>Next stories</b>{
        stories
    }</div><div class="ft"><a href="/?desktop=1">Full site</a></div></body></html>
"""


def printed(article: Article, around: Surroundings) -> str:
    """A page for printing: the article alone, and where it came from."""
    body = "".join(f"<p>{escape(text)}</p>" for text in article.paragraphs)
    return f"""<html><head><title>Print: {escape(article.title)}</title></head><body onload="window.print()">
<div class="np"><a href="javascript:window.print()">Print this page</a></div>
<h1>{escape(article.title)}</h1><hr>{body}<hr><small>Printed from https://news.example/article</small></body></html>"""


def plain(article: Article) -> str:
    """No markup at all: lines of 72 columns, as in a mail."""
    return "\n\n".join("\n".join(textwrap.wrap(text, COLUMNS)) for text in (article.title, *article.paragraphs))


FORMS: tuple[Frame, ...] = (amp, mobile, printed)
"""Those that an extractor has to read; `plain` is a text already."""
