"""Another design, bucket bits or capacity for a live index, beside it, while workers go on.

    copy      the records, along the log, into tables under other keys; and again what has been added meanwhile, until
              little is left; where workers add more than is copied, they are made to wait now and then
    freeze    one step: the live index takes no pages for a moment
    catch up  the last records, if that takes no longer than `STILL_SECONDS`; else it goes on, and so does the copying
    switch    one step: ns:meta names the new generation and the new keys
    clean up  the old keys, a few at a time

Every verdict is of the old generation until the freeze and of the new one after the switch; a worker of the old one
is refused. Numbers, times, marks and journals stay as they are. The log holds all records in the order of their
numbers, so it tells what is still to be copied: a migration that was ended goes on where it was, from any step.

Why the workers do not write to both themselves: each page would take twice as long, and a worker that does not know of
the migration yet would write to one only. The log already is the one place through which every page goes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from simhash.errors import IndexMismatch
from simhash.index.faults import FROZEN, translated
from simhash.index.inside import Inside
from simhash.index.interface import IndexSpec
from simhash.index.layout import SEQ_BYTES, TIME_BYTES, Layout
from simhash.index.specs import fields_of, spec_of
from simhash.index.takedowns import Found, take_down
from simhash.index.transfer import entry_of, record_row
from simhash.index.walking import Logged, walk
from simhash.tables import described

AT_ONCE = 50
"""Records stored by one call."""
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
LONGEST_GAP = 1000
KEYS_AT_ONCE = 500
IMPORTING = "importing migration "
_LOADING = ("judging", "loading")

EXCHANGE = """
local generation = redis.call('HGET', KEYS[1], 'generation')
if generation == ARGV[1] then redis.call('HSET', KEYS[1], 'generation', ARGV[2]) end
return redis.call('HGET', KEYS[1], 'generation')
"""
_SWITCH = """
local old = redis.call('HMGET', KEYS[1], 'generation', 'seq', 'documents')
local new = redis.call('HMGET', KEYS[2], 'generation', 'seq')
if old[1] ~= ARGV[1] or new[1] ~= ARGV[2] or old[2] ~= new[2] then return 0 end
local fields = redis.call('HGETALL', KEYS[2])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'keys', ARGV[4], 'retired', ARGV[5])
redis.call('DEL', KEYS[2])
return 1
"""


@dataclass(frozen=True)
class Progress:
    """How far a migration is: the step's name, the last number copied, the last one given."""

    step: str
    copied: int
    last: int


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


