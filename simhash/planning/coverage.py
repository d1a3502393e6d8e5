"""Which pairs the tables of a design meet, exactly: of all pairs at a distance, the share that some probe finds.

Whether a table finds a pair depends only on how many differing bits fall into its prefix. Bits that belong to the
prefixes of the same tables are alike; a design has few such groups. So all ways to place the differing bits are counted
group by group, remembering of each table no more than whether its prefix is still near enough.
"""

from __future__ import annotations

from collections import Counter
from math import comb

from simhash.tables import Design

_Hits = tuple[int, ...]


def coverage(design: Design, reach: int) -> list[float]:
    """The share of the pairs at distance 0, 1 ... `reach` that share (within the design's radius) a table's prefix."""
    missed = _missed(design, reach)
    return [1.0 - missed[distance] / comb(design.bits, distance) for distance in range(reach + 1)]


def with_bands(share: float, bands: int, rows: int, similarity: float) -> float:
    """The share found by tables or bands, for texts of that Jaccard similarity.

    A band key is shared with probability similarity ** rows (`simhash.sketch`); bands and tables are taken to find
    independently of each other.
    """
    return 1.0 - (1.0 - share) * (1.0 - similarity**rows) ** bands


def groups(design: Design) -> Counter[tuple[int, ...]]:
    """How many bits are in the prefixes of exactly these tables."""
    found: Counter[tuple[int, ...]] = Counter()
    for bit in range(design.bits):
        found[tuple(n for n, table in enumerate(design.tables) if table.lead >> bit & 1)] += 1
    return found


def _missed(design: Design, reach: int) -> list[int]:
    """How many placements of 0, 1 ... `reach` differing bits no table finds."""
    enough = design.radius + 1
    gone: _Hits = (enough,) * len(design.tables)
    ways: Counter[tuple[_Hits, int]] = Counter({((0,) * len(design.tables), 0): 1})
    for tables, width in groups(design).items():
        after: Counter[tuple[_Hits, int]] = Counter()
        for (hits, used), count in ways.items():
            for more in range(min(width, reach - used) + 1):
                after[_hit(hits, tables, more, enough), used + more] += count * comb(width, more)
        ways = after
    return [ways[gone, distance] for distance in range(reach + 1)]


def _hit(hits: _Hits, tables: tuple[int, ...], more: int, enough: int) -> _Hits:
    if not more:
        return hits
    changed = list(hits)
    for number in tables:
        changed[number] = min(enough, changed[number] + more)
    return tuple(changed)
