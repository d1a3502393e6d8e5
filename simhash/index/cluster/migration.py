"""Another design, bucket bits or capacity for a live index on a cluster, beside it, while workers go on.

    begin     one step: the claim slot names the next generation and where its groups lie. From here on who stores or
              removes a page writes to the groups of both; who has not heard of it finishes nothing
    carry     what the index had before, along its log, a stretch at a time
    switch    one step in the claim slot: the next generation's spec, the name of its groups, what is known of them
    clean up  the old groups

The claim slot stays, with its numbers, marks, journals and receipts. A record that is carried while it is removed must
not come back: a removal bars whoever may be carrying its record from all groups before it deletes anything, and what is
about to be removed is not carried. A claim that was made before the begin is met by the old tables only: those that are
left are brought to their end before the switch. A migration that was ended goes on where it was, from any step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simhash.errors import IndexMigrated, IndexMismatch
from simhash.index.cluster.carrying import Carrying
from simhash.index.cluster.groups import Operation, group_tags
from simhash.index.cluster.index import ClusterIndex
from simhash.index.cluster.judging import Stored
from simhash.index.cluster.ledger import unpacked
from simhash.index.cluster.nodes import TakenOver
from simhash.index.cluster.opening import check_cluster, existing_cluster_index
from simhash.index.cluster.placement import Logged, Placement
from simhash.index.generations import made_with, refuse_begun_otherwise, switched_fields
from simhash.index.interface import IndexSpec
from simhash.index.layout import Layout
from simhash.index.migration import Progress, Removal
from simhash.index.specs import decoded, fields_of

AT_ONCE = 500
"""Records that are carried together: some ten of them in each group, half a millisecond of its primary."""
KEYS_AT_ONCE = 500


class ClusterMigration:
    """A migration of the index called `name`, begun or to be continued: as `simhash.index.migration.Migration`.

    Raises (all methods): IndexFault.
    """

    def __init__(self, client: Any, name: str, on_progress: Callable[[Progress | Removal], None]) -> None:
        self._client = client
        self._name = name
        self._tell = on_progress

    def run(self, wanted: Callable[[IndexSpec], IndexSpec]) -> IndexSpec:
        """Carry it out; `wanted` makes the new spec of the present one. Returns the spec that the index has then.

        Raises:
            IndexMismatch: another migration has begun, to something else; somebody else has ended this one, or carries
                it on; or there is no such index.
            IndexMisconfigured: a primary would drop keys.
        """
        check_cluster(self._client)
        steps = self._steps()
        spec = wanted(steps.index.spec)
        try:
            if steps.begun(spec):
                while (progress := steps.carried()).copied < progress.last:
                    self._tell(progress)
                self._tell(Progress("switching", progress.last, progress.last))
                steps.switch(spec)
        except (IndexMigrated, TakenOver) as error:
            raise _by_others(self._name) from error
        self._steps().end_removals()
        return spec

    def abandon(self) -> bool:
        """Give up a migration that was begun: remove what is in its groups. Whether there was one.

        Raises:
            IndexMismatch: there is no such index.
        """
        steps = self._steps()
        begun = steps.carrying.abandon()
        steps.clean_up()
        return begun

    def _steps(self) -> Steps:
        steps = Steps(existing_cluster_index(self._client, self._name), self._name, self._tell)
        steps.clean_up()
        return steps


class Steps:
    """The steps of a migration; `on_removal` is told after each part of one."""

    def __init__(
        self, index: ClusterIndex, name: str, on_removal: Callable[[Removal], None] = lambda removal: None
    ) -> None:
        self._tell = on_removal
        self.index = index
        self._name = name
        self._inside = index.inside
        self._nodes, self._placement, self._claims = index.inside.nodes, index.inside.placement, index.inside.claims
        self.carrying = Carrying(self._claims, self._nodes.ledger)

    def begun(self, spec: IndexSpec) -> bool:
        """Have the generation with this spec written to, if it is not; False: the index has this spec already."""
        stored = self._next()
        if not stored:
            if made_with(spec) == made_with(self.index.spec):
                return False
            stored = self._begin(spec)
        refuse_begun_otherwise(self._name, stored, spec)
        return True

    def _begin(self, spec: IndexSpec) -> dict[str, str]:
        self._inside.keeper.begin()
        keys = self.carrying.reserve(self._name)
        if keys:
            self._remove(keys)  # what another index of this name may have left
            beside = Placement(keys, spec, Layout(self._name, spec))
            if not self.carrying.begin(keys, self._nodes.look(beside, unpacked(b"")), fields_of(spec)):
                self._remove(keys)
        if stored := self._next():
            return stored
        raise _by_others(self._name)

    def carried(self) -> Progress:
        """Carry a stretch over, or begin it again when one of its records is being removed."""
        return self._inside.keeper.steadily(self._carried)

    def switch(self, spec: IndexSpec) -> None:
        """Let the next generation take over."""
        fields = switched_fields(self.index.generation, spec) | {"retired": self._placement.name}
        if self._placement.next is None:
            raise _by_others(self._name)
        fields["keys"] = self._placement.next.name
        while claims := self.carrying.switch(fields):
            self.index.release(claims)

    def clean_up(self) -> None:
        """Remove the groups of a generation that is over, was given up, or was never begun."""
        removed = ""
        while removed := self.carrying.sweep(removed):
            self._remove(removed)

    def end_removals(self) -> None:
        """Bring to their end the removals that the switch came between; pages come again, and end theirs."""
        self.index.release([claim.id for claim in self.index.claims() if claim.state == "removal"])

    def _next(self) -> dict[str, str]:
        """What the claim slot says of the next generation; nothing: there is none."""
        return decoded(self._nodes.hash(self._claims.next))

    def _carried(self) -> Progress:
        stretch = self.carrying.stretch(AT_ONCE)
        try:
            self._nodes.bar(self._placement, stretch.nonce, stretch.former)
            if written := self._written(stretch.free):
                self._nodes.write(self._placement, written, stretch.nonce, [])
            self.carrying.carried(stretch.nonce)
        except TakenOver:
            if self._next().get("carrier") != str(stretch.nonce):
                raise
            return Progress("copying", stretch.before, stretch.end)  # barred by a removal
        return Progress("copying", stretch.last, stretch.end)

    def _written(self, seqs: Sequence[int]) -> list[Operation]:
        reader = self._inside.reader
        logged = reader.logged(seqs)
        stored = reader.stored_under(list(dict.fromkeys(entry.key for entry in logged.values())))
        return [
            operation for seq, entry in logged.items() for operation in self._carrying(seq, entry, stored[entry.key])
        ]

    def _carrying(self, seq: int, entry: Logged, stored: Sequence[Stored]) -> list[Operation]:
        own = [each for each in stored if each.record.seq == seq]
        data, verifier = (own[0].data, own[0].record.verifier) if own else (None, None)
        return self._placement.carrying(seq, entry, data, verifier)

    def _remove(self, name: str) -> None:
        """Remove the groups whose tags start with `name`."""
        found: dict[str, list[str]] = {tag: [] for tag in group_tags(name)}
        for tag in found:  # first, as nobody writes to a group that lacks this
            self._nodes.remove([f"{{{tag}}}:written"])
        removed = 0

        def remove(keys: list[str]) -> None:
            nonlocal removed
            self._nodes.remove(keys)
            removed += len(keys)
            self._tell(Removal(removed))

        for key in self._nodes.keys(f"{{{name}:"):
            tag = key[1:].partition("}:")[0]
            if tag not in found:
                continue  # of an index whose name begins alike
            found[tag].append(key)
            if len(found[tag]) == KEYS_AT_ONCE:
                remove(found[tag])
                found[tag] = []
        for keys in filter(None, found.values()):
            remove(keys)


def _by_others(name: str) -> IndexMismatch:
    return IndexMismatch(f"the migration of {name!r} was ended, given up or carried on by somebody else meanwhile")
