"""Another design, bucket bits or capacity for a live index on a cluster, beside it, while workers go on.

    copy      the finished records, along the log, into groups of another name, as an import does; and again what has
              been added meanwhile, until little is left; where workers add more than is copied, they are made to wait
              now and then
    freeze    one step: the claim slot answers no worker for a moment; claims that are left are brought to their end
    catch up  the last records, if that takes no longer than `STILL_SECONDS` (else it goes on, and so does the copying);
              what was removed since
    switch    one step in the claim slot: the new generation, the name of its groups, and what is known of them
    clean up  the old groups

The claim slot stays, with its numbers, marks, journals and receipts. While it is filled the new generation has a claim
slot of its own, which keeps how far that came: a migration that was ended goes on where it was, from any step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from simhash.errors import IndexMismatch
from simhash.index.cluster.index import ClusterIndex
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.loading import ClusterStore, opened_on_cluster_for_import
from simhash.index.cluster.nodes import Nodes
from simhash.index.cluster.opening import meta_of
from simhash.index.cluster.operations import ClusterOperations
from simhash.index.cluster.placement import claim_tag, group_tags
from simhash.index.faults import FROZEN
from simhash.index.generations import begun_otherwise, made_with, next_keys, switched_fields
from simhash.index.interface import IndexSpec
from simhash.index.migration import Progress
from simhash.index.specs import fields_of, spec_of
from simhash.index.transfer import Loader, index_row, record_row

NEARLY = 200
"""So few records left are copied while the index is frozen."""
STILL_SECONDS = 0.2
"""The longest that the index stands still at once (and a call longer)."""
FREE_SECONDS = 1.0
"""So long it is copied before it is asked whether less is left than before; if not, the index is to stand still."""
LEAST_FREE_SECONDS = 0.1
"""Workers are left so much between two times that it stands still, unless not even then less is left."""
SHRINKING = 0.9
"""What is left shrinks to this from one time to the next, or workers are left half as much between them."""
KEYS_AT_ONCE = 500
GONE_AT_ONCE = 1000
_EXCHANGE = """
local generation = redis.call('HGET', KEYS[1], 'generation')
if generation == ARGV[1] then redis.call('HSET', KEYS[1], 'generation', ARGV[2]) end
return redis.call('HGET', KEYS[1], 'generation')
"""
_SWITCH = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
local nonce = math.max(tonumber(redis.call('HGET', KEYS[1], 'nonce')), tonumber(ARGV[3]))
redis.call('SET', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'nonce', string.format('%.0f', nonce), unpack(ARGV, 4))
return 1
"""
_KEEP_GONE = """
for n = 1, #ARGV do redis.call('ZADD', KEYS[1], ARGV[n], ARGV[n]) end
"""


@dataclass
class Stillness:
    """How often the index took no pages for a moment, and how long at most."""

    times: int = 0
    longest_seconds: float = 0.0

    def was(self, seconds: float) -> None:
        """It was once more, for so long."""
        self.times += 1
        self.longest_seconds = max(self.longest_seconds, seconds)


class Pace:
    """How long workers go on between two times that the index stands still for a copy that is behind them.

    Attributes:
        free_seconds: so long.
    """

    def __init__(self, free_seconds: float) -> None:
        self.free_seconds = free_seconds
        self._left_before = math.inf

    def behind(self, left: int) -> None:
        """The index is to stand still now, with so much left to be copied."""
        if left > SHRINKING * self._left_before:
            least = LEAST_FREE_SECONDS if left < self._left_before else 0.0
            self.free_seconds = max(self.free_seconds / 2, min(least, self.free_seconds))
        self._left_before = left


