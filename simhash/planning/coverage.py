"""Which pairs the tables of a design meet, exactly: of all pairs at a distance, the share that some probe finds.

Whether a table finds a pair depends only on how many differing bits fall into its prefix. Bits that belong to the
prefixes of the same tables are alike; a design has few such groups. So all ways to place the differing bits are counted
group by group, remembering of the tables no more than how many bits have hit the least hit one of each kind.
"""

from __future__ import annotations

from collections import Counter
from math import comb

from simhash.relation.tables import Design

_Hits = tuple[int, ...]
_Group = tuple[int, ...]
_Kind = frozenset[_Group]
_Move = tuple[int, bool]


def coverage(design: Design, reach: int) -> list[float]:
    """The share of the pairs at distance 0, 1 ... `reach` that share a table's prefix, within its radius."""
    missed = _missed(design, reach)
    return [1.0 - missed[distance] / comb(design.bits, distance) for distance in range(reach + 1)]


def with_bands(share: float, bands: int, rows: int, similarity: float) -> float:
    """The share found by tables or bands, for texts of that Jaccard similarity.

    A band key is shared with probability similarity ** rows (`simhash.signature.minhash`). Bands and tables are taken
    to find independently of each other.
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
    widest = max(table.radius for table in design.tables)
    enough = widest + 1
    sizes = groups(design)
    ahead = [frozenset(group for group in sizes if number in group) for number in range(len(design.tables))]
    kinds = sorted(set(ahead), key=ahead.index)
    # A table of a smaller radius starts with the hits that it cannot bear.
    most = dict.fromkeys(kinds, 0)
    for table, kind in zip(design.tables, ahead, strict=True):
        most[kind] = max(most[kind], table.radius)
    spent = [widest - most[kind] for kind in kinds]
    ways: Counter[tuple[_Hits, int]] = Counter({(tuple(spent), 0): 1})
    for group, width in sizes.items():
        kinds, moves = _past(group, kinds)
        after: Counter[tuple[_Hits, int]] = Counter()
        for (hits, used), count in ways.items():
            for more in range(min(width, reach - used) + 1):
                after[_hit(hits, moves, more, enough), used + more] += count * comb(width, more)
        ways = after
    return [ways[(enough,), distance] for distance in range(reach + 1)]


def _past(group: _Group, kinds: list[_Kind]) -> tuple[list[_Kind], list[_Move]]:
    """The kinds of tables behind a group, and for each one before it: where it goes, and if the group's bits hit it.

    Tables that have the same groups before them are of one kind: of these only the least hit can still find more than
    the others. So 45 tables of pairs of 10 blocks are at most 11 kinds, and not 2^10 states.
    """
    after = list(dict.fromkeys(kind - {group} for kind in kinds))
    return after, [(after.index(kind - {group}), group in kind) for kind in kinds]


def _hit(hits: _Hits, moves: list[_Move], more: int, enough: int) -> _Hits:
    least = [enough] * (1 + max(place for place, _ in moves))
    for before, (place, touched) in zip(hits, moves, strict=True):
        least[place] = min(least[place], before + more if touched else before)
    return tuple(least)
