"""The same article in other surroundings: does the default recognise it, and does it take no other article for it?

The articles are real (of the bundled sample, or of --pages): what stands in their pages' main text, unlike each other.
Each is put into the frames of four made-up sites (`frames`), and into the other forms in which a site offers it
(`forms`: accelerated, for telephones, for printing, plain text). Then all is extracted:

    recall, precision   of the article's words among those extracted, with their counts; the mean over the framed pages
    same article        of the pairs of one article in two frames, those that the default's index would match
    same, other forms   of the pairs of a framed article and one of its other forms, likewise
    false pairs         pairs of different articles that it would match, of all pairs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from random import Random
from statistics import fmean

from benchmarks.extraction.contenders import LIMIT, contenders
from benchmarks.extraction.forms import FORMS, plain
from benchmarks.extraction.frames import FRAMES, Article, surroundings
from benchmarks.extraction.overlap import TOKEN
from benchmarks.report import markdown
from simhash.evaluation import MatchRule, SignatureTable, search, shingles_of
from simhash.reading.extract import extract_text
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from worker.evaluating.assessment import relation_of

LEAST_PARAGRAPH = 20
LEAST_ARTICLE = 500
UNLIKE = 0.3
"""Articles of a Jaccard similarity below it are unlike: of their sets of 5-token shingles, exactly."""
HEADER = ("", "recall", "precision", "same article", "same, other forms", "false pairs")


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs that the index would match, and how many there could be."""

    frames: int
    of_frames: int
    forms: int
    of_forms: int
    false: int


def compare(language: str, pages: Sequence[str], most: int, progress: Callable[[str], None]) -> str | None:
    """A table of all contenders over the articles of these pages, at most so many; None where there are not two."""
    articles = list(unlike(articles_of(pages), most))
    if len(articles) < 2:
        return None
    made = [page for number, each in enumerate(articles) for page in _made_pages(each, articles, Random(number))]
    rows = []
    with contenders(made, progress) as found:
        for name, go in found.items():
            if name != LIMIT:
                progress(f"{language}: {name}")
                rows.append(_row(name, articles, go().texts))
    return markdown(f"{language}: {len(articles)} articles in {len(FRAMES)} frames and 4 other forms", HEADER, rows)


def articles_of(pages: Sequence[str]) -> Iterator[Article]:
    """The articles of pages that have one: a line for the title, the longer ones for paragraphs."""
    for page in pages:
        lines = [" ".join(line.split()) for line in extract_text(page, "resiliparse-main").splitlines()]
        title = next((line for line in lines if line), "")
        paragraphs = [line for line in lines if len(line) >= LEAST_PARAGRAPH and line != title]
        if sum(map(len, paragraphs)) >= LEAST_ARTICLE:
            yield Article(title[:80], paragraphs)


def unlike(articles: Iterator[Article], most: int) -> Iterator[Article]:
    """The first of them that are nothing like those before."""
    taken: list[frozenset[int]] = []
    for article in articles:
        shingles = frozenset(shingles_of(article.text).tolist())
        if all(len(shingles & other) < UNLIKE * len(shingles | other) for other in taken):
            taken.append(shingles)
            yield article
        if len(taken) == most:
            return


def _made_pages(article: Article, every: Sequence[Article], random: Random) -> list[str]:
    around = surroundings(article, every, random)
    return [make(article, around) for make in (*FRAMES, *FORMS)]


def _row(name: str, articles: Sequence[Article], texts: Sequence[str]) -> list[str]:
    """A table's row for one extractor; of each article the framed pages come first, then the other forms."""
    made = len(FRAMES) + len(FORMS)
    groups = [texts[start : start + made] for start in range(0, len(texts), made)]
    shares = [
        _shares(Counter(_words(article.text)), Counter(_words(text)))
        for article, group in zip(articles, groups, strict=True)
        for text in group[: len(FRAMES)]
    ]
    recall, precision = (fmean(share[i] for share in shares) for i in (0, 1))
    found = matches([[*group, plain(article)] for article, group in zip(articles, groups, strict=True)])
    same = (f"{found.frames / found.of_frames:.3f}", f"{found.forms / found.of_forms:.3f}")
    return [name, f"{recall:.3f}", f"{precision:.3f}", *same, f"{found.false:,}"]


def _words(text: str) -> list[str]:
    """Words, or characters of Han and kana."""
    return TOKEN.findall(text.casefold())


def _shares(wanted: Counter[str], found: Counter[str]) -> tuple[float, float]:
    """Share of what is wanted that is found, and of what is found that is wanted."""
    common = (wanted & found).total()
    return common / wanted.total(), common / max(1, found.total())


def matches(groups: Sequence[Sequence[str]]) -> Matches:
    """What the default's index would match among texts: a group of each article, those from frames first."""
    size = len(groups[0])
    signatures = [DEFAULT.signature(text, b"") for group in groups for text in group]
    table = SignatureTable.of(signatures, DEFAULT.bits, DEFAULT.verifier_bits, DEFAULT.bands)
    pairs = search(table, [MatchRule.of(relation_of(DEFAULT, design("6")))]).found[0].page_pairs()
    same = [(a % size, b % size) for a, b in pairs if a // size == b // size]
    framed = range(len(FRAMES))
    within = sum(a in framed and b in framed for a, b in same)
    across = sum((a in framed) != (b in framed) for a, b in same)
    of_frames = len([*combinations(framed, 2)]) * len(groups)
    of_forms = len([*product(framed, range(len(FRAMES), size))]) * len(groups)
    return Matches(within, of_frames, across, of_forms, len(pairs) - len(same))