class ClusterMigration:
    """A migration of the index called `name`, begun or to be continued: as `simhash.index.migration.Migration`.

    Attributes:
        still: how long workers had to wait for it.

    Raises (all methods): IndexFault.
    """

    def __init__(self, client: Any, name: str, on_progress: Callable[[Progress], None]) -> None:
        self._client = client
        self._nodes = Nodes(client)
        self._name = name
        self._meta = f"{claim_tag(name)}:meta"
        self._tell = on_progress
        self.still = Stillness()
        self._pace = Pace(FREE_SECONDS)

    def run(self, wanted: Callable[[IndexSpec], IndexSpec]) -> IndexSpec:
        """Carry it out; `wanted` makes the new spec of the present one. Returns the spec that the index has then.

        Raises:
            IndexMismatch: another migration has begun, to something else; or there is no such index.
        """
        self._clean_up()
        stored = self._stored()
        present, generation = spec_of(stored, self._name), stored["generation"].removeprefix(FROZEN)
        spec = wanted(present)
        if made_with(spec) == made_with(present):
            return spec
        keys = stored.get("keys", self._name)
        old = Inside.of(self._nodes, self._name, present, generation, keys=keys)
        store = self._beside(next_keys(self._name, keys), spec)
        if not stored["generation"].startswith(FROZEN):
            self._prepare(old, store)
        while not self._switched(old, store, keys):
            self._prepare(old, store)
        self._clean_up()
        return spec

    def _beside(self, name: str, spec: IndexSpec) -> ClusterStore:
        """The new generation: empty, or as far as an earlier run came."""
        head = index_row(spec, str(fields_of(spec)["generation"]), seq=0, documents=0)
        try:
            return opened_on_cluster_for_import(self._client, name, head)
        except IndexMismatch as error:
            if begun := meta_of(self._client, name):
                raise begun_otherwise(self._name, begun) from error
            raise

    def abandon(self) -> bool:
        """Give up a migration that was begun and that nobody carries on: remove what was copied. Whether there was one.

        Raises:
            IndexMismatch: there is no such index.
        """
        self._clean_up()
        stored = self._stored()
        keys = next_keys(self._name, stored.get("keys", self._name))
        begun = meta_of(self._client, keys)
        self._remove([claim_tag(keys)])  # first, so that nobody can switch to it any more
        live = stored["generation"].removeprefix(FROZEN)
        self._exchange(FROZEN + live, live)
        self._remove(f"{{{tag}}}" for tag in group_tags(keys))
        return bool(begun)

    def _stored(self) -> dict[str, str]:
        """What the live index says of itself."""
        stored = meta_of(self._client, self._name)
        if not stored:
            raise IndexMismatch(f"there is no index {self._name!r} on this Redis Cluster")
        return stored

    # Copy ---------------------------------------------------------------------------------------------------------

    def _prepare(self, old: Inside, store: ClusterStore) -> None:
        """Copy until little is left, or workers add more than is copied; then let nobody in any more."""
        while (left := self._left(old, store)) > NEARLY:
            self._copy(old, store, self._pace.free_seconds)
            if (more := self._left(old, store)) >= left:
                self._pace.behind(more)
                break
        self._take_out(old, store)
        self._exchange(old.generation, FROZEN + old.generation)

    def _switched(self, old: Inside, store: ClusterStore, keys: str) -> bool:
        """Catch up while the index stands still, and switch; False: it was too much, and workers go on."""
        begun = time.monotonic()
        try:
            frozen = self._stand_still(old.layout.spec, old.generation, keys)
            if not self._copy(frozen, store, STILL_SECONDS):
                self._exchange(frozen.generation, old.generation)
                return False
            self._take_out(frozen, store)
            self._switch(frozen, store, keys)
            return True
        finally:
            self.still.was(time.monotonic() - begun)

    def _exchange(self, one: str, other: str) -> None:
        """Give the live index another generation: freeze it, or let it go on."""
        if self._nodes.script(_EXCHANGE, [self._meta], [one, other]).decode() != other:
            raise IndexMismatch(f"index {self._name!r} was migrated by somebody else meanwhile")

    def _left(self, old: Inside, store: ClusterStore) -> int:
        """How many numbers are finished that are not copied yet."""
        return self._finished(old) - store.stored

    def _stand_still(self, spec: IndexSpec, generation: str, keys: str) -> Inside:
        """The index that answers nobody but us, without a claim."""
        index = ClusterIndex(self._nodes, self._name, spec, FROZEN + generation, keys=keys)
        while claims := index.claims():
            index.release([claim.id for claim in claims])
        return index.inside

    def _copy(self, old: Inside, store: ClusterStore, seconds: float) -> bool:
        """Copy what is finished behind the last number copied, for so long; whether that was all of it."""
        loader, last = Loader(store), self._finished(old)
        end = time.monotonic() + seconds
        for fingerprint, record in ClusterOperations(old).records(last, store.stored + 1):
            loader.take(record_row(old.layout, fingerprint, record))
            self._tell(Progress("copying", record.seq, last))
            if time.monotonic() >= end and record.seq < last:
                loader.fill_up(record.seq)
                return False
        loader.fill_up(last)
        return True

    def _finished(self, old: Inside) -> int:
        """The last number before which all pages are written, or gone."""
        seq = old.claims.audit().seq
        return min([seq, *(claim.seq - 1 for claim in old.claims.listed() if claim.state == "numbered" and claim.seq)])

    def _take_out(self, old: Inside, store: ClusterStore) -> None:
        """Remove from the new generation what was removed from the old one since it was copied."""
        here, there = old.claims.audit(), store.inside.claims.audit()
        known = set(self._gone(store.inside))
        store.forget([
            *range(there.first, min(here.first, there.seq + 1)),
            *(seq for seq in self._gone(old) if seq not in known and there.first <= seq <= there.seq),
        ])  # fmt: skip

    def _gone(self, inside: Inside) -> list[int]:
        return [int(member) for member in self._nodes.members(inside.claims.gone)]

    # Switch -------------------------------------------------------------------------------------------------------

    def _switch(self, frozen: Inside, store: ClusterStore, keys: str) -> None:
        new = store.inside
        self._tell(Progress("switching", store.stored, frozen.claims.audit().seq))
        gone = sorted(set(self._gone(new)) - set(self._gone(frozen)))
        for at in range(0, len(gone), GONE_AT_ONCE):
            self._nodes.script(_KEEP_GONE, [frozen.claims.gone], gone[at : at + GONE_AT_ONCE])
        (counters,) = self._nodes.hashes([new.claims.meta])
        first = int(counters[b"first"])
        fields: dict[str, Any] = {
            **switched_fields(frozen.generation.removeprefix(FROZEN), new.layout.spec),
            "documents": counters[b"documents"],
            "first": first,
            "floor": max(first, int(self._nodes.field(self._meta, "floor") or 0)),
            "keys": new.placement.name,
            "retired": keys,
        }
        groups = b"".join(kept.packed for kept in new.claims.groups())
        flat = [value for pair in fields.items() for value in pair]
        arguments = [frozen.generation, groups, counters[b"nonce"], *flat]
        if not self._nodes.script(_SWITCH, [self._meta, frozen.claims.ledger], arguments):
            raise IndexMismatch(f"index {self._name!r} was migrated by somebody else meanwhile")

    def _clean_up(self) -> None:
        """Remove the groups of the generation before, and the claim slot that this one had while it was filled."""
        retired, present = (self._nodes.field(self._meta, field) for field in ("retired", "keys"))
        if retired is None or present is None:
            return
        self._remove([claim_tag(present.decode()), *(f"{{{tag}}}" for tag in group_tags(retired.decode()))])
        self._nodes.drop_field(self._meta, "retired")

    def _remove(self, tags: Iterable[str]) -> None:
        """Remove all keys of these hash tags."""
        for tag in tags:
            keys = self._nodes.keys(f"{tag}:")
            while some := list(islice(keys, KEYS_AT_ONCE)):
                self._nodes.remove(some)
