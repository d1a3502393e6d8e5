"""Another design, bucket bits or capacity for a live index, beside it, while workers go on.

    begin     one step: ns:meta names the next generation. From here on every call that stores or removes a page does so
              in both generations, in the same step (script/beside.lua), whoever makes it
    carry     what the index had before, along its log: a stretch at a time, each as it is at that moment
    switch    one step: ns:meta has the next generation's spec and keys, and the log passes on to it
    clean up  the old keys, a few at a time

Nobody waits: each of these calls takes some milliseconds. Every verdict is of the old generation before the switch and
of the new one after it; a worker of the old one is refused. Numbers, times, marks, journals and the log are of both.
How far it came is kept beside: a migration that was ended goes on where it was, from any step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from simhash.errors import IndexMigrated, IndexMismatch
from simhash.index.calls import CallSize
from simhash.index.faults import translated
from simhash.index.generations import fields_in, made_with, next_keys, refuse_begun_otherwise, switched_fields
from simhash.index.inside import Inside
from simhash.index.interface import IndexSpec
from simhash.index.layout import Layout, literal
from simhash.index.server import check_server, refuse_cluster
from simhash.index.specs import fields_of, flat, spec_of

KEYS_AT_ONCE = 500
_KINDS = ("t*:*", "b*:*", "r:*", "x:*", "log")

_BEGIN = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] or redis.call('HEXISTS', KEYS[1], 'next') == 1 then return 0 end
redis.call('HSET', KEYS[2], 'carried', 0, 'last', redis.call('HGET', KEYS[1], 'seq'), unpack(ARGV, 3))
redis.call('HSET', KEYS[1], 'next', ARGV[2])
return 1
"""
_SWITCH = """
local live = redis.call('HMGET', KEYS[1], 'generation', 'next')
local carried = redis.call('HMGET', KEYS[2], 'carried', 'last')
if live[1] ~= ARGV[1] or live[2] ~= ARGV[2] or not carried[1] or carried[1] ~= carried[2] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('HDEL', KEYS[1], 'next')
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[4]) end
return 1
"""
_ABANDON = """
redis.call('HDEL', KEYS[1], 'next')
return redis.call('DEL', KEYS[2])
"""
_UNLINK = """
if redis.call('HGET', KEYS[1], 'next') == ARGV[1] then return 0 end
for n = 2, #KEYS do redis.call('UNLINK', KEYS[n]) end
return 1
"""


@dataclass(frozen=True)
class Progress:
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


