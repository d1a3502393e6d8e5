"""What the decision knows of a page's blocks: a table of whole numbers, a row for each feature.

Sizes are characters plus bytes of UTF-8: a Han character, which says as much as half a word, counts twice a Latin one.
Shares are in 64ths, rounded down. An element's own level is 0; level 1 is the nearest one around it that holds more
blocks, and so on. *Good* text stands in blocks of some length, with punctuation, that are no lists of links.

The native kernel (`native/src/features.rs`) fills the same table.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

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

_PUNCTUATION = ".,;:!?、。，！？：；،؟؛।"
_IS_PUNCTUATION = np.isin(np.arange(ord(max(_PUNCTUATION)) + 2), [*map(ord, _PUNCTUATION)])
"""By code point; the last one stands for all behind it."""
ENDINGS = {
    **dict.fromkeys("\"”'’»」』)）", 1),
    **dict.fromkeys(".!?。！？…؟।", 2),
    **dict.fromkeys(":：,，、;；،-–—|»›>→", 3),
}
"""What the last character of a block says: 1, the end of something quoted; 2, of a sentence; 3, that more follows."""
_H1, _HEADINGS = 1, 3
_KIND = np.array([(bits & -bits).bit_length() for bits in range(16)])
"""Of the first four bits of an element's mask what its blocks are: 1, headings of the first order; 2, other ones; 3,
paragraphs; 4, parts of a list."""
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


class PageBlocks:
    """What several features need of a page's blocks, of which there is one at least: columns and running sums.

    Attributes:
        sums: running sums of sizes, of these in links, of those that are good, and of punctuation: (4, blocks + 1).
        up, wrapped, around: of each element the next level, the bits of those with the same blocks as it, and of all
            around it.
        levels: of each block the element that holds it and those of the next levels: (LEVELS, blocks).
        alike: of each element how many of the page have its name and words.
    """

    def __init__(self, blocks: Blocks) -> None:
        texts = blocks.texts
        self.blocks = blocks
        self.n = len(texts)
        self.at = np.arange(self.n)
        self.size = _array(map(_size, texts))
        linked = _array(map(_size, blocks.linked))
        self.punctuation = _punctuation(texts)
        self.share = 64 * linked // self.size
        good = (3 * linked < self.size) & (self.size >= LEAST_GOOD_SIZE) & (self.punctuation > 0)
        self.sums = _sums([self.size, linked, np.where(good, self.size, 0), self.punctuation])
        self.sizes, self.links, self.goods, _ = self.sums
        self.good = max(1, int(self.goods[-1]))
        self.owner, self.own = _array(blocks.owners), _array(blocks.masks)
        self.start, self.end, self.depth = map(_array, (blocks.starts, blocks.ends, blocks.depths))
        self.up, self.wrapped, self.around = _elements(blocks)
        self.levels = np.empty((LEVELS, self.n), dtype=np.int64)
        self.levels[0] = self.owner
        for level in range(1, LEVELS):
            self.levels[level] = self.up[self.levels[level - 1]]
        keys = _array(blocks.keys)
        self.alike = np.bincount(keys)[keys]


def _size(text: str) -> int:
    return 2 * len(text) if text.isascii() else len(text) + len(text.encode())


def _punctuation(texts: Sequence[str]) -> Numbers:
    """How many signs of punctuation each text has."""
    ends = np.cumsum(_array(map(len, texts)))
    characters = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
    marks = np.flatnonzero(_IS_PUNCTUATION.take(characters, mode="clip"))
    return np.diff(np.searchsorted(marks, ends), prepend=0)


def _array(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, dtype=np.int64)


def _sums(columns: Sequence[Numbers]) -> Numbers:
    sums = np.zeros((len(columns), len(columns[0]) + 1), dtype=np.int64)
    np.cumsum(columns, axis=1, out=sums[:, 1:])
    return sums


def _clipped(values: Numbers, least: int, most: int) -> Numbers:
    """As np.clip, which takes twice as long for so few."""
    clipped: Numbers = np.minimum(np.maximum(values, least), most)
    return clipped


def _column(values: Sequence[int]) -> Numbers:
    return np.array(values)[:, None]


def _groups(*features: Numbers) -> Numbers:
    """Features of several windows, levels or the like, group by group; the first is an array (groups, blocks)."""
    groups, blocks = features[0].shape
    rows = np.empty((groups, len(features), blocks), dtype=np.int64)
    for at, feature in enumerate(features):
        rows[:, at] = feature
    return rows.reshape(-1, blocks)


def table(page: PageBlocks) -> Numbers:
    """The features of a page's blocks: an array (features, blocks)."""
    parts = (_of_block, _of_place, _of_marks, _of_neighbours, _of_windows, _of_levels, _of_centres, _of_bits)
    return np.concatenate([part(page) for part in parts])


