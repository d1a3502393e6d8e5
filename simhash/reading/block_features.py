"""What the decision knows of a page's blocks: a table of whole numbers, a row for each feature.

Sizes are characters plus bytes of UTF-8: a Han character, which says as much as half a word, counts twice a Latin one.
Shares are in 64ths, rounded down. An element's own level is 0; level 1 is the nearest one around it that holds more
blocks, and so on. *Good* text stands in blocks of some length, with punctuation, that are no lists of links.

The native kernel (`native/src/features.rs`) fills the same table.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from simhash.reading.html_blocks import KINDS, Blocks
from simhash.reading.html_words import WORDS

Numbers = NDArray[np.int64]

LEAST_GOOD_SIZE = 100
NEIGHBOURS = (-2, -1, 1, 2)
WINDOWS = (2, 5, 10)
LEVELS = 4
CENTRES = (8, 12, 15)
"""In 16ths, the shares of the page's good text that the elements in its centre hold."""
FAR = 1000
BITS = (*(row[0] for row in KINDS), *(f"words {name}" for name in WORDS))

_PUNCTUATION = re.compile("[.,;:!?、。，！？：；،؟؛।]")
ENDINGS = {
    **dict.fromkeys("\"”'’»」』)）", 1),
    **dict.fromkeys(".!?。！？…؟।", 2),
    **dict.fromkeys(":：,，、;；،-–—|»›>→", 3),
}
"""What the last character of a block says: 1, the end of something quoted; 2, of a sentence; 3, that more follows."""
_H1, _HEADINGS, _PARAGRAPH, _LIST = 1, 3, 4, 8
TITLE_CHARACTERS = range(8, 301)

NAMES = (
    *("size", "share", "links", "punctuation", "punctuation rate", "last", "broken", "breaks"),
    *("depth", "place", "before", "good before", "good behind", "blocks", "page good", "page good share"),
    *("from first h1", "from h1", "from title", "from last title", "from heading"),
    *(f"{name} {by:+}" for by in NEIGHBOURS for name in ("size", "share", "punctuation", "kind", "kin")),
    *(f"{name} within {by}" for by in WINDOWS for name in ("good", "share", "mean")),
    *("good 2 before", "good 2 behind"),
    *(
        f"level {level} {name}"
        for level in range(LEVELS)
        for name in ("good share", "good", "size", "share", "count", "mean", "punctuation rate", "alike", "place")
    ),
    *(f"centre {part} {name}" for part in CENTRES for name in ("place", "distance", "levels", "count", "share")),
    *BITS,
)


class Page:
    """What several features need of a page's blocks, of which there is one at least: columns and running sums.

    Attributes:
        up, wrapped, around: of each element the next level, the bits of those with the same blocks as it, and of all
            around it.
        alike: of each element how many of the page have its name and words.
    """

    def __init__(self, blocks: Blocks) -> None:
        texts = blocks.texts
        self.blocks = blocks
        self.n = len(texts)
        self.at = np.arange(self.n)
        self.size = _array(map(_size, texts))
        self.linked = _array(map(_size, blocks.linked))
        self.punctuation = _array(len(_PUNCTUATION.findall(text)) for text in texts)
        self.share = 64 * self.linked // self.size
        good = (3 * self.linked < self.size) & (self.size >= LEAST_GOOD_SIZE) & (self.punctuation > 0)
        self.sizes, self.links, self.goods, self.points = map(
            _sums, (self.size, self.linked, np.where(good, self.size, 0), self.punctuation)
        )
        self.good = max(1, int(self.goods[-1]))
        self.owner = np.array(blocks.owners)
        self.start, self.end, self.depth = map(np.array, (blocks.starts, blocks.ends, blocks.depths))
        self.own = np.array(blocks.masks)
        self.up, self.wrapped, self.around = _elements(blocks)
        counts = Counter(blocks.keys)
        self.alike = _array(map(counts.__getitem__, blocks.keys))


def _size(text: str) -> int:
    return 2 * len(text) if text.isascii() else len(text) + len(text.encode())


def _array(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, dtype=np.int64)


def _sums(values: Numbers) -> Numbers:
    return np.concatenate(([0], np.cumsum(values)))


def _table(rows: Sequence[Numbers]) -> Numbers:
    return np.concatenate(rows).reshape(len(rows), -1)


def table(page: Page) -> Numbers:
    """The features of a page's blocks: an array (features, blocks)."""
    return _table(
        [
            *_of_block(page),
            *_of_place(page),
            *_of_marks(page),
            *_of_neighbours(page),
            *_of_windows(page),
            *_of_levels(page),
            *_of_centres(page),
            *_of_bits(page),
        ]
    )


