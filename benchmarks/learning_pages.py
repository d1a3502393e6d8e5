"""Pages to learn from that nobody marked: real ones as the weights at hand read them, and articles in made-up frames.

The first keep what was learned once of kinds of pages that the marked ones do not have (manuals, laws). Of the second
the truth is known, in any language: the frames of `benchmarks.extraction`, and bare ones of a menu and some paragraphs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from random import Random
from typing import Any

from benchmarks.extraction.framed import articles_of, unlike
from benchmarks.extraction.frames import FRAMES, Article, Surroundings, surroundings
from simhash.reading import main_text

ARTICLES = 30
"""Of a language."""
TRIED = 12
"""So many pages are looked through for an article."""
BARE = 2
"""Of each article."""
MENU = ("Home", "News", "About us", "Contact", "Search", "Log in", "Archive", "Products", "Help", "Shop")
MENUS = (
    "<nav>{}</nav>",
    "<nav><ul>{}</ul></nav>",
    "<header>{}</header>",
    '<div class="menu">{}</div>',
    "<ul>{}</ul>",
    "",
)
BODIES = ("<main>{}</main>", "<article>{}</article>", '<div class="content">{}</div>', "<section>{}</section>", "{}")
ENDS = ("<footer>{}</footer>", '<div id="footer">{}</div>', "")
LAST_LINES = ("© 2026. All rights reserved.", "Imprint | Privacy | Terms", "Powered by a program")


def taught(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pages with what `main-text` takes of them today as their truth."""
    for row in rows:
        if row.get("html"):
            yield {**row, "main": main_text.read(row["html"].replace("\0", "").encode()).text}


def framed(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The articles of these pages (`html`, `lang`) in all frames; a frame is a site."""
    languages: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.get("html"):
            languages[row.get("lang") or ""].append(row["html"])
    for language, pages in sorted(languages.items()):
        Random(language).shuffle(pages)
        articles = [*unlike(articles_of(pages[: ARTICLES * TRIED]), ARTICLES)]
        for number, article in enumerate(articles):
            random = Random(number)
            around = surroundings(article, articles, random)
            for make in FRAMES:
                yield {"url": "", "site": make.__name__, "html": make(article, around), "main": article.text}
            yield from (_bare(article, around, random) for _ in range(BARE))


def _bare(article: Article, around: Surroundings, random: Random) -> dict[str, Any]:
    """What a page has at least: a menu perhaps, some paragraphs, and perhaps a line below."""
    words = random.sample((*MENU, *(title[:16] for title in around.headlines(6))), random.randint(1, 6))
    kind = random.choice(MENUS)
    link = '<li><a href="/{}">{}</a></li>' if "ul" in kind else '<a href="/{}">{}</a> '
    menu = kind.format("".join(link.format(number, escape(word)) for number, word in enumerate(words)))
    first = random.randrange(len(article.paragraphs))
    taken = article.paragraphs[first : first + random.randint(2, 5)]
    titles = [article.title] * random.randint(0, 1)
    parts = [*(f"<h1>{escape(title)}</h1>" for title in titles), *(f"<p>{escape(text)}</p>" for text in taken)]
    body = random.choice(BODIES).format("\n".join(parts))
    html = menu + body + random.choice(ENDS).format(random.choice(LAST_LINES))
    return {"url": "", "site": "bare", "html": html, "main": "\n".join((*titles, *taken))}
