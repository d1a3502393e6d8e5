"""How hot an index on a cluster is: told to the claim slot, for `index stats`, and seldom, so that it costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from simhash.index.cluster.claims import Claims
from simhash.index.cluster.judging import View
from simhash.index.cluster.reading import Reader
from simhash.index.surroundings import CROWD


class Crowds:
    """What the pages of one worker have met; the claim slot has the sum, and the most, of all."""

    def __init__(self, claims: Claims, reader: Reader) -> None:
        self._claims = claims
        self._reader = reader
        self._most = 0

    def note(self, views: Sequence[View]) -> None:
        """Tell of these pages, and of the calls that reading for them took: if there is anything new.

        Raises:
            IndexFault.
        """
        most = max((view.compared for view in views), default=0)
        crowds = sum(view.compared > CROWD for view in views)
        if most > self._most or crowds or self._reader.cuts:
            self._claims.met(most, crowds, self._reader.cuts)
            self._most, self._reader.cuts = max(most, self._most), 0
