"""Another design, bucket bits or capacity for a live index, while workers go on.

    fill      the next generation is an index of its own, under other keys. The records of the live one are stored in it
              in the order of their numbers, as an import does; what was removed meanwhile is removed there too. Workers
              that store more than half as fast are held back for moments, so each pass leaves about half of the last
    pause     the live index answers no page for a moment, until the last records are carried
    switch    one step: if the two hold the same, {ns}:meta has the next generation's spec and keys
    clean up  the old keys, a few at a time

Workers write to one generation only, and know nothing of the next: before the switch every verdict is of the old one,
after it of the new one, and a worker of the old one is refused. Numbers, times, marks and journals are of both. The
pause lasts as long as some hundred records take, and ends by itself should the migration die in it. How far the next
generation was filled is kept in it: a migration that was ended goes on from there.

One program migrates an index at a time: the meta has the token of the one that began, went on or gave up last. Each
step that makes or removes something looks there, so who was overtaken changes nothing any more, and says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from simhash.errors import IndexMigrated, IndexMismatch
from simhash.index.base import FIELD as BASE_FIELD
from simhash.index.interface import IndexSpec
from simhash.index.redis.faults import translated
from simhash.index.redis.layout import Layout, literal, meta_key, tag_of
from simhash.index.redis.operators.filling import FilledByOthers, Loader, Store, record_row
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.takedowns import AT_ONCE as TAKEN_AT_ONCE
from simhash.index.redis.operators.takedowns import Found
from simhash.index.redis.operators.walking import Stretch, readable, stretch, walk
from simhash.index.redis.server import check_place, check_server
from simhash.index.redis.spec import (
    MADE_WITH,
    REPLACED_FIELD,
    STATE,
    fields_in,
    fields_of,
    flat,
    made_with,
    next_generation,
    next_keys,
    spec_of,
)
from simhash.relation.tables import described

KEYS_AT_ONCE = 500
PAUSE_SECONDS = 5
"""A pause ends by itself after so long."""
HOLD_SECONDS = 1
"""The same of one that holds back workers: at the next full second."""
FEW = 500
"""So many records are carried within the pause."""
DAMAGED = -2
"""What the switch answers where nothing came or went meanwhile, and yet the two do not hold as many records."""
_KINDS = ("t*:*", "b*:*", "r:*", "x:*", "tombstones")

_PAUSE = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'pause', redis.call('TIME')[1] + ARGV[2])
return 1
"""
_SWITCH = """
local live = redis.call('HMGET', KEYS[1], 'generation', 'seq', 'documents', 'removed', 'first')
local new = redis.call('HMGET', KEYS[2], 'generation', 'seq', 'documents', 'first', 'crowded')
if live[1] ~= ARGV[1] or new[1] ~= ARGV[2] then return -1 end
if live[2] ~= new[2] or (live[4] or '0') ~= ARGV[3] or live[5] ~= ARGV[4] then return 0 end
redis.call('HDEL', KEYS[1], 'pause')
if live[3] ~= new[3] then return -2 end
redis.call('HSET', KEYS[1], 'first', new[4], 'crowded', new[5] or '0', unpack(ARGV, 5))
redis.call('DEL', KEYS[2])
return 1
"""
_TAKE_OVER = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'migrator', ARGV[2])
return 1
"""
_AS_MIGRATOR = """
local meta = redis.call('HMGET', KEYS[1], 'migrator', 'keys')
if meta[1] ~= ARGV[1] or (meta[2] or ARGV[2]) == ARGV[3] then return 0 end
local command = {ARGV[4], unpack(KEYS, 2)}
for n = 5, #ARGV do command[#command + 1] = ARGV[n] end
redis.call(unpack(command))
return 1
"""
"""A script: the meta, the command's keys; the migrator's token, the tag, the keys of a generation that must not be the
live one, the command and its other arguments."""


@dataclass(frozen=True)
class MigrationProgress:
    """How far a migration is: the step's name, the last number that is in both generations, the last that is to be."""

    step: str
    copied: int
    last: int

    def __str__(self) -> str:
        return f"{self.step}: number {self.copied:,} of {self.last:,}"


@dataclass(frozen=True)
class Removal:
    """How far the removal of tables that nobody uses any more is. How many keys they have, nobody knows."""

    keys: int
    step: str = "removing unused tables"

    def __str__(self) -> str:
        return f"{self.step}: {self.keys:,} keys so far"


class Begun(NamedTuple):
    """A migration that was begun and is not ended.

    Attributes:
        design: the name of the next generation's.
        copied: the last number that is in the next generation.
    """

    design: str
    bucket_bits: int
    copied: int


def begun(client: Any, layout: Layout) -> Begun | None:
    """The migration of a live index that was begun; None: there is none."""
    fields = fields_in(client, f"{next_keys(layout.name, layout.keys)}:meta")
    return Begun(_design_name(fields), int(fields["bucket_bits"]), int(fields["seq"])) if fields else None


