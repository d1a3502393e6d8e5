"""The extractor `main-text`: one linear pass from HTML to the text that its readers come for.

A page is cut into blocks (`html_blocks`). Two looks decide which are content: the first knows of each block and its
surroundings (`block_features`), the second also what the first said of the neighbours. A look is a sum of small trees
that ask the same questions of all blocks ("oblivious": Kohavi 1994; as gradient boosting learns them, Prokhorenkova et
al. 2018, section 4). They were learned from pages marked by hand (`benchmarks/learn_main_text.py`) and lie in
`main_text.json`. Short blocks of one list or row share a score, and a page that is sure of little takes what is
possible, if that is likely: so an edit changes less of what is taken. All numbers are whole, so the native kernel gives
the same text, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from html.entities import html5
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from simhash import native
from simhash.reading import block_features
from simhash.reading.block_features import Numbers
from simhash.reading.extracted import Extracted
from simhash.reading.html_blocks import (
    KINDS,
    LINE,
    LONGEST_BARE,
    METADATA,
    NAMES,
    PAGE,
    RAW,
    RULES,
    SHOWN,
    WINDOWS_1252,
    Blocks,
    read_blocks,
    read_metadata,
)
from simhash.reading.html_words import word_bits

MIN_MAIN_CHARACTERS = 200
"""Below this, main content was not found (a list, a form), and all visible text says more."""
BLOCKS_AT_ONCE = 2000
"""In NumPy: fewer take more calls, more take more memory (10 MB)."""
LARGEST = 2**31 - 1
"""What a number is at most, to the questions: none asks for more."""
UNSURE = 54
"""In 64ths. A page whose sure blocks hold less of the text of its possible ones may have content of a kind that the
looks know little of (an offer, a list, a thread). If those that are not sure are likely, possible ones are content."""
LIKELY = -12
"""Their least score on average, by size. Below it they are the teasers and comments of a short article."""
REPEATED_CHARACTERS = 100
"""A block of so many that stands in a page again, in its copy for telephones or for printing, is content once."""
SCORE_SHIFT = 4
"""Leaves are in 1024ths of a natural logarithm of odds, scores in 64ths."""


@dataclass(frozen=True)
class Look:
    """A sum of trees. A tree has questions (feature, most), whether a number is greater, and a leaf for all answers."""

    bias: int
    trees: list[tuple[list[tuple[int, int]], list[int]]]

    def scores(self, table: Numbers) -> Numbers:
        """Of each block of a table (features, blocks) how sure it is that it is content, in 64ths of log odds."""
        parts = [self._sums(table[:, at : at + BLOCKS_AT_ONCE]) for at in range(0, table.shape[1], BLOCKS_AT_ONCE)]
        return (self.bias + np.concatenate(parts)) >> SCORE_SHIFT

    def _sums(self, table: Numbers) -> Numbers:
        features, most, levels, firsts, leaves = self._arrays
        answers = (np.minimum(table, LARGEST).astype(np.int32).take(features, axis=0) > most).view(np.uint8)
        leaf = answers[levels[-1]]
        for level in levels[-2::-1]:
            leaf += leaf
            leaf += answers[level]
        # All are within the leaves; with "raise" for what is not, NumPy takes to a buffer first.
        sums: Numbers = leaves.take(firsts + leaf, mode="clip").sum(axis=0, dtype=np.int32)
        return sums

    @cached_property
    def _arrays(self) -> tuple[Numbers, NDArray[np.int32], list[Numbers], Numbers, NDArray[np.int32]]:
        """Of each question its feature and number; of each level of the trees their questions; where each tree's leaves
        begin; the leaves. Trees share questions, and have as many levels."""
        asked = sorted({question for questions, _ in self.trees for question in questions})
        places = {question: at for at, question in enumerate(asked)}
        features, most = np.array(asked).T
        levels = np.array([[places[question] for question in questions] for questions, _ in self.trees]).T
        leaves = np.array([leaves for _, leaves in self.trees], dtype=np.int32)
        firsts = np.arange(len(leaves))[:, None] * leaves.shape[1]
        return features, most.astype(np.int32)[:, None], [*levels], firsts, leaves.ravel()


@dataclass(frozen=True, slots=True)
class MainTextWeights:
    """What was learned, and where content begins.

    Attributes:
        sure, possible: scores above which a block is content: on most pages, and on those that are not sure of much.
    """

    looks: tuple[Look, Look]
    sure: int
    possible: int


@cache
def weights() -> MainTextWeights:
    """The weights of this version, from `main_text.json`."""
    stored = json.loads(files("simhash.reading").joinpath("main_text.json").read_text(encoding="utf-8"))
    numbers = {name: at for at, name in enumerate((*block_features.NAMES, *block_features.SECOND_NAMES))}
    first, second = (
        Look(
            look["bias"],
            [([(numbers[name], most) for name, most in questions], leaves) for questions, leaves in look["trees"]],
        )
        for look in stored["looks"]
    )
    return MainTextWeights((first, second), stored["sure"], stored["possible"])


@cache
def words() -> dict[str, int]:
    """The bits of words in attributes, behind those of kinds."""
    return word_bits(len(KINDS))


def read(html: bytes) -> Extracted:
    """The main text of a page in UTF-8, without NUL; all its visible text if that has no main content."""
    kernel = _kernel()
    return Extracted(*kernel.read(html)) if kernel else read_in_python(html)


def read_in_python(html: bytes) -> Extracted:
    """The same without the native kernel."""
    blocks = read_blocks(html, words())
    return Extracted(text_of(blocks, weights()), blocks.title, blocks.language, blocks.canonical, blocks.robots)


def metadata(html: bytes) -> tuple[str, str, str]:
    """Language, canonical URL and robots as `read` finds them, without the rest."""
    kernel = _kernel()
    return kernel.metadata(html) if kernel else metadata_in_python(html)


def metadata_in_python(html: bytes) -> tuple[str, str, str]:
    """The same without the native kernel."""
    said = read_metadata(html)
    return said.language, said.canonical, said.robots


@cache
def _kernel() -> native.PageReader | None:
    learned = weights()
    return native.page_reader(
        names=_told_names(),
        words=[*words().items()],
        references=[*html5.items()],
        longest_bare=LONGEST_BARE,
        windows_1252=WINDOWS_1252,
        endings=[*block_features.ENDINGS.items()],
        looks=[(look.bias, look.trees) for look in learned.looks],
        sure=learned.sure,
        possible=learned.possible,
        unsure=UNSURE,
        likely=LIKELY,
        least=MIN_MAIN_CHARACTERS,
        repeated=REPEATED_CHARACTERS,
    )


def _told_names() -> list[tuple[object, ...]]:
    """Names and their roles; of elements also what they do."""
    roles = {LINE: "line", **dict.fromkeys(RULES, "rule"), PAGE: "page", **dict.fromkeys(METADATA, "metadata")}
    roles |= dict.fromkeys(RAW, "raw") | dict.fromkeys(SHOWN, "shown") | {"script": "script", "title": "title"}
    others = [(name, role, 0, 0, 0, 0, False, False, False) for name, role in roles.items()]
    return [*others, *((name, "element", *astuple(does)) for name, does in NAMES.items())]


def text_of(blocks: Blocks, learned: MainTextWeights) -> str:
    """The main text of a page's blocks."""
    texts = blocks.texts
    if not texts or blocks.is_large:
        return "\n".join(texts)
    taken = chosen(*scores(blocks, learned), learned)
    main = "\n".join(_once([text for text, is_taken in zip(texts, taken.tolist(), strict=True) if is_taken]))
    return main if len(main) >= MIN_MAIN_CHARACTERS else "\n".join(texts)


def _once(texts: Sequence[str]) -> Iterator[str]:
    """Without the long ones that stood before."""
    seen: set[str] = set()
    for text in texts:
        if len(text) < REPEATED_CHARACTERS or text not in seen:
            seen.add(text)
            yield text


def chosen(sizes: Numbers, scores: Numbers, learned: MainTextWeights) -> NDArray[np.bool_]:
    """Which blocks of these sizes and scores are content."""
    sure, possible = scores > learned.sure, scores > learned.possible
    others = possible & ~sure
    is_unsure = 64 * sizes[sure].sum() < UNSURE * sizes[possible].sum()
    return possible if is_unsure and (sizes * (scores - LIKELY))[others].sum() >= 0 else sure


def scores(blocks: Blocks, learned: MainTextWeights) -> tuple[Numbers, Numbers]:
    """Of each block its size, and how sure the second look is that it is content, in 64ths of log odds."""
    first, second = learned.looks
    page = block_features.PageBlocks(blocks)
    table = block_features.table(page)
    said = block_features.second_table(page, first.scores(table))
    return page.size, block_features.shared(page, second.scores(np.concatenate((table, said))))
