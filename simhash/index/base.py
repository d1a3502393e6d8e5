"""A base: pages of earlier crawls, read-only, that are asked before the index; the index keeps only what is new.

A page that matches the base is a duplicate of the oldest page there that it matches. All users of an index must ask the
same base, or one would call unique what another calls a duplicate. So the index's meta names the base's generation, and
the script refuses a call made beside another one. A new base is moved to by one compare-and-set: whoever asked the one
before and sees the new one first. The others are refused, look again, and follow once the new one lies before them too.
Who begins cannot tell a newer base from a wrong one: it waits until somebody moves who asked the one before.

A base may also be the index's own archive, into which its oldest pages go. Then one program alone moves the index on,
and says in the same step up to which number all is in the archive: from then on, and not before, the index may lose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

from simhash.errors import BaseDiffers
from simhash.index.interface import Duplicate, Entry, Unique

FIELD, ARCHIVED_FIELD = "base", "archived"
NONE = ""
_MOVE = """
local stored = redis.call('HMGET', KEYS[1], 'base', 'removed')
if (stored[1] or '') ~= ARGV[1] then return stored[1] or '' end
if ARGV[4] and (stored[2] or '0') ~= ARGV[4] then return ARGV[1] end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'base', ARGV[2], 'archived', ARGV[3])
else
  redis.call('HSET', KEYS[1], 'base', ARGV[2])
end
return ARGV[2]
"""
"""A script: the meta; the base that it must name, the one that it names then, the number up to which all is archived
('': the base is no archive), and how many records must have been removed out of turn (may be left out)."""

_ANNOUNCE = """
if ARGV[2] == '' then
  redis.call('HSET', KEYS[1], 'base', ARGV[1])
  redis.call('HDEL', KEYS[1], 'archived')
  return false
end
local seq, first = unpack(redis.call('HMGET', KEYS[1], 'seq', 'first'))
if tonumber(seq) < tonumber(ARGV[2]) then
  if tonumber(first) <= tonumber(seq) then return seq end
  redis.call('HSET', KEYS[1], 'seq', ARGV[2], 'first', string.format('%.0f', ARGV[2] + 1))
end
redis.call('HSET', KEYS[1], 'base', ARGV[1], 'archived', ARGV[2])
return false
"""
"""A script: the meta; the base, and the number up to which all is archived ('': it is no archive). An index
that holds nothing goes on behind that; the last number is returned of one that has given fewer."""


class Base(Protocol):
    """Pages of earlier crawls."""

    @property
    def place(self) -> str:
        """Where it lies, for messages."""

    @property
    def generation(self) -> str:
        """Names its content: bases of one generation give the same answers."""

    def decisions(self, entries: Sequence[Entry]) -> list[Unique | Duplicate | None]:
        """For each page: a duplicate of the oldest page here that it matches; unique if it is itself here; or None."""

    @property
    def archived(self) -> int | None:
        """All pages of the index with a number up to this one lie here; None: it is no archive of an index."""

    def renewed(self) -> Self | None:
        """The base to move on to, when another one lies in the same place now."""

    def at(self, generation: str) -> Self:
        """The base of this generation, to which others have moved.

        Raises:
            IndexUnreachable: it does not lie in this place; try again.
        """


class Beside:
    """An index's side of its base: which one its calls are made beside.

    Args:
        client: the index's Redis.
        meta: the key of its meta.
    """

    def __init__(self, client: Any, meta: str, base: Base) -> None:
        self._client = client
        self._meta = meta
        self._base = base

    def begin(self) -> None:
        """Take an index that has no base yet for this one.

        Raises:
            BaseDiffers: it is judged beside another.
        """
        stored = self._moved(NONE, self._base)
        if stored != self._base.generation:
            raise BaseDiffers(
                f"the index is judged beside base {stored}; {self._base.place} holds {self._base.generation}. If that "
                f"is meant, stop all workers and announce it: simhash-dedup index base {self._base.place}"
            )

    def current(self) -> Base:
        """The base for the next call; a new one that lies in its place is moved to."""
        newer = self._base.renewed()
        if newer is not None and self._moved(self._base.generation, newer) == newer.generation:
            self._base = newer
        return self._base

    def follow(self) -> None:
        """Another worker has moved on: go where it is.

        Raises:
            IndexUnreachable: its base does not lie here yet; try again.
        """
        stored: bytes | None = self._client.hget(self._meta, FIELD)
        self._base = self._base.at((stored or b"").decode())

    def _moved(self, before: str, after: Base) -> str:
        """The index's base, which is `after` if it was `before`."""
        return moved(self._client, self._meta, before, after.generation, after.archived)


def moved(
    client: Any, meta: str, before: str, after: str, archived: int | None = None, removed: int | None = None
) -> str:
    """The generation of an index's base, which is `after` if it was `before`.

    Args:
        archived: all records up to this number lie in it; None: it is no archive of this index.
        removed: so many records must have been removed out of turn until now; None: however many.
    """
    told = ["" if archived is None else archived, *([] if removed is None else [removed])]
    stored: bytes = client.eval(_MOVE, 1, meta, before, after, *told)
    return stored.decode()


def announced(client: Any, meta: str, generation: str, archived: int | None) -> int | None:
    """Say beside which base an index is judged from now on, whatever it was before.

    Returns:
        The last number of an index that has given fewer than this archive holds: nothing was changed. Else None.
    """
    told = client.eval(_ANNOUNCE, 1, meta, generation, "" if archived is None else archived)
    return None if told is None else int(told)
