"""Permutation tables as data: which bits of a fingerprint lead, and what that guarantees.

A *design* cuts the f bits of a fingerprint into blocks and makes one table for each choice of leading blocks. The
permuted fingerprint of a table has its leading blocks first; their total length is the table's prefix, p. Two
fingerprints that differ in at most `k` bits agree on the prefix of at least one table (pigeonhole), so it is enough to
look at the entries that share a prefix. Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling",
WWW 2007, section 3; the four designs of its section 3.1.2 are `DESIGNS` here.

A table's `radius` widens its probe: it is read at its own prefix and at every prefix within `radius` flipped bits of
it. So tables may lead with one part each, of thresholds of their own: of k differing bits, some part of m has no more
than its radius, when the radii sum to k - m + 1 (the general pigeonhole principle: Qin et al., "GPH", ICDE 2018).

Worked example (8 bits, 4 blocks choose 1, table 2, fingerprint abcdefgh): the blocks are ab cd ef gh, block 2 leads,
the permuted fingerprint is ef ab cd gh and p = 2.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement

import msgspec

from simhash.errors import DesignError


@dataclass(frozen=True, slots=True)
class Block:
    """`width` neighbouring bits, the first of them `start` bits from the left (most significant) end."""

    start: int
    width: int

    @property
    def end(self) -> int:
        """The first bit to the right of the block."""
        return self.start + self.width


@dataclass(frozen=True, slots=True)
class Move:
    """One run of bits that keeps its order: `(fingerprint >> take) & mask`, put at `<< put`."""

    take: int
    mask: int
    put: int


@dataclass(frozen=True)
class Table:
    """One permutation: the blocks of a fingerprint in their new order, the first `prefix` bits of it leading.

    Attributes:
        radius: two fingerprints meet here that differ in at most so many of the leading bits: 0 or 1.
        lead: has those bits set where they stand in the fingerprint.
        moves: what puts the blocks into their new order.
    """

    bits: int
    blocks: tuple[Block, ...]
    prefix: int
    radius: int = 0
    lead: int = field(init=False, repr=False, compare=False)
    moves: tuple[Move, ...] = field(init=False, repr=False, compare=False)
    _backward: tuple[Move, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        covered = sorted((block.start, block.end) for block in self.blocks)
        edges = [0, *(end for _, end in covered)]
        if [start for start, _ in covered] != edges[:-1] or edges[-1] != self.bits:
            raise DesignError(f"blocks {covered} do not cover {self.bits} bits exactly once")
        if not 0 < self.prefix <= self.bits:
            raise DesignError(f"a prefix of {self.prefix} bits does not fit in {self.bits}")
        if self.radius not in (0, 1):
            raise DesignError(f"radius is 0 or 1, not {self.radius}")
        moves = tuple(_moves(self.bits, self.blocks))
        object.__setattr__(self, "lead", sum(1 << (self.bits - 1 - bit) for bit in self._lead_bits()))
        object.__setattr__(self, "moves", moves)
        object.__setattr__(self, "_backward", tuple(Move(m.put, m.mask, m.take) for m in moves))

    def _lead_bits(self) -> list[int]:
        in_order = [bit for block in self.blocks for bit in range(block.start, block.end)]
        return in_order[: self.prefix]

    @property
    def probes(self) -> int:
        """How many prefixes are read to find what meets a fingerprint."""
        return 1 + self.prefix * self.radius

    def permute(self, fingerprint: int) -> int:
        """The fingerprint with this table's blocks in front."""
        return sum(((fingerprint >> m.take) & m.mask) << m.put for m in self.moves)

    def restore(self, permuted: int) -> int:
        """The inverse of `permute`."""
        return sum(((permuted >> m.take) & m.mask) << m.put for m in self._backward)


def _moves(bits: int, blocks: Sequence[Block]) -> Iterator[Move]:
    """The runs to copy, neighbours that stay neighbours taken together."""
    runs: list[Block] = []
    for block in blocks:
        if runs and runs[-1].end == block.start:
            runs[-1] = Block(runs[-1].start, runs[-1].width + block.width)
        else:
            runs.append(block)
    put = bits
    for run in runs:
        put -= run.width
        yield Move(bits - run.end, (1 << run.width) - 1, put)


