"""What is read of an index on a cluster: all that a batch meets, in two rounds of one call a group; records decoded."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from simhash.index.cluster.judging import Stored, View
from simhash.index.cluster.nodes import Nodes
from simhash.index.cluster.placement import Logged, Placement, Probe, is_digest
from simhash.index.interface import Entry, Neighbour, Record
from simhash.index.layout import Layout, untagged


class Reader:
    """See the module.

    Raises (all methods): IndexFault.
    """

    def __init__(self, nodes: Nodes, placement: Placement, layout: Layout) -> None:
        self._nodes = nodes
        self._placement = placement
        self._layout = layout
        self._reach = placement.spec.relation.reach

    def views(self, entries: Sequence[Entry]) -> tuple[list[View], dict[int | bytes, list[Stored]]]:
        """What the index holds near each page; all records of what is near, by fingerprint or tagged digest."""
        views = [View(entry, named(self._placement.key(entry))) for entry in entries]
        probes = [(view, probe) for view in views for probe in self._probes(view.entry)]
        own = list(dict.fromkeys(self._placement.key(entry) for entry in entries))
        operations = [probe.operation for _, probe in probes] + [self._placement.stored_under(key) for key in own]
        found = self._nodes.read(self._placement, operations)
        for (view, probe), members in zip(probes, found[: len(probes)], strict=True):
            view.add(self._placement.fingerprints(probe, members), banded=probe.table is None)
        records = {key: self.records(key, field) for key, field in zip(own, found[len(probes) :], strict=True)}
        near = {self._layout.key_of(f) for view in views for f in view.near(self._reach)}
        records |= self.stored_under(list(near - records.keys()))
        return views, {named(key): stored for key, stored in records.items()}

    def stored_under(self, keys: Sequence[bytes]) -> dict[bytes, list[Stored]]:
        """The records of fingerprints and tagged digests."""
        fields = self._nodes.read(self._placement, [self._placement.stored_under(key) for key in keys])
        return {key: self.records(key, field) for key, field in zip(keys, fields, strict=True)}

    def logged(self, seqs: Sequence[int]) -> dict[int, Logged]:
        """The log's entries of records, of those that have one."""
        found = self._nodes.read(self._placement, [self._placement.logged(seq) for seq in seqs])
        return {seq: Placement.log_entry(value) for seq, value in zip(seqs, found, strict=True) if value is not None}

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        probes = list(self._placement.probes(fingerprint))
        found = self._nodes.read(self._placement, [probe.operation for probe in probes])
        met = {fingerprint}
        for probe, members in zip(probes, found, strict=True):
            met.update(self._placement.fingerprints(probe, members))
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
