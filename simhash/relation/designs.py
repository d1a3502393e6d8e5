"""Which permutation tables an index gets where nobody names any: by the profile's k and the expected size."""

from __future__ import annotations

from simhash.relation.tables import Design
from simhash.relation.tables import design as find_design

SMALL_INDEX_DOCUMENTS = 10_000_000
"""Up to here the 6 tables are cheapest; above, their prefixes of 21 bits meet too many candidates."""
SMALL, LARGE = "6", "14"
MOST_K = 32
"""The most that can be asked for: half of the usual 64 bits, in 561 tables (`simhash.relation.tables.MOST_TABLES`)."""
BY_K = (SMALL, "15", "2(4c2)", "8c2", "2(5c2)")
"""Tables that find all pairs within 3, 4, 5, 6 and 7 bits."""


def design_for(k: int, bits: int) -> Design:
    """The fewest tables known here that find every pair within k bits; DesignError where there are none."""
    designs = (find_design(name, bits) for name in BY_K)
    return next((each for each in designs if each.k >= k), None) or find_design(f"{k + 2}c2", bits)


def automatic_design(k: int, bits: int, documents: int) -> Design:
    """The tables of a new index for `documents` unique pages; DesignError where there are none."""
    found = design_for(k, bits)
    return find_design(LARGE, bits) if found.name == SMALL and documents > SMALL_INDEX_DOCUMENTS else found
