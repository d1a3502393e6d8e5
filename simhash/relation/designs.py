"""Which permutation tables an index gets where nobody names any: by the profile's k and the expected size."""

from __future__ import annotations

from simhash.relation.tables import Design
from simhash.relation.tables import design as find_design

BY_SIZE = ((30_000_000, "3"), (300_000_000, "3-probed"), (None, "6-probed"))
"""Up to how many documents (None: any number) which tables are cheapest, k = 3. Beyond, their prefixes meet too many
candidates: about a hundred a page at each step. Longer prefixes that are probed at distance 1 find as many pairs."""
MOST_K = 32
"""The most that can be asked for: half of the usual 64 bits, in 561 tables (`simhash.relation.tables.MOST_TABLES`)."""
BY_K = ("3", "15", "2(4c2)", "8c2", "2(5c2)")
"""Tables that find all pairs within 3, 4, 5, 6 and 7 bits."""


def design_for(k: int, bits: int) -> Design:
    """The fewest tables known here that find every pair within k bits; DesignError where there are none."""
    designs = (find_design(name, bits) for name in BY_K)
    return next((each for each in designs if each.k >= k), None) or find_design(f"{k + 2}c2", bits)


def automatic_design(k: int, bits: int, documents: int) -> Design:
    """The tables of a new index for `documents` unique pages; DesignError where there are none."""
    found = design_for(k, bits)
    if found.name != BY_K[0]:
        return found
    return find_design(next(name for most, name in BY_SIZE if most is None or documents <= most), bits)
