"""Learns which blocks are main content, from pages marked by hand: `python -m benchmarks.learn_main_text PAGES…`.

Pages are JSONL (.zst) of `url`, `html` and `main`, the text that people marked; `set` = "test" keeps a page out. The
label of a block is the share of its words that stand in the marked text, in the same order. A block weighs what its
words do among those of its page; a page of a kind (`page_type`) that is rare in the files, and one of the first file,
weighs more. The first look is learned twice more, on half of the sites each: so the second look
learns from answers of a first one that had not seen the page. Pages that nobody marked may stand beside them
(`learning_pages`). The weights go to `simhash/reading/main_text.json`, with the names of the files and their counts. It
needs CatBoost: `pip install catboost==1.2.10`.

--folds K says what to expect: K parts of the sites are each scored by what was learned from the others. Precision and
recall are of 4-grams of words with their counts, as in Scrapinghub's article-extraction benchmark (2020).
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

import click
import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks import learning_pages
from simhash.reading import block_features, main_text
from simhash.reading.html_blocks import Blocks, read_blocks

OUT = Path(main_text.__file__).with_name("main_text.json")
WORD = re.compile(r"\w+")
ALIGNED_EXACTLY = 30_000_000
"""Words of a page times words of its truth, up to which the alignment is exact."""
LEAST_COVERED = 0.85
"""A page whose truth is not in its blocks says nothing of blocks."""
OF_FIRST_FILE, OF_TAUGHT, OF_FRAMED = 4.0, 2.0, 0.5
"""What a page weighs of the first file, the one that --folds scores; of --taught; of --framed."""
OF_TYPE = {"forum": 2.0, "product": 2.5, "service": 2.0, "documentation": 1.5, "collection": 1.5, "listing": 1.5}
MOST_OTHER = 6.0
"""What is not content weighs at most so many times what is: a page of a hundred comments would outweigh all others."""
NUMBERS = (*block_features.NAMES, *block_features.SECOND_NAMES)
TREES, DEPTH, RATE, BORDERS = 160, 5, 0.12, 48
THINNED = 4
LEAF_SCALE = 1024
VERSION = 5
SEED = 1
SEEDS = (1, 2)
"""Of the trees: a look is the mean of what is learned by each."""


FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@dataclass
class Page:
    """A marked page.

    Attributes:
        table: its features, (features, blocks); `second` those of the second look.
        words, hits: of each block its words, and those of them that are marked.
        wanted: words that are marked.
        weight: how much it counts beside other pages.
    """

    site: str
    main: str
    blocks: Blocks
    table: NDArray[np.int64]
    words: NDArray[np.int64]
    hits: NDArray[np.int64]
    wanted: int
    weight: float
    second: NDArray[np.int64] | None = None

    @property
    def is_covered(self) -> bool:
        return int(self.hits.sum()) >= LEAST_COVERED * self.wanted


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file, compressed or not."""
    with path.open("rb") as file:
        stream = (
            zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(file) if path.suffix == ".zst" else file
        )
        yield from map(json.loads, io.TextIOWrapper(stream, encoding="utf-8"))


def marked(row: dict[str, Any], weight: float) -> Page | None:
    """A row as a page, that weighs so much times what its type does; None without text or truth."""
    blocks = read_blocks(row["html"].replace("\0", "").encode(), main_text.words())
    if not blocks.texts or blocks.is_large or not row.get("main"):
        return None
    words, hits, wanted = labels(blocks.texts, row["main"])
    site = row.get("site") or urlsplit(row["url"]).netloc.removeprefix("www.")
    weight *= OF_TYPE.get(row.get("page_type") or "", 1.0)
    return Page(
        site, row["main"], blocks, block_features.table(block_features.PageBlocks(blocks)), words, hits, wanted, weight
    )


def labels(texts: Sequence[str], main: str) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Of each block its words and how many of them are aligned with the truth; and the truth's words."""
    found = [WORD.findall(text) for text in texts]
    every, wanted = [word for words in found for word in words], WORD.findall(main)
    owners = np.repeat(np.arange(len(texts)), [len(words) for words in found])
    is_long = len(every) * len(wanted) > ALIGNED_EXACTLY
    hit = np.zeros(len(every), dtype=np.int64)
    for _, at, count in SequenceMatcher(None, wanted, every, autojunk=is_long).get_matching_blocks():
        hit[at : at + count] = 1
    counts = np.bincount(owners, minlength=len(texts))
    return counts, np.bincount(owners, weights=hit, minlength=len(texts)).astype(np.int64), len(wanted)


