"""Forgetting on a cluster: what has expired, what an operator takes down, and what a worker left half removed.

A removal holds a claim, so that no page of the same fingerprint is written meanwhile. Members go before the record:
while that is there, whoever takes the removal over knows which members are its.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from simhash.errors import IndexBusy
from simhash.index.cluster.answers import Removal, Window
from simhash.index.cluster.claims import Claims
from simhash.index.cluster.groups import Operation
from simhash.index.cluster.judging import Stored
from simhash.index.cluster.keeping import Keeper
from simhash.index.cluster.nodes import Nodes, TakenOver
from simhash.index.cluster.placement import Placement, is_digest
from simhash.index.cluster.reading import Reader
from simhash.index.interface import Retention

REMOVALS_A_CALL = 256
WAITS_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


class Remover:
    """See the module.

    Raises (all methods): IndexFault.
    """

    def __init__(
        self,
        nodes: Nodes,
        placement: Placement,
        claims: Claims,
        reader: Reader,
        keeper: Keeper,
        retention: Retention,
    ) -> None:
        self._nodes = nodes
        self._placement = placement
        self._claims = claims
        self._reader = reader
        self._keeper = keeper
        self._retention = retention
        self._nothing_expires_before = 0

    def expire(self, now: int, window: Window, budget: int) -> None:
        """Remove what has expired, oldest first: what is too much at once, of what is too old at most `budget`."""
        while batch := self._expired(now, window, budget):
            removed, window = self._remove(batch, window)
            budget -= len(batch)
            if removed < len(batch):
                return  # in the way of a page that is being judged: the next call is soon enough

    def forget(self, seqs: Sequence[int]) -> int:
        """Remove records out of turn; how many of them there were.

        Raises:
            IndexBusy: a page of the same fingerprint is being judged; call again.
        """
        return sum(self._forget(seqs[at : at + REMOVALS_A_CALL]) for at in range(0, len(seqs), REMOVALS_A_CALL))

    def erase(self, nonce: int, removals: Sequence[Removal], writers: Sequence[int]) -> Window:
        """Remove records that are claimed by `nonce`, after its former holders have been barred.

        Raises:
            TakenOver: another one does it.
        """
        # From all groups: one of them may have seen a record that is gone now, and be about to delete its members.
        self._nodes.bar(self._placement, nonce, writers)
        left = self._reader.stored_under(list(dict.fromkeys(r.key for r in removals)))
        members: list[Operation] = []
        records: list[Operation] = []
        for removal in removals:
            members += self._members(removal, left)
            records += self._placement.removal_of_record(removal.key, removal.seq)
        if members:
            self._nodes.write(self._placement, members, nonce, [])
        self._nodes.write(self._placement, records, nonce, [])
        return self._claims.retired(nonce, [r.seq for r in removals])

    def _members(self, removal: Removal, left: dict[bytes, list[Stored]]) -> list[Operation]:
        """What is to be deleted beside the record, which is taken out of `left`."""
        if is_digest(removal.key):
            return []
        own = [stored for stored in left[removal.key] if stored.record.seq == removal.seq]
        left[removal.key] = [stored for stored in left[removal.key] if stored.record.seq != removal.seq]
        others = [stored.record.verifier for stored in left[removal.key]]
        fingerprint = int.from_bytes(removal.key)
        return [
            operation
            for stored in own
            for operation in self._placement.removal_of_members(fingerprint, stored.record.verifier, others)
        ]

    def _expired(self, now: int, window: Window, budget: int) -> list[Removal]:
        """What is to be removed next."""
        age, excess = self._retention.max_age_ms, max(0, window.floor - window.first)
        aged = age is not None and budget > 0 and now >= self._nothing_expires_before
        if not excess and not aged:
            return []
        found: list[Removal] = []
        count = min(REMOVALS_A_CALL, max(excess, budget))
        for seq, logged in self._reader.logged(range(window.first, window.first + count)).items():
            if seq >= window.floor and (age is None or logged.inserted_ms >= now - age):
                self._nothing_expires_before = logged.inserted_ms + (age or 0) + 1
                break
            found.append(Removal(seq, logged.key))
        return found

    def _remove(self, batch: Sequence[Removal], window: Window) -> tuple[int, Window]:
        """Claim and erase; how many could be claimed, and the window after it."""
        nonce, granted = self._claims.retire(batch)
        chosen = [(r, former) for r, former in zip(batch, granted, strict=True) if former is not None]
        if not chosen:
            return 0, window
        try:
            writers = [w for _, former in chosen for w in former]
            after = self._keeper.steadily(lambda: self.erase(nonce, [r for r, _ in chosen], writers))
        except TakenOver:
            return 0, window
        return len(chosen), after

    def _forget(self, seqs: Sequence[int]) -> int:
        there = 0
        for wait in WAITS_SECONDS:
            batch = [Removal(seq, logged.key) for seq, logged in self._reader.logged(seqs).items()]
            removed, _ = self._remove(batch, Window(0, 0)) if batch else (0, None)
            there += removed
            if removed == len(batch):
                return there
            time.sleep(wait * random.uniform(0.5, 1.5))
        raise IndexBusy("a page of the same fingerprint as one to be forgotten is being judged")
