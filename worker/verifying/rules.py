"""What matches, as plain data: a table of the shipped profiles, what flags say, and what an index says of itself.

Two pages match when they meet (share the leading bits of a permutation table, or a band key), their fingerprints differ
in at most `reach` bits and their verifiers in at most `verifier_reach`. Verdicts do not say which tables there are, so
without a design only this is certain: a pair within k bits meets in every design, and so does one with a band key in
common. Other pairs within reach may be found, and need not be.

**Full places.** A prefix of a table, or the beginning of a band key, takes `place_limit` pages at most, the oldest:
2,304 divided by the number of tables and bands, a table that is probed at distance 1 counted twice, and 8 at least, if
no flag says otherwise. A page that was stored when so many stood there already is not found there; exact copies (the
same fingerprint and digest) are found all the same. Of the places one bit away from a page's own at least
`neighbour_limit` pages of each are compared, the oldest. Which places were full can be counted from outside: a place's
pages are the unique ones with these bits, in the order of their numbers. With a design that is exact, but that more
than that may be found one bit away. Without one, a pair counts as missed only if it would have been found in *every*
design that the index may have, which is never wrong and sees less in crowds. So it is of an index that was migrated:
nothing says which pages were judged by which of its tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from worker.errors import SettingsError
from worker.verifying.table_masks import DesignTables, exported
from worker.verifying.told import Head
from worker.verifying.verdict_columns import Numbers

BAND_BITS = 32
MOST_COMPARED, LEAST_IN_PLACE = 2304, 8
BUCKET_BITS = 15
"""What an index has that is laid out for a million pages, as `file` does; one for fewer has less: `--index` tells."""
PLACE_BITS = 7
"""How many bits of a band key, behind the bucket's, make up its place."""


class Shipped(NamedTuple):
    """What a profile says of matches; `verifier_reach` None: it has no verifier."""

    k: int
    reach: int
    verifier_reach: int | None = None
    verifier_bits: int = 64
    bands: int = 0
    fold: int = 1


PROFILES = {
    "default/2": Shipped(k=3, reach=14, verifier_reach=76, verifier_bits=344, bands=6, fold=2),
    "lean/1": Shipped(k=3, reach=14, verifier_reach=29, verifier_bits=128, bands=4, fold=2),
    "loose/1": Shipped(k=3, reach=16, verifier_reach=52, verifier_bits=256, bands=8),
    "default/1": Shipped(k=3, reach=12, verifier_reach=20, verifier_bits=128, bands=3),
    "segmented/1": Shipped(k=3, reach=6, verifier_reach=14),
    "jieba-keywords/1": Shipped(k=3, reach=3),
    "jieba-tutorial/1": Shipped(k=3, reach=3),
}


@dataclass(frozen=True)
class Rule:
    """The relation.

    Attributes:
        design: its tables; None: not known.
        fold: of how many minima each bit of a verifier is the exclusive or: how similar two pages are depends on it.
        given_limit: how many pages a place takes, if somebody said so; 0: any number.
        bucket_bits: b; with `PLACE_BITS` the width of a band's place.
    """

    k: int
    reach: int
    verifier_reach: int | None
    verifier_bits: int
    bands: int
    fold: int = 1
    design: DesignTables | None = None
    given_limit: int | None = None
    bucket_bits: int = BUCKET_BITS

    def place_limit(self, design: DesignTables) -> int:
        """How many pages a place takes in an index of that design; 0: any number."""
        if self.given_limit is not None:
            return self.given_limit
        return max(LEAST_IN_PLACE, MOST_COMPARED // (len(design.leads) + sum(map(bool, design.radii)) + self.bands))

    def neighbour_limit(self, design: DesignTables, probes: int) -> int:
        """How many pages of each place one bit away are found at least, in a table with so many probes; 0: all."""
        if self.given_limit is not None:
            return self.given_limit
        return max(LEAST_IN_PLACE, self.place_limit(design) // max(1, probes - 1))

    def similarity(self, different: Numbers, bits: int) -> Numbers:
        """In thousandths, the Jaccard similarity of sketches of so many bits, so many of them different."""
        agreeing = np.maximum(0, 1 - 2 * different / bits)
        return np.rint(1000 * agreeing ** (1 / self.fold)).astype(np.int64)

    @property
    def place_bits(self) -> int:
        """Leading bits of a band key that share a place."""
        return min(BAND_BITS, self.bucket_bits + PLACE_BITS)


@dataclass(frozen=True)
class Given:
    """What flags say; None: nothing. `verifier_reach` below 0: there is no verifier."""

    k: int | None = None
    reach: int | None = None
    verifier_reach: int | None = None
    verifier_bits: int | None = None
    bands: int | None = None
    fold: int | None = None
    place_limit: int | None = None
    bucket_bits: int | None = None


def rule_of(profile: str, head: Head | None, given: Given, design: DesignTables | None) -> Rule:
    """The relation of verdicts of `profile`: what flags say, else the index, else the profile.

    Raises:
        SettingsError: nobody says.
    """
    shipped = PROFILES.get(profile)
    if shipped is None and head is None and (given.k is None or given.reach is None):
        raise SettingsError(f"profile {profile} is not a shipped one: give --k, --reach and what its verifier has")
    base = shipped or Shipped(3, 3)
    rule = Rule(*base, design=design, given_limit=given.place_limit)
    if head is not None:
        present = exported(head.design)
        rule = replace(
            rule,
            reach=head.reach,
            verifier_reach=head.verifier_reach,
            verifier_bits=head.verifier_bits,
            bands=head.bands,
            fold=head.fold,
            bucket_bits=min(head.bucket_bits, BUCKET_BITS) if head.is_migrated else head.bucket_bits,
            design=design or (None if head.is_migrated else present),
        )
    names = ("k", "reach", "verifier_reach", "verifier_bits", "bands", "fold", "bucket_bits")
    said = {name: value for name in names if (value := getattr(given, name)) is not None}
    rule = replace(rule, **said)
    return replace(rule, verifier_reach=None) if (rule.verifier_reach or 0) < 0 else rule