class Migration:
    """A migration of the index called `name` to `spec`, begun or to be continued.

    Attributes:
        still: how long workers had to wait for it.

    Raises (all methods): IndexFault.
    """

    def __init__(self, client: Any, name: str, on_progress: Callable[[Progress], None]) -> None:
        self._client = client
        self._name = name
        self._tell = on_progress
        self.still = Stillness()
        self._pace = Pace(FREE_SECONDS)

    def run(self, wanted: Callable[[IndexSpec], IndexSpec]) -> IndexSpec:
        """Carry it out; `wanted` makes the new spec of the present one. Returns the spec that the index has then.

        Raises:
            IndexMismatch: another migration has begun, to something else; or there is no such index.
        """
        with translated():
            self._clean_up()
            old = self._opened()
            spec = wanted(old.layout.spec)
            if made_with(spec) == made_with(old.layout.spec):
                return spec
            new = self._beside(old, spec)
            while not self._switched(old, new):
                pass
            self._clean_up()
        return spec

    def abandon(self) -> bool:
        """Give up a migration that was begun and that nobody carries on: remove what was copied. Whether there was one.

        Raises:
            IndexMismatch: there is no such index.
        """
        with translated():
            self._clean_up()
            old = self._opened()
            keys = next_keys(self._name, old.layout.keys)
            begun = self._client.delete(f"{keys}:meta")  # first, so that nobody can switch to it any more
            self._exchange(FROZEN + old.generation, old.generation)
            self._remove(keys)
        return bool(begun)

    def _opened(self) -> Inside:
        """The live index, under the generation that it has when it is not frozen."""
        stored = self._meta(self._name)
        if not stored:
            raise IndexMismatch(f"there is no index {self._name!r} on this Redis")
        layout = Layout(self._name, spec_of(stored, self._name), stored.get("keys"))
        return Inside(self._client, layout, stored["generation"].removeprefix(FROZEN))

    def _meta(self, name: str) -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in self._client.hgetall(f"{name}:meta").items()}

    def _beside(self, old: Inside, spec: IndexSpec) -> Inside:
        """The new index: empty, or as far as an earlier run came."""
        keys = next_keys(self._name, old.layout.keys)
        importing = IMPORTING + old.generation
        meta = self._meta(keys)
        if meta and (meta["generation"] != importing or {k: meta[k] for k in _MADE_WITH} != made_with(spec)):
            raise begun_otherwise(self._name, meta)
        if not meta:
            self._remove(keys)
            self._client.hset(f"{keys}:meta", mapping={**fields_of(spec), "generation": importing})
        return Inside(self._client, Layout(keys, spec), importing)

    # Copy ---------------------------------------------------------------------------------------------------------

    def _switched(self, old: Inside, new: Inside) -> bool:
        """Copy, freeze, catch up and switch; False: there was too much left to do, so once more."""
        frozen = Inside(old.client, old.layout, FROZEN + old.generation)
        if not self._is_frozen():
            self._approach(old, new)
            self._exchange(old.generation, frozen.generation)
        begun = time.monotonic()
        try:
            self._copy(frozen, new, STILL_SECONDS)
            if not self._left(old, new) and self._removed(old) == self._seen(new):
                self._tell(Progress("switching", self._seq(new), self._seq(old)))
                return self._switch(frozen, new)
            self._exchange(frozen.generation, old.generation)
        finally:
            self.still.was(time.monotonic() - begun)
        return False

    def _approach(self, old: Inside, new: Inside) -> None:
        """Copy until little is left. Workers that add more than is copied wait now and then."""
        while (left := self._left(old, new)) > NEARLY or self._removed(old) != self._seen(new):
            self._copy(old, new, self._pace.free_seconds)
            if left <= NEARLY:
                self._take_out(old, new)
            elif (more := self._left(old, new)) >= left:
                self._pace.behind(more)
                return

    def _left(self, old: Inside, new: Inside) -> int:
        """How many numbers were given that are not copied yet."""
        return self._seq(old) - self._seq(new)

    def _is_frozen(self) -> bool:
        return bool(self._client.hget(f"{self._name}:meta", "generation").startswith(FROZEN.encode()))

    def _exchange(self, one: str, other: str) -> None:
        """Give the live index another generation: freeze it, or let it go on."""
        if self._client.eval(EXCHANGE, 1, f"{self._name}:meta", one, other).decode() != other:
            raise IndexMismatch(f"index {self._name!r} was migrated by somebody else meanwhile")

    def _copy(self, old: Inside, new: Inside, seconds: float) -> None:
        """Copy what is in the log behind the last number copied, until its end or for so long."""
        copied = self._seq(new)
        end = time.monotonic() + seconds
        for found in walk(old, copied + 1):
            if not copied and found.begin > 1:  # what was before has been forgotten
                copied = found.begin - 1
                self._client.hset(new.layout.meta, "seq", copied)
            while (missing := found.begin - 1 - copied) > 0:  # forgotten before it was copied
                self._load(new, [_gap(min(missing, LONGEST_GAP))])
                copied += min(missing, LONGEST_GAP)
            for at in range(0, len(found.entries), AT_ONCE):
                self._load(new, [_argument(new, each) for each in found.entries[at : at + AT_ONCE]])
            copied += len(found.entries)
            self._tell(Progress("copying", copied, found.seq))
            if time.monotonic() >= end:
                return

    def _load(self, new: Inside, arguments: list[bytes]) -> None:
        self._seq(new)  # says so when the migration was given up; the call would say that the index is lost
        new.run(_LOADING, *arguments)

    def _seq(self, inside: Inside) -> int:
        found = self._client.hget(inside.layout.meta, "seq")
        if found is None:
            raise IndexMismatch(f"the migration of {self._name!r} was given up by somebody else meanwhile")
        return int(found)

    def _take_out(self, old: Inside, new: Inside) -> None:
        """Remove from the new index what was removed from the old one out of turn since it was copied."""
        removed = self._removed(old)
        if removed == self._seen(new):
            return
        live = _entries(old)
        one = next(live, None)
        for other in _entries(new):
            while one and one.seq < other.seq:
                one = next(live, None)
            if one and one.seq == other.seq and other.record and not one.record:
                take_down(new, [Found(other.fingerprint, other.record)])
        self._client.hset(new.layout.meta, "removed_seen", removed)

    def _removed(self, old: Inside) -> bytes:
        """How many records were ever removed from the old index out of turn."""
        found: bytes = self._client.hget(old.layout.meta, "removed") or b"0"
        return found

    def _seen(self, new: Inside) -> bytes:
        """How many of these removals were looked for in the new one."""
        found: bytes = self._client.hget(new.layout.meta, "removed_seen") or b"0"
        return found

    # Switch -------------------------------------------------------------------------------------------------------

    def _switch(self, frozen: Inside, new: Inside) -> bool:
        generation = next_generation(frozen.generation, new.layout.spec)
        arguments = [frozen.generation, new.generation, generation, new.layout.keys, frozen.layout.keys]
        keys = [f"{self._name}:meta", new.layout.meta]
        return bool(self._client.eval(_SWITCH, len(keys), *keys, *arguments))

    def _clean_up(self) -> None:
        retired = self._client.hget(f"{self._name}:meta", "retired")
        if retired:
            self._remove(retired.decode())
            self._client.hdel(f"{self._name}:meta", "retired", "removed_seen")

    def _remove(self, keys: str) -> None:
        """Remove the tables, records and log of a generation."""
        for kind in ("t*:*", "b*:*", "r:*", "x:*", "log"):
            some: list[bytes] = []
            for key in self._client.scan_iter(f"{keys}:{kind}", count=KEYS_AT_ONCE):
                some.append(key)
                if len(some) == KEYS_AT_ONCE:
                    self._client.unlink(*some)
                    some = []
            if some:
                self._client.unlink(*some)