def learn(pages: Sequence[Page]) -> tuple[main_text.Look, main_text.Look]:
    """Both looks."""
    sites = sorted({page.site for page in pages})
    half = dict(zip(np.random.default_rng(SEED).permutation(sites), range(len(sites)), strict=True))
    for part in (0, 1):
        look = averaged([page for page in pages if half[page.site] % 2 != part], is_second=False)
        for page in pages:
            if half[page.site] % 2 == part:
                page.second = second_table(page, look)
    return averaged(pages, is_second=False), averaged(pages, is_second=True)


def averaged(pages: Sequence[Page], is_second: bool) -> main_text.Look:
    """One look: the mean of as many as there are seeds, for what one of them says is by chance in part."""
    looks = [look_of(fitted(pages, is_second, seed)) for seed in SEEDS]
    trees = [
        (questions, [round(leaf / len(SEEDS)) for leaf in leaves]) for look in looks for questions, leaves in look.trees
    ]
    return main_text.Look(round(fmean(look.bias for look in looks)), trees)


def second_table(page: Page, first: main_text.Look) -> NDArray[np.int64]:
    """All features of the second look."""
    said = block_features.second_table(block_features.PageBlocks(page.blocks), first.scores(page.table))
    return np.concatenate((page.table, said))


def fitted(pages: Sequence[Page], is_second: bool, seed: int) -> Any:
    """Boosted oblivious trees, as CatBoost has them."""
    from catboost import CatBoostClassifier, Pool

    tables = [page.second if is_second else page.table for page in pages]
    labels, weights = (np.concatenate([one(page) for page in pages]) for one in (label_of, weight_of))
    kept = thinned(labels, weights, seed)
    table = np.concatenate([np.asarray(each, dtype=np.float32) for each in tables], axis=1).T[kept]
    labels, weights = labels[kept], weights[kept]
    mixed = (labels > 0) & (labels < 1)
    model = CatBoostClassifier(
        iterations=TREES,
        depth=DEPTH,
        learning_rate=RATE,
        l2_leaf_reg=5,
        border_count=BORDERS,
        rsm=0.3,
        bootstrap_type="Bernoulli",
        subsample=0.6,
        random_seed=seed,
        thread_count=1,
        verbose=0,
        allow_writing_files=False,
    )
    pool = Pool(
        np.concatenate([table, table[mixed]]),
        np.concatenate([labels > 0, np.zeros(mixed.sum())]).astype(int),
        weight=np.concatenate([np.where(mixed, weights * labels, weights), (weights * (1 - labels))[mixed]]),
    )
    return model.fit(pool)


def label_of(page: Page) -> NDArray[np.float64]:
    """Of each block the share of its words that are marked."""
    return page.hits / np.maximum(1, page.words)


def weight_of(page: Page) -> NDArray[np.float64]:
    """Of each block what it weighs: its share of what a page of common length would have."""
    label = label_of(page)
    weight = np.where(page.words > 0, page.words + 1, 0.2) / max(50, min(page.wanted, 2000))
    most, other = MOST_OTHER * float((weight * label).sum()), float((weight * (1 - label)).sum())
    if other > most > 0:
        weight = np.where(label > 0.5, weight, weight * most / other)
    return weight * page.weight