def _elements(blocks: Blocks) -> tuple[Numbers, Numbers, Numbers]:
    up, wrapped, around = [0], [0], [0]  # the page's own, which has no mask
    starts, ends = blocks.starts, blocks.ends
    for parent, mask, start, end in islice(zip(blocks.parents, blocks.masks, starts, ends, strict=True), 1, None):
        if starts[parent] == start and ends[parent] == end:
            up.append(up[parent])
            wrapped.append(mask | wrapped[parent])
        else:
            up.append(parent)
            wrapped.append(mask)
        around.append(mask | around[parent])
    return _array(up), _array(wrapped), _array(around)


def _of_block(page: PageBlocks) -> Numbers:
    blocks = page.blocks
    broken = np.array(blocks.broken, dtype=np.int64)
    last = _array(ENDINGS.get(text[-1], 0) for text in blocks.texts)
    rate = 1000 * page.punctuation // page.size
    breaks = np.append(broken[1:], 0)
    return np.array([page.size, page.share, _array(blocks.links), page.punctuation, rate, last, broken, breaks])


def _of_place(page: PageBlocks) -> Numbers:
    sizes, goods, n = page.sizes, page.goods, page.n
    rows = [
        page.depth[page.owner],
        64 * page.at // n,
        64 * sizes[:-1] // sizes[-1],
        goods[:-1],
        goods[-1] - goods[1:],
        *(np.full(n, value) for value in (n, page.good, 64 * page.good // int(sizes[-1]))),
    ]
    return np.array(rows)


def _of_marks(page: PageBlocks) -> Numbers:
    """How many blocks ago the heading and the page's title were; before the first of them, negative or far."""
    h1 = np.flatnonzero(page.wrapped[page.owner] & _H1)
    title = page.blocks.title
    titles = np.flatnonzero([len(text) in TITLE_CHARACTERS and text in title for text in page.blocks.texts])
    headings = np.flatnonzero(page.own[page.owner] & _HEADINGS)
    rows = [
        _from(page, h1[:1]),
        _since(page, h1),
        _since(page, titles),
        _from(page, titles[-1:]),
        _since(page, headings),
    ]
    return np.array(rows)


def _from(page: PageBlocks, mark: Numbers) -> Numbers:
    return _clipped(page.at - mark[0], -100, FAR) if len(mark) else np.full(page.n, FAR)


def _since(page: PageBlocks, marks: Numbers) -> Numbers:
    if not len(marks):
        return np.full(page.n, FAR)
    behind = np.searchsorted(marks, page.at, side="right")
    return np.where(behind > 0, np.minimum(page.at - marks[behind - 1], FAR), FAR)


def _of_neighbours(page: PageBlocks) -> Numbers:
    owner, up = page.owner, page.levels[1]
    kind = _KIND[page.own[owner] % len(_KIND)]
    other, there = _at(page, NEIGHBOURS)
    kin = (up[other] == up) * 2 + (owner[other] == owner)
    columns = (page.size[other], page.share[other], page.punctuation[other], kind[other], kin)
    return _groups(*(np.where(there, column, -1) for column in columns))


def _at(page: PageBlocks, distances: Sequence[int]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The blocks at these distances, and whether there are such: two arrays (distances, blocks)."""
    other = page.at + _column(distances)
    there = (other >= 0) & (other < page.n)
    return np.where(there, other, 0), there


def _within(page: PageBlocks, distances: Sequence[int]) -> tuple[Numbers, Numbers]:
    """The first of the blocks so near, and the one behind the last: two arrays (distances, blocks)."""
    by = _column(distances)
    return np.maximum(page.at - by, 0), np.minimum(page.at + by + 1, page.n)


def _of_windows(page: PageBlocks) -> Numbers:
    low, high = _within(page, WINDOWS)
    size, linked, good, _ = page.sums.take(high, axis=1) - page.sums.take(low, axis=1)
    within = _groups(good, 64 * linked // size, size // (high - low))
    low, high = low[0], high[0]  # two blocks before, and two behind
    nearest = np.stack([page.goods[page.at] - page.goods[low], page.goods[high] - page.goods[page.at + 1]])
    return np.concatenate([within, nearest])


def _of_levels(page: PageBlocks) -> Numbers:
    start, end = page.start[page.levels], page.end[page.levels]
    count = end - start
    size, linked, good, points = page.sums.take(end, axis=1) - page.sums.take(start, axis=1)
    return _groups(
        *(64 * good // page.good, good, size, 64 * linked // size, count, size // count),
        *(1000 * points // size, page.alike[page.levels], 16 * (page.at - start) // count),
    )


def _of_centres(page: PageBlocks) -> Numbers:
    """Where a block stands to the innermost element that holds so much of the good text."""
    held = page.goods[page.end] - page.goods[page.start]
    centre = _column([np.flatnonzero(16 * held >= part * page.goods[-1])[-1] for part in CENTRES])
    if not page.goods[-1]:
        centre[:] = 0
    start, end = page.start[centre], page.end[centre]
    size, linked, _, _ = page.sums.take(end, axis=1) - page.sums.take(start, axis=1)
    inside = (page.at >= start) & (page.at < end)
    outside = np.where(page.at < start, page.at - start, page.at - end + 1)
    return _groups(
        np.where(inside, 16 * (page.at - start) // (end - start), -1),
        np.where(inside, 0, _clipped(outside, -100, 100)),
        np.where(inside, page.depth[page.owner] - page.depth[centre], -1),
        end - start,
        64 * linked // size,
    )


def _of_bits(page: PageBlocks) -> Numbers:
    """For each kind and meaning how near it is: 4, this element or one with the same blocks; 1, any around it."""
    owner, up, above = page.levels[:3]
    inner = page.wrapped[owner]
    near = inner | page.own[up]
    nearer = near | page.own[above]
    masks = np.stack([page.around[owner], nearer, near, inner]).astype("<u8")
    bits = np.unpackbits(masks.view(np.uint8).reshape(4, page.n, 8), axis=2, bitorder="little")
    nearness: Numbers = bits.sum(axis=0, dtype=np.uint8)
    return nearness.T[: len(BITS)]


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


def second_table(page: PageBlocks, scores: Numbers) -> Numbers:
    """What a first decision says of a block's neighbours and of the elements around it: an array (features, blocks).

    Args:
        scores: of the first decision; a block is taken where it is positive.
    """
    scores = _clipped(scores, -MOST_SCORE, MOST_SCORE)
    is_taken = scores > 0
    sums = _sums([page.size, page.size * scores, np.where(is_taken, page.size, 0)])
    sizes, _, taken = sums
    all_taken = max(1, int(taken[-1]))
    other, there = _at(page, SECOND_NEIGHBOURS)
    low, high = _within(page, SECOND_WINDOWS)
    near, near_weighted, near_taken = sums.take(high, axis=1) - sums.take(low, axis=1)
    held, weighted, part = sums.take(page.end[page.levels], axis=1) - sums.take(page.start[page.levels], axis=1)
    of_page = [64 * taken[:-1] // all_taken, 64 * (taken[-1] - taken[1:]) // all_taken]
    of_page += [np.full(page.n, taken[-1]), np.full(page.n, 64 * taken[-1] // sizes[-1])]
    return np.concatenate(
        [
            scores[None],
            np.where(there, scores[other], NONE_SCORE),
            _groups(near_weighted // near, 64 * near_taken // near),
            np.stack(of_page + _gaps(is_taken)),
            _groups(weighted // held, 64 * part // held, 64 * part // all_taken),
        ]
    )


def _gaps(taken: NDArray[np.bool_]) -> list[Numbers]:
    """How many blocks ago the last one that is taken stands, and how far ahead the next."""
    n = len(taken)
    at, marks = np.arange(n), np.flatnonzero(taken)
    padded = np.concatenate(([-FAR], marks, [n + FAR]))
    before = np.searchsorted(marks, at, side="left")
    behind = np.searchsorted(marks, at, side="right")
    return [np.minimum(at - padded[before], 100), np.minimum(padded[behind + 1] - at, 100)]


def shared(page: PageBlocks, scores: Numbers) -> Numbers:
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
    np.add.at(weighted, element, weight * _clipped(scores, -MOST_SCORE, MOST_SCORE))
    mean = weighted // np.maximum(size, 1)
    return np.where(short, mean[element], scores)
