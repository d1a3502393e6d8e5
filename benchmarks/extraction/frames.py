"""One article in the frames of four made-up sites: what an extractor has to see through.

Each site has its own markup and its own standing text; around the article stand things that change with every page
(headlines, teasers and comments, taken from other articles). The frame has about as much text as the article.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from random import Random


@dataclass(frozen=True)
class Article:
    """A headline and paragraphs."""

    title: str
    paragraphs: Sequence[str]

    @property
    def text(self) -> str:
        """What an extractor should find."""
        return "\n".join((self.title, *self.paragraphs))


@dataclass(frozen=True)
class Surroundings:
    """What changes from page to page: the other articles of the site, in this page's order."""

    others: Sequence[Article]

    def headlines(self, count: int) -> list[str]:
        """Titles of others."""
        return [escape(other.title) for other in self.others[:count]]

    def teasers(self, count: int, characters: int) -> list[str]:
        """How others begin."""
        return [escape(other.paragraphs[0][:characters]) + "…" for other in self.others[-count:]]


Frame = Callable[[Article, Surroundings], str]


def surroundings(article: Article, every: Sequence[Article], random: Random) -> Surroundings:
    """Twenty others, at random."""
    others = [other for other in every if other is not article]
    return Surroundings(random.sample(others, min(20, len(others))))


def blog(article: Article, around: Surroundings) -> str:
    """The elements that HTML 5 has for it."""
    body = "".join(f"<p>{escape(text)}</p>\n" for text in article.paragraphs)
    recent = "".join(f'<li><a href="/{n}">{title}</a></li>' for n, title in enumerate(around.headlines(12)))
    return f"""<!doctype html><html><head><title>{escape(article.title)} | Notes from the road</title></head><body>
<header><nav><ul><li><a href="/">Home</a></li><li><a href="/archive">Archive</a></li><li><a href="/about">About me</a>
</li></ul></nav></header><main><article><h1>{escape(article.title)}</h1>\n{body}</article></main>
<aside><h2>Recent entries</h2><ul>{recent}</ul></aside><footer><p>Written by one person. Licensed as you like.</p>
</footer></body></html>"""


def portal(article: Article, around: Surroundings) -> str:
    """Nested <div> with telling class names; teasers beside the article and in the middle of it."""
    half = len(article.paragraphs) // 2
    parts = [f'<div class="article-body__text">{escape(text)}</div>' for text in article.paragraphs]
    parts.insert(half, '<div class="ad-slot"><span>Advertisement</span><a href="/ad">Compare prices now</a></div>')
    teasers = "".join(
        f'<div class="teaser"><a class="teaser__link" href="/t/{n}"><h3>{title}</h3><div>{text}</div></a></div>'
        for n, (title, text) in enumerate(zip(around.headlines(8), around.teasers(8, 160), strict=False))
    )
    links = "".join(f'<a href="/c/{n}">{name}</a> ' for n, name in enumerate(("World", "Sport", "Money", "Weather")))
    return f"""<html><head><title>The Daily Portal: {escape(article.title)}</title></head><body><div id="page">
<div class="cookie-banner">We value your privacy. <button>Accept all</button></div><div class="topnav">{links}</div>
<div class="content"><div class="article-header"><h1 class="headline">{escape(article.title)}</h1></div>
<div class="article-body">{"".join(parts)}</div></div><div class="sidebar most-read"><h2>Most read</h2>{teasers}
</div><div class="footer">© The Daily Portal. All rights reserved. Imprint. Terms of use. Privacy.</div></div></body>
</html>"""


def table(article: Article, around: Surroundings) -> str:
    """As pages were made before style sheets: three columns of a table, paragraphs by <br>."""
    body = "<br><br>".join(map(escape, article.paragraphs))
    left = "<br>".join(f'<a href="{n}.htm">{title}</a>' for n, title in enumerate(around.headlines(15)))
    right = "<hr>".join(around.teasers(4, 120))
    return f"""<HTML><HEAD><TITLE>{escape(article.title)}</TITLE></HEAD><BODY BGCOLOR=white><TABLE WIDTH="100%"><TR>
<TD WIDTH=150 VALIGN=top>{left}</TD><TD VALIGN=top><FONT SIZE=5><B>{escape(article.title)}</B></FONT><BR><BR>{body}</TD>
<TD WIDTH=150 VALIGN=top><B>News</B><BR>{right}</TD></TR></TABLE><CENTER>You are visitor no. 102,394</CENTER></BODY>
</HTML>"""


def forum(article: Article, around: Surroundings) -> str:
    """The article as a first post, with comments below that are about something else."""
    body = "".join(f"<p>{escape(text)}</p>" for text in article.paragraphs)
    comments = "".join(
        f'<div class="comment"><div class="meta">user{n} wrote 2 hours ago</div><p>{text}</p>'
        '<a href="#">Reply</a></div>'
        for n, text in enumerate(around.teasers(6, 200))
    )
    return f"""<html><head><title>{escape(article.title)} - Board</title></head><body><div id="nav">
<a href="/">Forum</a><a href="/faq">FAQ</a><a href="/search">Search</a><a href="/login">Log in</a></div>
<div id="content"><div class="post">
<h2>{escape(article.title)}</h2><div class="post-content">{body}</div></div><div id="comments"><h3>Comments</h3>
{comments}</div></div><div id="footer">Powered by a board. All times are UTC.</div></body></html>"""


FRAMES: tuple[Frame, ...] = (blog, portal, table, forum)