_MADE_WITH = ("design", "bucket_bits", "capacity", "profile")


def made_with(spec: IndexSpec) -> dict[str, str]:
    """What tells two specs of one index apart, as ns:meta has it."""
    fields = fields_of(spec)
    return {name: v.decode() if isinstance(v := fields[name], bytes) else str(v) for name in _MADE_WITH}


def next_keys(name: str, keys: str) -> str:
    """What the keys of the generation behind the one with these `keys` start with."""
    return f"{name}~{2 if keys != f'{name}~2' else 1}"


def begun_otherwise(name: str, meta: Mapping[str, str]) -> IndexMismatch:
    """The error where ns:meta of the new tables has `meta`, and something else is wanted."""
    design = described(msgspec.json.decode(meta["design"])).name
    return IndexMismatch(
        f"a migration of {name!r} was begun, to design {design} with {meta['bucket_bits']} bucket bits for "
        f"{int(meta['capacity']):,} pages: finish it as it was begun, or give it up: "
        "simhash-dedup index migrate --abandon"
    )


def next_generation(frozen: str, spec: IndexSpec) -> str:
    """The generation with this spec that follows a frozen one: it was never there before, though the spec was."""
    number = int(frozen.removeprefix(FROZEN).partition("-")[0]) + 1
    return f"{number}-{str(fields_of(spec)['generation']).partition('-')[2]}"


def _gap(count: int) -> bytes:
    return b"g" + count.to_bytes(SEQ_BYTES)


def _argument(new: Inside, entry: Logged) -> bytes:
    record = entry.record
    if record is None:
        return _gap(1)
    page = new.layout.page(entry_of(record_row(new.layout, entry.fingerprint, record)), 0)
    return b"r" + record.seq.to_bytes(SEQ_BYTES) + record.inserted_ms.to_bytes(TIME_BYTES) + page


def _entries(inside: Inside, begin: int = 0) -> Iterator[Logged]:
    for found in walk(inside, begin):
        yield from found.entries