class Migration:
    """A migration of the index called `name` to `spec`, begun or to be continued.

    Args:
        client: a connection; answers as bytes.
        on_progress: is told after each step.

    Raises (all methods): IndexFault.
    """

    def __init__(self, client: Any, name: str, on_progress: Callable[[MigrationProgress | Removal], None]) -> None:
        self._client = client
        self._name = name
        self._meta = meta_key(name)
        self._tell = on_progress
        self._token = secrets.token_hex(8)

    def run(self, wanted: Callable[[IndexSpec], IndexSpec]) -> IndexSpec:
        """Carry it out; `wanted` makes the new spec of the present one. Returns the spec that the index has then.

        Raises:
            IndexMismatch: another migration has begun, to something else; somebody else has ended this one; the index
                is damaged; its base or archive finds less than the new tables; or there is no such index.
            IndexMisconfigured: the server would drop keys.
        """
        try:
            with translated():
                check_server(self._client)
                self._removed = -1  # how many records were removed when that was last looked through; -1: it was not
                live = self._opened()
                spec = wanted(live.layout.spec)
                self._refuse_more_than_on_disk(live.layout.spec, spec)
                new = self._begun(live, spec)
                if new is not None:
                    while not self._switched(live, new):
                        pass
                    self._clean_up()
                return spec
        except (IndexMigrated, FilledByOthers) as error:
            raise self._by_others() from error

    def abandon(self) -> bool:
        """Give up a migration that was begun: remove what is in its tables. Whether there was one.

        Raises:
            IndexMismatch: there is no such index.
        """
        with translated():
            check_place(self._client)
            live = self._opened()
            self._take_over(live)
            keys = next_keys(self._name, live.layout.keys)
            begun = self._client.exists(f"{keys}:meta")
            self._alone(keys, "DEL", [f"{keys}:meta"])
            self._alone(keys, "HDEL", [self._meta], "pause")
            self._remove(keys)
        return bool(begun)

    def _opened(self) -> Inside:
        stored = fields_in(self._client, self._meta)
        if not stored:
            raise IndexMismatch(f"there is no index {self._name!r} on this Redis")
        layout = Layout(self._name, spec_of(stored, self._name), stored.get("keys"))
        return Inside(self._client, layout, stored["generation"])

    # Fill ------------------------------------------------------------------------------------------------------------

    def _begun(self, live: Inside, spec: IndexSpec) -> Inside | None:
        """The next generation, being filled; None: the index has this spec already."""
        keys = next_keys(self._name, live.layout.keys)
        layout = Layout(self._name, spec, keys, meta=f"{keys}:meta")
        self._has_begun(layout)  # refused, if it is, before it takes anything over
        self._take_over(live)
        generation = f"migrating {next_generation(live.generation, spec)} {self._token}"
        if self._has_begun(layout):
            self._alone(keys, "HSET", [layout.meta], "generation", generation)
        elif made_with(spec) == made_with(live.layout.spec):
            return None
        else:
            self._remove(keys)
            self._alone(keys, "HSET", [layout.meta], *flat(fields_of(spec) | {"generation": generation}))
        return Inside(self._client, layout, generation)

    def _has_begun(self, layout: Layout) -> bool:
        """Whether a migration to this generation was begun.

        Raises:
            IndexMismatch: one was, to another spec.
        """
        stored = fields_in(self._client, layout.meta)
        if stored and {field: stored[field] for field in MADE_WITH} != made_with(layout.spec):
            raise self._begun_otherwise(stored)
        return bool(stored)

    def _take_over(self, live: Inside) -> None:
        """From here on this program migrates the index, no other; and what the last migration has left is removed."""
        if not self._client.eval(_TAKE_OVER, 1, self._meta, live.generation, self._token):
            raise self._by_others()
        self._clean_up()

    def _alone(self, generation: str, command: str, keys: list[Any], *arguments: Any) -> None:
        """A command for a generation's tables, by their keys: if this program migrates, and they are not the live ones.

        Raises:
            IndexMismatch: another program has taken over, or the generation lives.
        """
        told = [self._token, tag_of(self._name), generation, command, *arguments]
        if not self._client.eval(_AS_MIGRATOR, 1 + len(keys), self._meta, *keys, *told):
            raise self._by_others()

    def _filled(self, live: Inside, new: Inside, step: str) -> tuple[Stretch, int]:
        """Carry over all that the live index has now; the state that it was then in, and the last number carried."""
        store = Store(new)
        loader = Loader(store)
        if not loader.last:
            store.begin(first := stretch(live, 0, 1).first)
            loader.last = first - 1
        before, begin = loader.last, None
        for part in walk(live, loader.last + 1):
            begin = begin or part
            loader.skip_to(part.begin)
            for entry in readable(part.entries):
                if entry.record:
                    loader.add(record_row(live.layout, entry.fingerprint, entry.record))
                else:
                    loader.skip_to(entry.seq + 1)
            loader.flush()
            self._tell(MigrationProgress(step, loader.last, part.seq))
            if part.seq - begin.seq > max(FEW, (loader.last - before) / 2):
                self._pause(live, HOLD_SECONDS)
        return self._without_removed(live, new, store), loader.last

    def _without_removed(self, live: Inside, new: Inside, store: Store) -> Stretch:
        """Remove from the next generation what the live index has forgotten since it was carried."""
        state = stretch(live, 0, 1)
        gone = set() if state.removed == self._removed else self._tombstones(live) - self._tombstones(new)
        over = iter(self._stale(new, state.first, sorted(gone)))
        while some := list(islice(over, TAKEN_AT_ONCE)):
            store.take_down(some)
        self._removed = state.removed
        return state

    def _tombstones(self, inside: Inside) -> set[int]:
        return {int(member) for member, _ in self._client.zscan_iter(inside.layout.tombstones, count=1000)}

    def _stale(self, new: Inside, first: int, gone: list[int]) -> Iterator[Found]:
        """Records of the next generation below the number `first`, and those of the numbers that are gone."""
        for part in walk(new, last=first - 1):
            yield from (Found(e.fingerprint, e.record) for e in part.entries if e.record and e.seq < first)
        for seq in gone:
            for entry in stretch(new, seq, 1).entries:
                if entry.record and entry.seq == seq:
                    yield Found(entry.fingerprint, entry.record)

    # Switch ----------------------------------------------------------------------------------------------------------

    def _switched(self, live: Inside, new: Inside) -> bool:
        """Carry over what there is; pause and switch when few were left. False: more came meanwhile."""
        state, carried = self._filled(live, new, "copying")
        if state.seq - carried > FEW:
            return False
        self._refuse_more_than_on_disk(live.layout.spec, new.layout.spec)
        self._pause(live, PAUSE_SECONDS)
        state, _ = self._filled(live, new, "switching")
        old, keys = live.layout, new.layout.keys
        fields = {name: value for name, value in fields_of(new.layout.spec).items() if name not in STATE}
        fields |= {
            "generation": next_generation(live.generation, new.layout.spec),
            "keys": keys,
            REPLACED_FIELD: old.keys,
        }
        told = [live.generation, new.generation, state.removed, state.first]
        done = self._client.eval(_SWITCH, 2, self._meta, new.layout.meta, *told, *flat(fields))
        if done == DAMAGED:
            raise IndexMismatch(
                f"index {self._name!r} does not have the {state.documents:,} records that it counts: it is damaged. "
                "`simhash-dedup index check` says where, `simhash-dedup rebuild` makes it again from the verdicts"
            )
        if done < 0 and self._opened().generation != fields["generation"]:  # else its answer was lost, and it is done
            raise self._by_others()
        return bool(done)

    def _pause(self, live: Inside, seconds: int) -> None:
        if not self._client.eval(_PAUSE, 1, self._meta, live.generation, seconds):
            raise self._by_others()

    def _by_others(self) -> IndexMismatch:
        return IndexMismatch(
            f"the migration of {self._name!r} was ended, given up or taken over by somebody else meanwhile"
        )

    def _refuse_more_than_on_disk(self, present: IndexSpec, wanted: IndexSpec) -> None:
        """Tables on disk find what they were made for: beside them no worker judges by tables that find more."""
        found, design = present.relation.design.k, wanted.relation.design
        if design.k > found and self._client.hget(self._meta, BASE_FIELD):
            raise IndexMismatch(
                f"index {self._name!r} is judged beside tables on disk (its base or archive), which find all within "
                f"{found} bits: beside them no worker judges by design {design.name}, for {design.k} bits. "
                f"Take a design for {found} bits"
            )

    def _begun_otherwise(self, fields: dict[str, str]) -> IndexMismatch:
        return IndexMismatch(
            f"a migration of {self._name!r} was begun, to design {_design_name(fields)} with {fields['bucket_bits']} "
            f"bucket bits for {int(fields['capacity']):,} pages: finish it as it was begun, or give it up: "
            "simhash-dedup index migrate --abandon"
        )

    def _clean_up(self) -> None:
        replaced = self._client.hget(self._meta, REPLACED_FIELD)
        if replaced:
            self._remove(replaced.decode())
            self._alone(replaced.decode(), "HDEL", [self._meta], REPLACED_FIELD)

    def _remove(self, keys: str) -> None:
        """Remove the tables and records of a generation, as long as it is not the live one."""
        removed = 0
        for kind in _KINDS:
            found = iter(self._client.scan_iter(f"{literal(keys)}:{kind}", count=KEYS_AT_ONCE))
            while some := list(islice(found, KEYS_AT_ONCE)):
                self._alone(keys, "UNLINK", some)
                removed += len(some)
                self._tell(Removal(removed))


def _design_name(fields: dict[str, str]) -> str:
    return described(msgspec.json.decode(fields["design"])).name