@dataclass(frozen=True)
class Design:
    """A set of permutation tables over `bits`-bit fingerprints that together find every pair within `k` bits."""

    name: str
    bits: int
    k: int
    tables: tuple[Table, ...]

    @property
    def shortest_prefix(self) -> int:
        """The least p among the tables: bucket keys can be no longer."""
        return min(table.prefix for table in self.tables)

    def shares_prefix(self, a: int, b: int) -> bool:
        """Whether some table's probe for `a` meets `b` (symmetric)."""
        different = a ^ b
        return any((different & table.lead).bit_count() <= table.radius for table in self.tables)

    def describe(self) -> dict[str, object]:
        """The design as JSON-able data; equal descriptions are equal designs."""
        return {
            "name": self.name,
            "bits": self.bits,
            "k": self.k,
            "radius": self._radius(),
            "tables": [[t.prefix, [[b.start, b.width] for b in t.blocks]] for t in self.tables],
        }

    def _radius(self) -> int | list[int]:
        """One for all tables, or each its own."""
        radii = [table.radius for table in self.tables]
        return radii[0] if len(set(radii)) == 1 else radii


class _Described(msgspec.Struct):
    """What `Design.describe` gives."""

    name: str
    bits: int
    k: int
    radius: int | list[int]
    tables: list[tuple[int, list[tuple[int, int]]]]


def described(data: dict[str, object]) -> Design:
    """The design that `Design.describe` gave as `data`.

    Raises:
        DesignError: the data is no design.
    """
    try:
        found = msgspec.convert(data, _Described)
    except msgspec.ValidationError as error:
        raise DesignError(f"not the description of a design: {error}") from error
    radii = [found.radius] * len(found.tables) if isinstance(found.radius, int) else found.radius
    if len(radii) != len(found.tables):
        raise DesignError(f"not the description of a design: {len(radii)} radii of {len(found.tables)} tables")
    tables = (
        Table(found.bits, tuple(Block(*b) for b in blocks), prefix, radius)
        for (prefix, blocks), radius in zip(found.tables, radii, strict=True)
    )
    return Design(found.name, found.bits, found.k, tuple(tables))


def cut(start: int, width: int, parts: int) -> tuple[Block, ...]:
    """`width` bits from `start` in `parts` blocks of nearly equal width, the wider ones first."""
    if not 0 < parts <= width:
        raise DesignError(f"{width} bits cannot be cut into {parts} blocks")
    small, wider = divmod(width, parts)
    blocks = []
    for index in range(parts):
        block = Block(start, small + (index < wider))
        blocks.append(block)
        start = block.end
    return tuple(blocks)


def guaranteed(parts: int, lead: int, radius: int = 0) -> int:
    """The largest k at which some `lead` of `parts` blocks hold at most `radius` of the differing bits.

    To defeat every choice, the `lead` least-hit blocks must together hold radius + 1 differing bits, and each of the
    others at least as many as the fullest of those.
    """
    fullest = math.ceil((radius + 1) / lead)
    return radius + (parts - lead) * fullest


def choose(parts: int, lead: int, bits: int = 64, radius: int = 0, name: str | None = None) -> Design:
    """The design of `parts` blocks with every choice of `lead` of them in front: C(parts, lead) tables.

    Raises:
        DesignError: no such design.
    """
    if not 0 < lead <= parts:
        raise DesignError(f"cannot lead with {lead} of {parts} blocks")
    blocks = cut(0, bits, parts)
    tables = tuple(_led(bits, blocks, chosen, radius) for chosen in combinations(range(parts), lead))
    label = name or f"{parts}c{lead}" + (f"r{radius}" if radius else "")
    return Design(label, bits, guaranteed(parts, lead, radius), tables)


def _led(bits: int, blocks: Sequence[Block], chosen: Sequence[int], radius: int = 0) -> Table:
    lead = [blocks[i] for i in chosen]
    rest = [block for i, block in enumerate(blocks) if i not in chosen]
    return Table(bits, (*lead, *rest), sum(block.width for block in lead), radius)