def _elements(blocks: Blocks) -> tuple[Numbers, Numbers, Numbers]:
    up, wrapped, around = [0], blocks.masks.copy(), blocks.masks.copy()
    starts, ends = blocks.starts, blocks.ends
    for element in range(1, len(blocks.parents)):
        parent = blocks.parents[element]
        if starts[parent] == starts[element] and ends[parent] == ends[element]:
            up.append(up[parent])
            wrapped[element] |= wrapped[parent]
        else:
            up.append(parent)
        around[element] |= around[parent]
    return np.array(up), np.array(wrapped), np.array(around)


def _of_block(page: Page) -> list[Numbers]:
    blocks = page.blocks
    broken = np.array(blocks.broken, dtype=np.int64)
    last = _array(ENDINGS.get(text[-1], 0) for text in blocks.texts)
    rate = 1000 * page.punctuation // page.size
    breaks = np.append(broken[1:], 0)
    return [page.size, page.share, np.array(blocks.links), page.punctuation, rate, last, broken, breaks]


def _of_place(page: Page) -> list[Numbers]:
    sizes, goods, n = page.sizes, page.goods, page.n
    whole = (n, page.good, 64 * page.good // int(sizes[-1]))
    return [
        page.depth[page.owner],
        64 * page.at // n,
        64 * sizes[:-1] // sizes[-1],
        goods[:-1],
        goods[-1] - goods[1:],
        *(np.full(n, value) for value in whole),
    ]


def _of_marks(page: Page) -> list[Numbers]:
    """How many blocks ago the heading and the page's title were; before the first of them, negative or far."""
    h1 = np.flatnonzero(page.wrapped[page.owner] & _H1)
    title = page.blocks.title
    titles = np.flatnonzero([len(text) in TITLE_CHARACTERS and text in title for text in page.blocks.texts])
    headings = np.flatnonzero(page.own[page.owner] & _HEADINGS)
    return [
        _from(page, h1[:1]),
        _since(page, h1),
        _since(page, titles),
        _from(page, titles[-1:]),
        _since(page, headings),
    ]


def _from(page: Page, mark: Numbers) -> Numbers:
    return np.clip(page.at - mark[0], -100, FAR) if len(mark) else np.full(page.n, FAR)


def _since(page: Page, marks: Numbers) -> Numbers:
    if not len(marks):
        return np.full(page.n, FAR)
    behind = np.searchsorted(marks, page.at, side="right")
    return np.where(behind > 0, np.minimum(page.at - marks[behind - 1], FAR), FAR)


def _of_neighbours(page: Page) -> list[Numbers]:
    own, owner, up = page.own[page.owner], page.owner, page.up
    kind = np.select([own & bit != 0 for bit in (_H1, _HEADINGS, _PARAGRAPH, _LIST)], [1, 2, 3, 4], 0)
    rows = []
    for by in NEIGHBOURS:
        other = page.at + by
        there = (other >= 0) & (other < page.n)
        other = np.where(there, other, 0)
        kin = (up[owner[other]] == up[owner]) * 2 + (owner[other] == owner)
        columns = (page.size[other], page.share[other], page.punctuation[other], kind[other], kin)
        rows += [np.where(there, column, -1) for column in columns]
    return rows


def _of_windows(page: Page) -> list[Numbers]:
    rows = []
    sizes, links, goods, at = page.sizes, page.links, page.goods, page.at
    for by in WINDOWS:
        low, high = np.maximum(at - by, 0), np.minimum(at + by + 1, page.n)
        size = sizes[high] - sizes[low]
        rows += [goods[high] - goods[low], 64 * (links[high] - links[low]) // size, size // (high - low)]
    low, high = np.maximum(at - 2, 0), np.minimum(at + 3, page.n)
    return [*rows, goods[at] - goods[low], goods[high] - goods[at + 1]]


def _of_levels(page: Page) -> list[Numbers]:
    rows = []
    element = page.owner
    for _ in range(LEVELS):
        start, end = page.start[element], page.end[element]
        count = end - start
        size, linked, good, points = (
            column[end] - column[start] for column in (page.sizes, page.links, page.goods, page.points)
        )
        rows += [64 * good // page.good, good, size, 64 * linked // size, count, size // count]
        rows += [1000 * points // size, page.alike[element], 16 * (page.at - start) // count]
        element = page.up[element]
    return rows


def _of_centres(page: Page) -> list[Numbers]:
    """Where a block stands to the innermost element that holds so much of the good text."""
    held = page.goods[page.end] - page.goods[page.start]
    rows = []
    for part in CENTRES:
        centre = int(np.flatnonzero(16 * held >= part * page.goods[-1])[-1]) if page.goods[-1] else 0
        start, end = int(page.start[centre]), int(page.end[centre])
        inside = (page.at >= start) & (page.at < end)
        count, share = (
            end - start,
            64 * int(page.links[end] - page.links[start]) // int(page.sizes[end] - page.sizes[start]),
        )
        outside = np.where(page.at < start, page.at - start, page.at - end + 1)
        rows += [
            np.where(inside, 16 * (page.at - start) // count, -1),
            np.where(inside, 0, np.clip(outside, -100, 100)),
            np.where(inside, page.depth[page.owner] - page.depth[centre], -1),
            np.full(page.n, count),
            np.full(page.n, share),
        ]
    return rows


def _of_bits(page: Page) -> list[Numbers]:
    """For each kind and meaning how near it is: 4, this element or one with the same blocks; 1, any around it."""
    owner, up = page.owner, page.up
    inner = page.wrapped[owner]
    near = inner | page.own[up[owner]]
    nearer = near | page.own[up[up[owner]]]
    bits = np.arange(len(BITS))[:, None]
    masks = (page.around[owner], nearer, near, inner)
    return list(sum((mask >> bits & 1 for mask in masks), np.zeros((1, 1), np.int64)))


SECOND_NEIGHBOURS = (-4, -3, -2, -1, 1, 2, 3, 4)
SECOND_WINDOWS = (3, 8, 20)
MOST_SCORE = 255
NONE_SCORE = -300
SECOND_NAMES = (
    "score",
    *(f"score {by:+}" for by in SECOND_NEIGHBOURS),
    *(f"{name} within {by}" for by in SECOND_WINDOWS for name in ("score", "taken")),
    *("taken before", "taken behind", "taken", "taken share", "blocks since taken", "blocks until taken"),
    *(f"level {level} {name}" for level in range(LEVELS) for name in ("score", "taken", "taken share")),
)


def second_table(page: Page, scores: Numbers) -> Numbers:
    """What a first decision says of a block's neighbours and of the elements around it: an array (features, blocks).

    Args:
        scores: of the first decision; a block is taken where it is positive.
    """
    n, at, size = page.n, page.at, page.sizes
    scores = np.clip(scores, -MOST_SCORE, MOST_SCORE)
    weighted, taken = _sums(page.size * scores), _sums(np.where(scores > 0, page.size, 0))
    all_taken = max(1, int(taken[-1]))
    rows = [scores]
    for by in SECOND_NEIGHBOURS:
        other = at + by
        there = (other >= 0) & (other < n)
        rows.append(np.where(there, scores[np.where(there, other, 0)], NONE_SCORE))
    for by in SECOND_WINDOWS:
        low, high = np.maximum(at - by, 0), np.minimum(at + by + 1, n)
        held = size[high] - size[low]
        rows += [(weighted[high] - weighted[low]) // held, 64 * (taken[high] - taken[low]) // held]
    rows += [64 * taken[:-1] // all_taken, 64 * (taken[-1] - taken[1:]) // all_taken]
    rows += [np.full(n, taken[-1]), np.full(n, 64 * taken[-1] // size[-1])]
    rows += _gaps(scores > 0)
    element = page.owner
    for _ in range(LEVELS):
        low, high = page.start[element], page.end[element]
        held, part = size[high] - size[low], taken[high] - taken[low]
        rows += [(weighted[high] - weighted[low]) // held, 64 * part // held, 64 * part // all_taken]
        element = page.up[element]
    return _table(rows)


def _gaps(taken: NDArray[np.bool_]) -> list[Numbers]:
    """How many blocks ago the last one that is taken stands, and how far ahead the next."""
    n = len(taken)
    at, marks = np.arange(n), np.flatnonzero(taken)
    padded = np.concatenate(([-FAR], marks, [n + FAR]))
    before = np.searchsorted(marks, at, side="left")
    behind = np.searchsorted(marks, at, side="right")
    return [np.minimum(at - padded[before], 100), np.minimum(padded[behind + 1] - at, 100)]


def shared(page: Page, scores: Numbers) -> Numbers:
    """Scores, of which short blocks of one element have one: their mean, weighted by size.

    So the entries of a list and the cells of a row come in or stay out together, and an edit moves none of them alone.
    """
    owner = page.owner
    alone = page.end[owner] - page.start[owner] == 1
    element = np.where(alone, page.up[owner], owner)
    short = page.size < LEAST_GOOD_SIZE
    weight = np.where(short, page.size, 0)
    size, weighted = np.zeros((2, len(page.start)), dtype=np.int64)
    np.add.at(size, element, weight)
    np.add.at(weighted, element, weight * np.clip(scores, -MOST_SCORE, MOST_SCORE))
    mean = weighted // np.maximum(size, 1)
    return np.where(short, mean[element], scores)