class Migration:
    """A migration of the index called `name` to `spec`, begun or to be continued.

    Args:
        client: a connection; answers as bytes.
        on_progress: is told after each step.

    Raises (all methods): IndexFault.
    """

    def __init__(self, client: Any, name: str, on_progress: Callable[[Progress | Removal], None]) -> None:
        self._client = client
        self._name = name
        self._meta = f"{name}:meta"
        self._tell = on_progress

    def run(self, wanted: Callable[[IndexSpec], IndexSpec]) -> IndexSpec:
        """Carry it out; `wanted` makes the new spec of the present one. Returns the spec that the index has then.

        Raises:
            IndexMismatch: another migration has begun, to something else; somebody else has ended this one; or there is
                no such index.
            IndexMisconfigured: the server would drop keys, or is part of a cluster.
        """
        try:
            with translated():
                check_server(self._client)
                self._clean_up()
                live = self._opened()
                spec = wanted(live.layout.spec)
                new = Layout(self._name, spec, next_keys(self._name, live.layout.keys))
                if self._begun(live, new):
                    self._switch(live, new, self._carry(live, new))
                    self._clean_up()
                return spec
        except IndexMigrated as error:
            raise self._by_others() from error

    def abandon(self) -> bool:
        """Give up a migration that was begun: remove what is in its tables. Whether there was one.

        Raises:
            IndexMismatch: there is no such index.
            IndexMisconfigured: the server is part of a cluster.
        """
        with translated():
            refuse_cluster(self._client)
            self._clean_up()
            keys = next_keys(self._name, self._opened().layout.keys)
            begun = self._client.eval(_ABANDON, 2, self._meta, f"{keys}:meta")
            self._remove(keys)
        return bool(begun)

    def _opened(self) -> Inside:
        stored = fields_in(self._client, self._meta)
        if not stored:
            raise IndexMismatch(f"there is no index {self._name!r} on this Redis")
        layout = Layout(self._name, spec_of(stored, self._name), stored.get("keys"))
        return Inside(self._client, layout, stored["generation"])

    # Begin --------------------------------------------------------------------------------------------------------

    def _begun(self, live: Inside, new: Layout) -> bool:
        """Let the next generation be written to, if it is not; False: the index has this spec already."""
        if not self._client.hexists(self._meta, "next"):
            if made_with(new.spec) == made_with(live.layout.spec):
                return False
            self._remove(new.keys)
            fields = {**fields_of(new.spec), "layout": new.for_scripts_beside()}
            self._client.eval(_BEGIN, 2, self._meta, f"{new.keys}:meta", live.generation, new.keys, *flat(fields))
        begun = fields_in(self._client, f"{new.keys}:meta")
        if not begun:
            raise self._by_others()
        refuse_begun_otherwise(self._name, begun, new.spec)
        return True

    # Carry --------------------------------------------------------------------------------------------------------

    def _carry(self, live: Inside, new: Layout) -> int:
        """Returns the last number that was to be carried."""
        size = CallSize()
        carried, last, _, names = self._carried(live, 0, [], size.pages)
        while carried < last:
            begin, begun = carried + 1, time.perf_counter()
            placed = [_placed(new, name) for name in names]
            carried, last, microseconds, names = self._carried(live, begin, placed, size.pages)
            waited = int(1e6 * (time.perf_counter() - begun))  # where the server cannot tell
            size.took(max(1, carried - begin + 1), microseconds or waited)
            self._tell(Progress("copying", carried, last))
        return last

    def _carried(self, live: Inside, begin: int, placed: list[bytes], wanted: int) -> tuple[int, int, int, list[bytes]]:
        """One call: the last number carried, the last that is to be, the microseconds that it took the server, and as
        many names of the log as are wanted."""
        found = live.run(("carrying",), begin, wanted, *placed)
        if not found:
            raise self._by_others()
        carried, last, microseconds, *names = found
        return int(carried), int(last), microseconds, names

    # Switch -------------------------------------------------------------------------------------------------------

    def _switch(self, live: Inside, new: Layout, carried: int) -> None:
        old = live.layout
        fields = switched_fields(live.generation, new.spec) | {"keys": new.keys, "retired": old.keys}
        self._tell(Progress("switching", carried, carried))
        keys = [self._meta, f"{new.keys}:meta", old.log, new.log]
        if not self._client.eval(_SWITCH, len(keys), *keys, live.generation, new.keys, *flat(fields)):
            raise self._by_others()

    def _by_others(self) -> IndexMismatch:
        return IndexMismatch(f"the migration of {self._name!r} was ended or given up by somebody else meanwhile")

    def _clean_up(self) -> None:
        retired = self._client.hget(self._meta, "retired")
        if retired:
            self._remove(retired.decode())
            self._client.hdel(self._meta, "retired")

    def _remove(self, keys: str) -> None:
        """Remove the tables, records and log of a generation, as long as it is not the next one."""
        removed = 0
        for kind in _KINDS:
            found = iter(self._client.scan_iter(f"{literal(keys)}:{kind}", count=KEYS_AT_ONCE))
            while some := list(islice(found, KEYS_AT_ONCE)):
                if not self._client.eval(_UNLINK, 1 + len(some), self._meta, *some, keys):
                    raise self._by_others()
                removed += len(some)
                self._tell(Removal(removed))


def _placed(layout: Layout, name: bytes) -> bytes:
    """A name of the log; behind a fingerprint, where it stands."""
    return layout.stands(name) if len(name) == layout.fingerprint_bytes else name