def parted(parts: Sequence[tuple[int, int]], bits: int = 64, name: str = "") -> Design:
    """A table for each part, which leads in it, with a radius of its own; k is the sum of the radii + m - 1.

    Args:
        parts: width and radius of each; the widths are scaled to `bits`.

    Raises:
        DesignError: no such design.
    """
    whole = sum(width for width, _ in parts)
    ends = [bits * sum(width for width, _ in parts[:n]) // whole for n in range(len(parts) + 1)]
    blocks = tuple(Block(start, end - start) for start, end in itertools.pairwise(ends))
    tables = tuple(_led(bits, blocks, [n], radius) for n, (_, radius) in enumerate(parts))
    return Design(name, bits, sum(radius for _, radius in parts) + len(parts) - 1, tables)


def _parts_in(text: str) -> list[tuple[int, int]]:
    """`20+20+24r1` as widths and radii."""
    cut_at = (part.partition("r") for part in text.split("+"))
    return [(int(width), int(radius or 0)) for width, _, radius in cut_at]


def nested(outer: int, inner: int, bits: int = 64, name: str | None = None) -> Design:
    """`outer` blocks, each in turn in front; behind it the rest cut into `inner` blocks, each in turn second.

    k = min(outer, inner) - 1: one outer block is free of differing bits, and then one inner block is.

    Raises:
        DesignError: no such design.
    """
    tables = []
    for index, front in enumerate(blocks := cut(0, bits, outer)):
        gaps = [block for i, block in enumerate(blocks) if i != index]
        for second in _cut_across(gaps, inner):
            rest = _without(gaps, second)
            tables.append(Table(bits, (front, *second, *rest), front.width + sum(b.width for b in second)))
    return Design(name or f"{outer}x{inner}", bits, min(outer, inner) - 1, tuple(tables))


def _cut_across(blocks: Sequence[Block], parts: int) -> Iterator[tuple[Block, ...]]:
    """Cut the concatenation of `blocks` into `parts` of nearly equal width; a part may span several blocks."""
    for part in cut(0, sum(block.width for block in blocks), parts):
        pieces, offset = [], 0
        for block in blocks:
            low, high = max(part.start, offset), min(part.end, offset + block.width)
            if low < high:
                pieces.append(Block(block.start + low - offset, high - low))
            offset += block.width
        yield tuple(pieces)


def _without(blocks: Sequence[Block], taken: Sequence[Block]) -> Iterator[Block]:
    """What is left of `blocks` when `taken` (pieces of them) are cut out."""
    for block in blocks:
        start = block.start
        for piece in sorted((p for p in taken if block.start <= p.start < block.end), key=lambda p: p.start):
            if start < piece.start:
                yield Block(start, piece.start - start)
            start = piece.end
        if start < block.end:
            yield Block(start, block.end - start)


def halved(parts: int, lead: int, bits: int = 64, name: str | None = None) -> Design:
    """Each half of the bits cut into `parts` blocks, every choice of `lead` of a half's blocks in front.

    Of 2 k' + 1 differing bits one half holds at most k', and its own tables find the pair: fewer tables, for the same
    k and a shorter prefix, than choosing among all blocks (6 tables with p = 21 instead of 10 with p = 25 at k = 3).

    Raises:
        DesignError: no such design.
    """
    if not 0 < lead <= parts:
        raise DesignError(f"cannot lead with {lead} of {parts} blocks")
    left = bits // 2
    halves = cut(0, left, parts), cut(left, bits - left, parts)
    tables = tuple(
        _led(bits, (*halves[0], *halves[1]), [side * parts + i for i in chosen])
        for side in (0, 1)
        for chosen in combinations(range(parts), lead)
    )
    return Design(name or f"2({parts}c{lead})", bits, 2 * guaranteed(parts, lead) + 1, tables)


def covering(name: str, bits: int = 64) -> Design:
    """One of `COVERINGS`: blocks of equal width, and a list of the blocks that lead in each table.

    Fewer tables than all choices, for the same k: a table finds a pair when no more than its radius of the differing
    bits are in its leading blocks, so the lists need only leave one for any k bits.
    """
    parts, radius, leads = COVERINGS[name]
    blocks = cut(0, bits, parts)
    k = next(n for n in range(parts) if not _covers(parts, radius, leads, n + 1))
    return Design(name, bits, k, tuple(_led(bits, blocks, lead, radius) for lead in leads))


def _covers(parts: int, radius: int, leads: Sequence[Sequence[int]], bits: int) -> bool:
    """Whether, whichever blocks so many differing bits are in, some table's leading blocks hold at most `radius`."""
    placed = combinations_with_replacement(range(parts), bits)
    return all(any(sum(block in lead for block in hit) <= radius for lead in leads) for hit in placed)


def design(name: str, bits: int = 64) -> Design:
    """The design called `name`: one of `NAMES`, or in words of its own.

    `<m>c<c>`: m blocks choose c; `<m>c<c>r1`: probed at distance 1 too; `2(<m>c<c>)`: in each half; `<a>x<b>`: nested;
    `<w>+<w>+<w>r1`: parts of these widths, each leading in a table, some probed at distance 1 too.

    Raises:
        DesignError: there is no such design for fingerprints of `bits` bits, or it has more than `MOST_TABLES`.
    """
    if name in COVERINGS:
        return covering(name, bits)
    text = DESIGNS.get(name, name)
    for pattern, count, make in _GRAMMAR:
        if found := pattern.fullmatch(text):
            first, second = int(found[1]), int(found[2])
            if first <= bits and (tables := count(first, second)) > MOST_TABLES:
                raise DesignError(f"{name!r} has {tables:,} tables: {MOST_TABLES} are the most that a design can have")
            return make(first, second, bits, name)
    if _PARTS.fullmatch(text):
        return parted(_parts_in(text), bits, name)
    known = ", ".join(NAMES)
    raise DesignError(
        f"unknown design {name!r}: give one of {known}, or McC, McCr1 (probes at distance 1), 2(McC), AxB, W+W+Wr1"
    )


MOST_TABLES = 600
"""Each page is looked for and stored in every table. The 561 for all pairs within 32 bits are far beyond all use."""
_GRAMMAR: tuple[
    tuple[re.Pattern[str], Callable[[int, int], int], Callable[[int, int, int, str], Design]],
    ...,
] = (
    (re.compile(r"(\d{1,4})c(\d{1,4})"), math.comb, lambda m, c, bits, name: choose(m, c, bits, 0, name)),
    (re.compile(r"(\d{1,4})c(\d{1,4})r1"), math.comb, lambda m, c, bits, name: choose(m, c, bits, 1, name)),
    (re.compile(r"2\((\d{1,4})c(\d{1,4})\)"), lambda m, c: 2 * math.comb(m, c), halved),
    (re.compile(r"(\d{1,4})x(\d{1,4})"), operator.mul, nested),
)

_PARTS = re.compile(r"[1-9]\d{0,2}(r1)?(\+[1-9]\d{0,2}(r1)?){0,31}")

# The paper's four (section 3.1.2) by their number of tables; the default's; one for k = 4; two that trade probes for
# memory.
DESIGNS = {
    "3": "20+20+24r1",
    "4": "4c1",
    "6": "2(3c2)",
    "10": "5c2",
    "16": "4x4",
    "20": "6c3",
    "15": "6c2",
    "2-probed": "2c1r1",
    "6-probed": "4c2r1",
}

# Number of blocks, radius, and leading blocks of each table; all have k = 3. The 11 are the translates of the squares
# modulo 11 (a biplane), the 14 the blocks of the Steiner system S(3, 4, 8): quadruples whose exclusive or is 0. Of
# three bits one of two disjoint leads has at most one, which is k = 3 with two probed tables; of `3-probed` the
# third is the one, of leads of 28 bits, that adds most beyond k (found by trying).
COVERINGS: dict[str, tuple[int, int, tuple[tuple[int, ...], ...]]] = {
    "3-probed": (16, 1, ((0, 1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12, 13), (0, 3, 6, 10, 13, 14, 15))),
    "8": (8, 0, ((4, 6, 7), (0, 5, 7), (0, 1, 6), (1, 2, 7), (0, 2, 3), (1, 3, 4), (2, 4, 5), (3, 5, 6))),
    "11": (11, 0, tuple(tuple(sorted((square + i) % 11 for square in (1, 3, 4, 5, 9))) for i in range(11))),
    "14": (8, 0, tuple(q for q in combinations(range(8), 4) if q[0] ^ q[1] ^ q[2] ^ q[3] == 0)),
}
NAMES = (*DESIGNS, *COVERINGS)


BY_SIZE = ((30_000_000, "3"), (300_000_000, "3-probed"), (None, "6-probed"))
"""Up to how many documents (None: any number) which tables are cheapest, k = 3. Beyond, their prefixes meet too many
candidates: about a hundred a page at each step. Longer prefixes that are probed at distance 1 find as many pairs."""
MOST_K = 32
"""The most that can be asked for: half of the usual 64 bits, in 561 tables (`simhash.relation.tables.MOST_TABLES`)."""
BY_K = ("3", "15", "2(4c2)", "8c2", "2(5c2)")
"""Tables that find all pairs within 3, 4, 5, 6 and 7 bits."""


def design_for(k: int, bits: int) -> Design:
    """The fewest tables known here that find every pair within k bits; DesignError where there are none."""
    designs = (design(name, bits) for name in BY_K)
    return next((each for each in designs if each.k >= k), None) or design(f"{k + 2}c2", bits)


def automatic_design(k: int, bits: int, documents: int) -> Design:
    """The tables of a new index for `documents` unique pages; DesignError where there are none."""
    found = design_for(k, bits)
    if found.name != BY_K[0]:
        return found
    return design(next(name for most, name in BY_SIZE if most is None or documents <= most), bits)
