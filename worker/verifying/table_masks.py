"""Permutation tables as masks: which bits of a fingerprint two pages must share to meet in a table.

This folder's own account of the designs that ARCHITECTURE.md lists ("Permutation tables");
`tests/redis/test_verify.py` holds the masks against those that the index has. A block is the positions of its bits,
counted from the left.

Worked example (8 bits, 4 blocks choose 1): the masks are 11000000, 00110000, 00001100 and 00000011.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from worker.errors import InputError, SettingsError
from worker.verifying.told import ExportedDesign

Block = Sequence[int]

NAMED = {
    "3": "20+20+24r1",
    "4": "4c1",
    "6": "2(3c2)",
    "10": "5c2",
    "15": "6c2",
    "16": "4x4",
    "20": "6c3",
    "2-probed": "2c1r1",
    "6-probed": "4c2r1",
}
LISTED: Mapping[str, tuple[int, int, str]] = {
    "3-probed": (16, 1, "0123456 789ABCD 036ADEF"),
    "8": (8, 0, "467 057 016 127 023 134 245 356"),
    "11": (11, 0, "13459 2456A 03567 14678 25789 3689A 0479A 0158A 01269 1237A 02348"),
    "14": (8, 0, "0123 0145 0167 0246 0257 0347 0356 1247 1256 1346 1357 2345 2367 4567"),
}
"""Number of blocks, radius, and the leading blocks of each table, a digit a block."""
WITHIN = dict.fromkeys(("3", "4", "6", "8", "10", "11", "14", "16", "20", "2-probed", "3-probed", "6-probed"), 3) | {
    "15": 4,
    "2(4c2)": 5,
    "8c2": 6,
    "2(5c2)": 7,
}
"""The designs that an index may have been given without a word, and the k within which each finds every pair."""
_PATTERN = re.compile(r"(?P<half>2\()?(?P<m>\d{1,3})(?P<how>[cx])(?P<c>\d{1,3})(?P<probed>r1)?(?(half)\))")


@dataclass(frozen=True)
class DesignTables:
    """A design.

    Attributes:
        leads: a mask of the leading bits for each table.
        radii: of each table: two pages meet there when they differ in at most so many bits of its lead, 0 or 1.
    """

    name: str
    bits: int
    leads: tuple[int, ...]
    radii: tuple[int, ...]

    @property
    def probes(self) -> tuple[int, ...]:
        """In how many places of each table a page is looked up."""
        return tuple(1 + radius * lead.bit_count() for lead, radius in zip(self.leads, self.radii, strict=True))

    @property
    def shortest(self) -> int:
        """The least number of bits that lead."""
        return min(lead.bit_count() for lead in self.leads)


def named(name: str, bits: int) -> DesignTables:
    """The design of that name.

    Raises:
        SettingsError: there is none.
    """
    if name in LISTED:
        count, radius, leads = LISTED[name]
        blocks = _cut(range(bits), count)
        chosen = ([blocks[int(digit, 16)] for digit in lead] for lead in leads.split())
        return DesignTables(name, bits, tuple(_mask(bits, lead) for lead in chosen), (radius,) * len(leads.split()))
    text = NAMED.get(name, name)
    if "+" in text:
        return _parted(name, text, bits)
    found = _PATTERN.fullmatch(text)
    if not found or int(found["c"]) < 1 or not 0 < int(found["m"]) <= bits:
        known = ", ".join([*NAMED, *LISTED])
        raise SettingsError(f"--design: {name!r} is none: one of {known}, or McC, McCr1, 2(McC), AxB, W+W+Wr1")
    leads_of = _nested if found["how"] == "x" else _chosen
    spans = (range(bits // 2), range(bits // 2, bits)) if found["half"] else (range(bits),)
    made = [lead for span in spans for lead in leads_of(span, int(found["m"]), int(found["c"]))]
    return DesignTables(
        name, bits, tuple(_mask(bits, lead) for lead in made), (1 if found["probed"] else 0,) * len(made)
    )


def _parted(name: str, text: str, bits: int) -> DesignTables:
    """Parts of the widths that are named, each the lead of a table; their sum is stretched to `bits`."""
    parts = [part.removesuffix("r1") for part in text.split("+")]
    if not all(part.isdecimal() for part in parts):
        raise SettingsError(f"--design: {name!r} is none: widths and a plus between them, like 20+20+24r1")
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + int(part))
    ends = [bits * end // ends[-1] for end in ends]
    leads = tuple(_mask(bits, [range(low, high)]) for low, high in pairwise(ends))
    return DesignTables(name, bits, leads, tuple(int(part.endswith("r1")) for part in text.split("+")))


def exported(design: ExportedDesign) -> DesignTables:
    """The design of an export's index.

    Raises:
        InputError: its blocks leave the fingerprint, or tables have no radius.
    """
    bits, tables = design.bits, design.tables
    radii = [design.radius] * len(tables) if isinstance(design.radius, int) else design.radius
    if len(radii) != len(tables) or any(start + width > bits for _, blocks in tables for start, width in blocks):
        raise InputError("the export's first row has no design: its tables are not those of one fingerprint")
    leads = [
        _mask(bits, [[bit for start, width in blocks for bit in range(start, start + width)][:prefix]])
        for prefix, blocks in tables
    ]
    return DesignTables(design.name, bits, tuple(leads), tuple(radii))


def possible(k: int, bits: int) -> list[DesignTables]:
    """All that an index may have that finds every pair within k bits, unless somebody named another."""
    names = [name for name, within in WITHIN.items() if within >= k] or [f"{k + 2}c2"]
    return [named(name, bits) for name in names]


def _cut(span: Block, parts: int) -> list[Block]:
    """Nearly equal parts, the longer ones first."""
    small, longer = divmod(len(span), parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + small + (part < longer))
    return [span[ends[i] : ends[i + 1]] for i in range(parts)]


def _chosen(span: Block, parts: int, leading: int) -> Iterator[Iterable[Block]]:
    yield from combinations(_cut(span, parts), leading)


def _nested(span: Block, outer: int, inner: int) -> Iterator[Iterable[Block]]:
    for block in _cut(span, outer):
        rest = [bit for bit in span if bit not in block]
        for second in _cut(rest, inner):
            yield [block, second]


def _mask(bits: object, blocks: Iterable[Block]) -> int:
    return sum(1 << (int(bits) - 1 - bit) for block in blocks for bit in block)  # type: ignore[call-overload]
