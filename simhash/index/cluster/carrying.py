"""The claim slot's calls of a migration: bytes for `migrating.lua`, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simhash.index.cluster.claims import Claims
from simhash.index.cluster.ledger import Kept, Ledger
from simhash.index.specs import flat

Fields = Mapping[str, str | int | bytes]


class Stretch(NamedTuple):
    """Numbers whose records are to be carried to the next generation.

    Attributes:
        nonce: of who carries them; former: of those who carried before him and did not come to their end.
        before, last: the last number before these, and the last of these; end: the last of all.
        free: those of them that no claim is on; some have no record any more.
    """

    nonce: int
    former: list[int]
    before: int
    last: int
    end: int
    free: list[int]


class Carrying:
    """See the module. Raises (all methods): IndexFault."""

    def __init__(self, claims: Claims, ledger: Ledger) -> None:
        self._claims = claims
        self._ledger = ledger

    def reserve(self, name: str) -> str:
        """What the tags of another generation's groups are to start with, which was never used; "": there is one, or
        groups of a former one are being removed."""
        return str(self._claims.call("reserve", name).decode())

    def begin(self, keys: str, groups: Sequence[Kept], spec: Fields) -> bool:
        """Have another generation written to beside this one; False: somebody else has swept it away.

        Args:
            keys: what was reserved.
            groups: its groups, as they were found to be.
            spec: as its meta has it.
        """
        return bool(self._claims.call("begin", keys, b"".join(kept.packed for kept in groups), *flat(spec)))

    def sweep(self, removed: str = "") -> str:
        """What is to be removed, now that this one is: what the tags of its groups start with; "": nothing."""
        return str(self._claims.call("sweep", removed).decode())

    def stretch(self, count: int) -> Stretch:
        """Take the next numbers, so many at most, to carry them."""
        nonce, groups, former, before, last, end, *free = self._claims.call("carry", count)
        self._ledger.learn(groups)
        return Stretch(nonce, [*map(int, former.split())], before, last, end, free)

    def carried(self, nonce: int) -> None:
        """The stretch is written.

        Raises:
            TakenOver: another program has taken one.
            Unsettled: what was written to a group may be lost, because it has another server now.
        """
        self._claims.call("carried", nonce, self._ledger.tallies())

    def switch(self, fields: Fields) -> list[bytes]:
        """Let the next generation take over, and meta have these fields; or the claims that must be ended before."""
        return list(self._claims.call("switch", *flat(fields)))

    def abandon(self) -> bool:
        """Give the next generation up; whether there was one."""
        return bool(self._claims.call("abandon"))