def thinned(labels: NDArray[np.float64], weights: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """The blocks to learn from: of the many light ones that are not content a fourth, each then four times as heavy."""
    light = (labels == 0) & (weights < np.median(weights))
    kept = ~light | (np.random.default_rng(seed).random(len(labels)) < 1 / THINNED)
    weights[light] *= THINNED
    return np.flatnonzero(kept)


def look_of(model: Any) -> main_text.Look:
    """CatBoost's trees in whole numbers; a number is greater than a border if it is greater than that rounded down."""
    with NamedTemporaryFile(suffix=".json") as file:
        model.save_model(file.name, format="json")
        stored = json.loads(Path(file.name).read_text())
    scale, (bias,) = stored["scale_and_bias"]
    trees = [
        (
            [(split["float_feature_index"], math.floor(split["border"])) for split in tree["splits"]],
            [round(LEAF_SCALE * scale * value) for value in tree["leaf_values"]],
        )
        for tree in stored["oblivious_trees"]
    ]
    return main_text.Look(round(LEAF_SCALE * bias), trees)


def grams(text: str, n: int = 4) -> Counter[tuple[str, ...]]:
    """The n-grams of a text's words with their counts; a shorter text is one."""
    words = WORD.findall(text)
    return Counter(tuple(words[at : at + n]) for at in range(max(1, len(words) - n + 1)) if words)


def score(pairs: Iterable[tuple[str, str]]) -> tuple[float, float, float]:
    """Precision and recall, each the mean over pages (truth, found) for which it is defined, and F1 of the two."""
    precisions, recalls = [], []
    for truth, found in pairs:
        wanted, got = grams(truth), grams(found)
        common = (wanted & got).total()
        if got:
            precisions.append(common / got.total())
        if wanted:
            recalls.append(common / wanted.total())
    precision, recall = fmean(precisions), fmean(recalls)
    return precision, recall, 2 * precision * recall / (precision + recall)


def scored(pages: Sequence[Page], learned: main_text.MainTextWeights) -> list[tuple[str, str]]:
    """Truth and what is found."""
    return [(page.main, main_text.text_of(page.blocks, learned)) for page in pages]


def written(looks: Sequence[main_text.Look], sure: int, possible: int, learned_from: dict[str, int]) -> str:
    """The file of weights: a line for each tree."""
    parts = []
    for look in looks:
        trees = ([[[NUMBERS[at], most] for at, most in questions], leaves] for questions, leaves in look.trees)
        lines = ",\n  ".join(json.dumps(tree) for tree in trees)
        parts.append(f'{{"bias": {look.bias}, "trees": [\n  {lines}]}}')
    bars = f'"sure": {sure},\n"possible": {possible}'
    head = f'"version": {VERSION},\n"learned from": {json.dumps(learned_from)},\n{bars}'
    return f'{{{head},\n"looks": [{", ".join(parts)}]}}\n'


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--folds", default=0, help="score so many parts of the first file's sites, learned from all others")
@click.option("--taught", type=FILE, help="pages to go on reading as they are read today")
@click.option("--framed", type=FILE, help="pages whose articles are put into made-up frames")
@click.option("--sure", default=44, show_default=True, help="log odds, in 64ths, above which a block is content")
@click.option("--possible", default=-48, show_default=True, help="the same of a page that has little of that")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="where the weights go")
def main(
    files: Sequence[Path],
    folds: int,
    taught: Path | None,
    framed: Path | None,
    sure: int,
    possible: int,
    out: Path,
) -> None:
    """Learn the weights of `main-text` from marked pages, or say what to expect of them."""
    found = {_name(file): [*learned_from(rows(file), 1.0)] for file in files}
    if len(found) < len(files):
        raise click.UsageError("two files have one name up to its first dot: the weights name what they learned from")
    for page in found[_name(files[0])]:
        page.weight *= OF_FIRST_FILE
    if taught:
        found["taught"] = [*learned_from(learning_pages.taught(rows(taught)), OF_TAUGHT)]
    if framed:
        found["framed"] = [*learned_from(learning_pages.framed(rows(framed)), OF_FRAMED)]
    if folds:
        tried = found.pop(_name(files[0]))
        expected(tried, [page for pages in found.values() for page in pages], folds, sure, possible)
        return
    pages = [page for pages in found.values() for page in pages if page.is_covered]
    looks = learn(pages)
    counts = {name: sum(page.is_covered for page in pages) for name, pages in found.items()}
    out.write_text(written(looks, sure, possible, counts), encoding="utf-8")


def _name(file: Path) -> str:
    return file.name.split(".")[0]


def learned_from(rows: Iterable[dict[str, Any]], weight: float) -> Iterator[Page]:
    """The pages that may be learned from."""
    for row in rows:
        if row.get("set") != "test" and (page := marked(row, weight)):
            yield page


def expected(tried: Sequence[Page], others: Sequence[Page], folds: int, sure: int, possible: int) -> None:
    """Score the tried pages by what was learned from all pages of other sites."""
    sites = sorted({page.site for page in tried})
    fold = dict(zip(np.random.default_rng(SEED).permutation(sites), range(len(sites)), strict=True))
    pairs = []
    for part in range(folds):
        held = {site for site in sites if fold[site] % folds == part}
        pages = [page for page in (*tried, *others) if page.site not in held and page.is_covered]
        weights = main_text.MainTextWeights(learn(pages), sure, possible)
        pairs += scored([page for page in tried if page.site in held], weights)
        print(f"part {part + 1}: precision, recall, F1 so far {score(pairs)}", flush=True)


if __name__ == "__main__":
    main()
