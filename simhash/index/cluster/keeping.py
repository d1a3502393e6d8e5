"""Whether a cluster still has what it was given: receipts for the claim slot, the ledger for all groups, replicas.

The claim slot is looked after as one primary is (`simhash.index.safekeeping`): a history for each server that it lies
on, receipts beside commits. What it knows of the groups (`ledger`) is held against them whenever one refuses a call,
and whenever receipts are presented.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from simhash.errors import IndexLost, IndexUnreachable, IndexUnreplicated
from simhash.index.cluster.claims import ATTEMPTS, Claims
from simhash.index.cluster.ledger import Kept, settled
from simhash.index.cluster.nodes import Nodes, Unsettled, translated_on_cluster
from simhash.index.cluster.placement import Placement
from simhash.index.faults import IN_DOUBT, REBUILD
from simhash.index.safekeeping import Durability, Safekeeping, receipt_in

log = logging.getLogger(__name__)

T = TypeVar("T")


class Keeper:
    """See the module. Raises IndexFault.

    Args:
        safekeeping: of the claim slot.
    """

    def __init__(
        self, nodes: Nodes, placement: Placement, claims: Claims, safekeeping: Safekeeping, durability: Durability
    ) -> None:
        self._nodes = nodes
        self._placement = placement
        self._claims = claims
        self._safekeeping = safekeeping
        self._durability = durability
        self._change = ""

    def receipt(self) -> str:
        """See `Index.receipt`."""
        return str(self._safekeeping.receipt or "")

    def told(self, seq: int) -> None:
        """This number was named in an answer."""
        self._safekeeping.told(seq)

    def present(self, receipts: Iterable[str]) -> None:
        """See `Index.present`: the claim slot, then all groups."""
        with translated_on_cluster():
            # Where the server that it was on is still there, the slot was moved at most.
            moved = self._safekeeping.server() in self._nodes.servers()
            self._safekeeping.present(filter(None, map(receipt_in, receipts)), moved)
        self.settle()

    def server_change(self) -> str:
        """See `Index.server_change`; also what another worker met and settled."""
        self._tell()
        return self._safekeeping.change or self._change

    def accept(self) -> None:
        """Take the index as it is, whatever receipts and the ledger say of it."""
        with translated_on_cluster():
            self._safekeeping.accept()
        self._settle(lambda kept, found: None)

    def begin(self) -> None:
        """Look at the groups of an index that is new."""
        if not self._claims.groups()[0].known:
            self.settle()

    def settle(self) -> None:
        """Hold all groups against what was finished there; from here on their servers are those that they have now.

        Raises:
            IndexLost: one lacks something.
        """
        self._settle(self._refuse_loss)

    def steadily(self, action: Callable[[], T]) -> T:
        """Do something that may be done again, and settle the groups when one of them has changed its server."""
        for _ in range(ATTEMPTS):
            try:
                return action()
            except Unsettled:
                self.settle()
        raise IndexUnreachable("the primaries of the Redis Cluster change all the time")

    def replicated(self) -> None:
        """See `Index.replicated`."""
        wanted, wait_ms = self._durability.replicas, self._durability.wait_ms
        if not wanted:
            return
        try:
            found = self._nodes.acknowledged(self._placement, self._claims.touching(), wanted, wait_ms)
        except Unsettled as error:
            self.settle()
            raise IndexUnreplicated(
                "a primary was exchanged while a batch was judged: nobody can say who has it"
            ) from error
        if found < wanted:
            raise IndexUnreplicated(
                f"{found} of {wanted} replicas (wait_replicas) of a primary acknowledged a batch within {wait_ms} ms "
                "(wait_timeout)"
            )

    def _settle(self, refuse: Callable[[Sequence[Kept], Sequence[Kept]], None]) -> None:
        for _ in range(ATTEMPTS):
            kept = self._claims.groups()
            found = self._nodes.look(self._placement, kept)
            if any(f.calls < k.calls for k, f in zip(kept, found, strict=True)) and self._claims.groups() != kept:
                continue  # the groups of a generation that is over, or was given up, are removed
            refuse(kept, found)
            pairs = enumerate(zip(kept, found, strict=True))
            rows = [settled(group, k, f) for group, (k, f) in pairs if k.server != f.server or f.calls < k.calls]
            if not rows or self._claims.settle(rows):
                self._claims.groups()
                self._tell()
                return
        raise IndexUnreachable("the primaries of the Redis Cluster change all the time")

    def _tell(self) -> None:
        """Say which groups have left which servers. Where all of those are still there, only slots were moved."""
        left = self._nodes.ledger.left
        if not left:
            return
        servers = self._nodes.servers()
        places = ", ".join(sorted({self._nodes.place(self._placement.written(group)) for group in left}))
        others = f"{len(left)} of the index's {self._placement.groups} groups are on another server now ({places})"
        gone = not servers.issuperset(left.values())
        left.clear()
        if not gone:
            log.info("%s: slots were moved; they have all that was finished", others)
            return
        self._change = f"Redis was restarted or failed over: {others}"
        log.warning("%s; they have all that was finished. %s", self._change, IN_DOUBT)

    def _refuse_loss(self, kept: Sequence[Kept], found: Sequence[Kept]) -> None:
        lacking = [group for group, (k, f) in enumerate(zip(kept, found, strict=True)) if f.calls < k.calls]
        if lacking:
            places = sorted({self._nodes.place(self._placement.written(group)) for group in lacking})
            raise IndexLost(
                f"the primary at {', '.join(places)} lacks parts of pages whose verdicts were committed, in "
                f"{len(lacking)} of the index's {len(kept)} groups: it was flushed, restored from an older copy, or "
                f"replaced by a replica that was behind. {REBUILD}"
            )
        if not self._durability.verify_changes:
            self._refuse_changes(kept, found)

    def _refuse_changes(self, kept: Sequence[Kept], found: Sequence[Kept]) -> None:
        """A slot that was moved is no change: the server that it came from is still there."""
        alive = self._nodes.servers()
        for group, (k, f) in enumerate(zip(kept, found, strict=True)):
            if k.known and k.server != f.server and k.server not in alive:
                raise IndexLost(
                    f"the primary at {self._nodes.place(self._placement.written(group))} was restarted, restored or "
                    f"failed over (replication id {k.server.hex()}, now {f.server.hex()}), and on_server_change is "
                    f"stop: if nothing was lost, simhash-dedup index accept says so. Otherwise: {REBUILD}"
                )
