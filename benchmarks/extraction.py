"""Extractors beside each other, in quality and in cost: `python -m benchmarks.extraction`.

The articles are real (of the bundled sample, or of --pages): what stands in their pages' main text, unlike each other.
Each is put into the frames of four made-up sites (`frames`), and then extracted:

    recall, precision   of the article's words among those extracted, with their counts; the mean over all pages
    same article        of the pairs of one article in two frames, those that the default's index would match
    false pairs         pairs of different articles that it would match, of all pairs
    pages/s             one process, by processor time, over the pages as they come, without frames
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import mean

import click

from benchmarks.frames import FRAMES, Article, surroundings
from benchmarks.report import markdown
from benchmarks.samples import SAMPLE, read_pages
from simhash.evaluation import Rule, SignatureTable, search
from simhash.reading.extract import EXTRACTORS, extract_text
from simhash.relation.hamming import distance
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT, Signature
from worker.evaluating.assessment import relation_of

TOKEN = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3005-\u30ff\u3400-\u9fff]+")
LEAST_PARAGRAPH = 20
LEAST_ARTICLE = 500
UNLIKE_BITS = 45
"""Articles whose verifiers differ in as many bits have a Jaccard similarity below 0.3."""
ARTICLES = 60


@click.command()
@click.option("--pages", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=SAMPLE)
@click.option("--articles", default=ARTICLES, help="how many of each language")
def main(pages: Path, articles: int) -> None:
    """Compare extractors on real articles in made-up frames, and their cost on pages as they come."""
    found = [page for page in read_pages(pages) if "html" in page]
    for language in sorted({page["lang"] for page in found}):
        of_language = [page["html"] for page in found if page["lang"] == language]
        chosen = list(unlike(articles_of(of_language), articles))
        if len(chosen) > 1:
            framed = [
                [frame(each, surroundings(each, chosen, Random(n))) for frame in FRAMES]
                for n, each in enumerate(chosen)
            ]
            rows = [row(name, chosen, framed, of_language) for name in EXTRACTORS if name != "none"]
            header = ("", "recall", "precision", "same article", "false pairs", "pages/s")
            print(markdown(f"{language}: {len(chosen)} articles in {len(FRAMES)} frames", header, rows), flush=True)


def articles_of(pages: Sequence[str]) -> Iterator[Article]:
    """The articles of pages that have one: a line for the title, the longer ones for paragraphs."""
    for page in pages:
        lines = [" ".join(line.split()) for line in extract_text(page).splitlines()]
        title = next((line for line in lines if line), "")
        paragraphs = [line for line in lines if len(line) >= LEAST_PARAGRAPH and line != title]
        if sum(map(len, paragraphs)) >= LEAST_ARTICLE:
            yield Article(title[:80], paragraphs)


def unlike(articles: Iterator[Article], most: int) -> Iterator[Article]:
    """The first of them that are nothing like those before."""
    taken: list[int] = []
    for article in articles:
        signature = DEFAULT.signature(article.text, b"")
        verifier = (signature.verifier or 0) >> 32 * DEFAULT.bands
        if all(distance(verifier, other, DEFAULT.verifier_bits) >= UNLIKE_BITS for other in taken):
            taken.append(verifier)
            yield article
        if len(taken) == most:
            return


def row(name: str, articles: Sequence[Article], framed: Sequence[Sequence[str]], pages: Sequence[str]) -> list[str]:
    """A table's row for one extractor."""
    texts = [[extract_text(page, name) for page in of_article] for of_article in framed]
    shares = [
        overlap(Counter(words(article.text)), Counter(words(text)))
        for article, of_article in zip(articles, texts, strict=True)
        for text in of_article
    ]
    same, false, pairs = matches([[DEFAULT.signature(text, b"") for text in of_article] for of_article in texts])
    rate = len(pages) / processor_seconds(lambda: [extract_text(page, name) for page in pages])
    recall, precision = (mean(share[i] for share in shares) for i in (0, 1))
    return [name, f"{recall:.3f}", f"{precision:.3f}", f"{same / pairs:.3f}", f"{false:,}", f"{rate:,.0f}"]


def words(text: str) -> list[str]:
    """Words, or characters of Han and kana."""
    return TOKEN.findall(text.casefold())


def overlap(wanted: Counter[str], found: Counter[str]) -> tuple[float, float]:
    """Share of what is wanted that is found, and of what is found that is wanted."""
    common = (wanted & found).total()
    return common / wanted.total(), common / max(1, found.total())


def matches(signatures: Sequence[Sequence[Signature]]) -> tuple[int, int, int]:
    """Pairs of one article that match, pairs of two that match, pairs of one article."""
    owner = [number for number, of_article in enumerate(signatures) for _ in of_article]
    every = [signature for of_article in signatures for signature in of_article]
    table = SignatureTable.of(every, DEFAULT.bits, DEFAULT.verifier_bits, DEFAULT.bands)
    found = search(table, [Rule.of(relation_of(DEFAULT, design("6")))]).found[0]
    matched = found.page_pairs()
    same = sum(owner[a] == owner[b] for a, b in matched)
    pairs = sum(len(list(combinations(of_article, 2))) for of_article in signatures)
    return same, len(matched) - same, pairs


def processor_seconds(work: Callable[[], object]) -> float:
    """What the work takes of the processor."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
