"""What is read of an index on a cluster: all that a batch meets, in two rounds of one call a group; records decoded.

A call gives so much and no more (`group.lua`), that it holds nobody up. Of a crowd, pages under one prefix as templates
make them, the rest is asked for again, until there is no more. That is no moment's picture, and need not be: who reads
holds claims, so what matches their pages is either there from the first call to the last, or in nobody's way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from simhash.index.cluster.groups import Operation
from simhash.index.cluster.judging import Stored, View
from simhash.index.cluster.nodes import Nodes
from simhash.index.cluster.placement import Logged, Placement, Probe, is_digest
from simhash.index.interface import Entry, Neighbour, Record
from simhash.index.layout import Layout, untagged

RECORDS_AT_ONCE = 1000
"""So many records are asked for in one round; all of them may lie in one group."""
_MORE = b""
"""What stands behind the members of a bucket when there are more; a member has bytes."""


class Reader:
    """See the module.

    Attributes:
        cuts: how many calls gave less than they were asked for.

    Raises (all methods): IndexFault.
    """

    def __init__(self, nodes: Nodes, placement: Placement, layout: Layout) -> None:
        self._nodes = nodes
        self._placement = placement
        self._layout = layout
        self._reach = placement.spec.relation.reach
        self.cuts = 0

    def views(self, entries: Sequence[Entry]) -> tuple[list[View], dict[int | bytes, list[Stored]]]:
        """What the index holds near each page; all records of what is near, by fingerprint or tagged digest."""
        views = [View(entry, named(self._placement.key(entry))) for entry in entries]
        probes = [(view, probe) for view in views for probe in self._probes(view.entry)]
        own = list(dict.fromkeys(self._placement.key(entry) for entry in entries))
        members, fields = self._met([p for _, p in probes], [self._placement.stored_under(key) for key in own])
        for view, probe in probes:
            view.add(self._placement.fingerprints(probe, members[probe.operation]), banded=probe.table is None)
        records = {key: self.records(key, field) for key, field in zip(own, fields, strict=True)}
        near = {self._layout.key_of(f) for view in views for f in view.near(self._reach)}
        records |= self.stored_under(list(near - records.keys()))
        return views, {named(key): stored for key, stored in records.items()}

    def stored_under(self, keys: Sequence[bytes]) -> dict[bytes, list[Stored]]:
        """The records of fingerprints and tagged digests."""
        found: dict[bytes, list[Stored]] = {}
        for at in range(0, len(keys), RECORDS_AT_ONCE):
            some = keys[at : at + RECORDS_AT_ONCE]
            fields = self._nodes.read(self._placement, [self._placement.stored_under(key) for key in some])
            found |= {key: self.records(key, field) for key, field in zip(some, fields, strict=True)}
        return found

    def logged(self, seqs: Sequence[int]) -> dict[int, Logged]:
        """The log's entries of records, of those that have one."""
        found = self._nodes.read(self._placement, [self._placement.logged(seq) for seq in seqs])
        return {seq: Placement.log_entry(value) for seq, value in zip(seqs, found, strict=True) if value is not None}

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        probes = list(self._placement.probes(fingerprint))
        members, _ = self._met(probes, [])
        met = {fingerprint}
        for probe in probes:
            met.update(self._placement.fingerprints(probe, members[probe.operation]))
        near = {self._layout.key_of(f): f for f in met if (f ^ fingerprint).bit_count() <= self._reach}
        neighbours = [
            Neighbour(near[key], (near[key] ^ fingerprint).bit_count(), stored.record)
            for key, records in self.stored_under(list(near)).items()
            for stored in records
        ]
        return sorted(neighbours, key=lambda n: (n.distance, n.record.seq))

    def records(self, key: bytes, field: bytes | None) -> list[Stored]:
        """The records in what is stored under a key."""
        if not field:
            return []
        if is_digest(key):
            return [Stored(self.record(key, field), field)]
        records, at = [], 0
        while at < len(field):
            (length,) = struct.unpack_from(">H", field, at)
            data = field[at + 2 : at + 2 + length]
            records.append(Stored(self.record(key, data), data))
            at += 2 + length
        return records

    def record(self, key: bytes, data: bytes) -> Record:
        """The record in `data`, stored under `key`."""
        return self._layout.record(data, untagged(key) if is_digest(key) else None)

    def _met(
        self, probes: Sequence[Probe], others: Sequence[Operation]
    ) -> tuple[dict[Operation, list[bytes]], list[bytes | None]]:
        """The members that probes find, each bucket read once; what other operations find, in the first round."""
        members: dict[Operation, list[bytes]] = {probe.operation: [] for probe in probes}
        wanted = {operation: operation for operation in members}
        found = self._nodes.read(self._placement, [*wanted.values(), *others])
        fields = found[len(wanted) :]
        while wanted:
            cut: dict[Operation, Operation] = {}
            for (operation, asked), some in zip(wanted.items(), found, strict=False):
                if some[-1:] == [_MORE]:
                    some.pop()
                    cut[operation] = self._placement.behind(asked, some[-1]) if some else asked
                members[operation] += some
            self.cuts += len({operation.spot.group for operation in cut})
            wanted = cut
            found = self._nodes.read(self._placement, list(wanted.values())) if wanted else []
        return members, fields

    def _probes(self, entry: Entry) -> list[Probe]:
        if entry.fingerprint is None:
            return []
        return [*self._placement.probes(entry.fingerprint), *self._placement.band_probes(entry.verifier)]


def named(key: bytes) -> int | bytes:
    """A fingerprint as a number, a tagged digest as it is."""
    return key if is_digest(key) else int.from_bytes(key)


def fingerprint_of(key: bytes) -> int | None:
    """The fingerprint; None: it is a tagged digest."""
    return None if is_digest(key) else int.from_bytes(key)
