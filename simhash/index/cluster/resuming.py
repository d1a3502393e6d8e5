"""What others have left on a cluster: pages decided to be unique and partly written, records partly removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from simhash.index.cluster.answers import REMOVAL, Removal, Taken
from simhash.index.cluster.claims import Claims
from simhash.index.cluster.judging import Own, encoded, number_of
from simhash.index.cluster.keeping import Keeper
from simhash.index.cluster.nodes import Nodes, TakenOver
from simhash.index.cluster.placement import Placement
from simhash.index.cluster.reading import Reader
from simhash.index.cluster.removing import Remover


class Resumer:
    """Brings claims that have changed hands to their end. Raises IndexFault."""

    def __init__(
        self,
        nodes: Nodes,
        placement: Placement,
        claims: Claims,
        reader: Reader,
        keeper: Keeper,
        remover: Remover,
    ) -> None:
        self._nodes = nodes
        self._placement = placement
        self._claims = claims
        self._reader = reader
        self._keeper = keeper
        self._remover = remover

    def resume(self, nonce: int, taken: Sequence[Taken]) -> None:
        """Bring to its end what has been taken over."""
        writers = [writer for each in taken for writer in each.numbered.writers]
        pages = [each for each in taken if not each.removal]
        removals = [Removal(int.from_bytes(each.id.removeprefix(REMOVAL)), each.key) for each in taken if each.removal]

        def bring_to_end() -> None:
            if pages:
                self._write_again(nonce, pages, writers)
                pages.clear()
            if removals:
                self._remover.erase(nonce, removals, writers)

        with suppress(TakenOver):  # by somebody else who looks after it
            self._keeper.steadily(bring_to_end)

    def _write_again(self, nonce: int, pages: Sequence[Taken], writers: Sequence[int]) -> None:
        written, answers = [], {}
        for page in pages:
            data = page.numbered.record
            verifier = self._reader.record(page.key, data).verifier
            written += self._placement.insertion(page.key, data, verifier)
            answers[page.id] = encoded(0, Own(number_of(data)))
        self._nodes.write(self._placement, written, nonce, writers)
        self._claims.finish(nonce, answers, list(dict.fromkeys(page.journal for page in pages if page.journal)))
