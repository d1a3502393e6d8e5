"""An index on a cluster that is filled with rows: see `simhash.index.operations.Store`.

No script sees all that a stretch of records is written to. So the claim slot first keeps a plan of it; then the groups
are written; then one step in the claim slot counts the stretch in and drops the plan. Who goes on after a kill carries
the plan out once more, with its former writers barred: a stretch is stored whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from simhash.errors import IndexMigrated, IndexMismatch
from simhash.index.cluster.groups import Operation
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.nodes import Nodes, TakenOver
from simhash.index.cluster.opening import check_cluster, new_fields
from simhash.index.cluster.operations import OnCluster
from simhash.index.interface import Partition
from simhash.index.layout import OFFSET_BYTES, SEQ_BYTES, TIME_BYTES
from simhash.index.operations import Gap, Step
from simhash.index.rows import IndexRow, RecordRow
from simhash.index.specs import decoded
from simhash.index.transfer import SET_WHILE_FILLING, entry_of, name_of_import, refuse_journals, resumes, spec_in


class Passed(msgspec.Struct, frozen=True):
    """A record whose digest comes again: it was over when it did, and its place is taken."""

    seq: int
    key: bytes


class Plan(msgspec.Struct, frozen=True):
    """A stretch that is being stored: its records, numbers that have none, records that are lost over it; its end."""

    rows: list[RecordRow]
    gaps: list[int]
    passed: list[Passed]
    last: int


class ClusterStore(OnCluster):
    """See `simhash.index.operations.Store`. Made by `opened_on_cluster_for_import`.

    Raises (all methods): IndexMismatch: another program fills this index.
    """

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._nodes = inside.nodes
        self._nonce, former, plan = inside.claims.fill()
        self._steadily(lambda: self._nodes.bar(inside.placement, self._nonce, former))
        if plan:
            self._carry_out(msgspec.msgpack.decode(plan, type=Plan))

    def begin(self, seq: int) -> None:
        """See `Store.begin`."""
        self._steadily(lambda: self._inside.claims.fill_from(self._nonce, seq))

    @property
    def stored(self) -> int:
        """See `Store.stored`."""
        return self._number("seq")

    @property
    def inside(self) -> Inside:
        """The index that is being filled."""
        return self._inside

    def store(self, steps: Sequence[Step]) -> None:
        """See `Store.store`."""
        before = self._number("seq")
        plan = self._planned(before, steps)
        self._steadily(lambda: self._inside.claims.plan(self._nonce, before, msgspec.msgpack.encode(plan)))
        self._carry_out(plan)

    def set_mark(self, partition: Partition, offset: int) -> None:
        """See `Store.set_mark`."""
        self._set("mark", str(offset), self._inside.claims.journal(partition))

    def set_journal(self, partition: Partition, offset: int, value: bytes) -> None:
        """See `Store.set_journal`."""
        self._set(offset.to_bytes(OFFSET_BYTES), value, self._inside.claims.journal(partition))

    def give_out(self, seq: int) -> None:
        """See `Store.give_out`."""
        self.begin(seq + 1)

    def believe_earlier(self, before_ms: int, seq: int) -> None:
        """See `Store.believe_earlier`."""
        self._set("earlier", f"{before_ms} {seq}", self._inside.claims.meta)

    def release(self, generation: str) -> int:
        """See `Store.release`."""
        self._steadily(lambda: self._inside.claims.release(self._nonce, generation))
        return self._number("documents")

    def _planned(self, seq: int, steps: Iterable[Step]) -> Plan:
        """What storing these behind number `seq` comes to."""
        rows: list[RecordRow] = []
        gaps: list[int] = []
        for step in steps:
            if isinstance(step, Gap):
                gaps += range(seq + 1, seq + 1 + step.count)
                seq += step.count
            else:
                rows.append(step)
                seq = step.seq
        return Plan(rows, gaps, self._passed(rows), seq)

    def _passed(self, rows: Iterable[RecordRow]) -> list[Passed]:
        short = [(row.seq, self._inside.placement.key(entry_of(row))) for row in rows if row.fingerprint is None]
        stored = self._inside.reader.stored_under(list(dict.fromkeys(key for _, key in short)))
        latest = {key: each.record.seq for key, found in stored.items() for each in found}
        passed = []
        for seq, key in short:
            if key in latest:
                passed.append(Passed(latest[key], key))
            latest[key] = seq
        return passed

    def _carry_out(self, plan: Plan) -> None:
        passed = {each.seq for each in plan.passed}
        written = [operation for row in plan.rows if row.seq not in passed for operation in self._insertion(row)]
        for each in plan.passed:
            written += self._inside.placement.removal_of_record(each.key, each.seq)

        def carry_out() -> None:
            if written:
                self._nodes.write(self._inside.placement, written, self._nonce, [])
            self._inside.claims.planned(self._nonce, plan.last, len(plan.rows) - len(passed), [*plan.gaps, *passed])

        self._steadily(carry_out)

    def _insertion(self, row: RecordRow) -> list[Operation]:
        entry = entry_of(row)
        number = row.seq.to_bytes(SEQ_BYTES) + row.inserted_ms.to_bytes(TIME_BYTES)
        key = self._inside.placement.key(entry)
        return self._inside.placement.insertion(key, number + self.layout.body(entry), entry.verifier)

    def _set(self, field: str | bytes, value: str | bytes, key: str) -> None:
        keys = [self._inside.claims.meta, key]
        self._steadily(lambda: self._nodes.script(SET_WHILE_FILLING, keys, [self._inside.generation, field, value]))

    def _number(self, field: str) -> int:
        return int(self._nodes.field(self._inside.claims.meta, field) or 0)

    def _steadily(self, action: Callable[[], object]) -> None:
        try:
            self._inside.keeper.steadily(action)
        except (TakenOver, IndexMigrated) as error:
            raise IndexMismatch("another program fills this index now, or has finished it") from error


def opened_on_cluster_for_import(client: Any, name: str, head: IndexRow) -> ClusterStore:
    """The index called `name`, empty or half imported, under the generation that it has meanwhile.

    Args:
        client: of the cluster; answers as bytes.

    Raises:
        IndexMismatch: it holds something else.
        IndexMisconfigured: a server would drop keys.
    """
    check_cluster(client)
    inside = Inside.of(Nodes(client), name, spec_in(head), name_of_import(head))
    meta = inside.claims.meta
    (stored,) = inside.nodes.hashes([meta])
    if not resumes(name, decoded(stored), head):
        refuse_journals(name, inside.nodes.keys(inside.claims.journals))
        inside.nodes.set_fields(meta, new_fields(inside.layout.spec) | {"generation": inside.generation})
    return ClusterStore(inside)
