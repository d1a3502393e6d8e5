"""A base: pages of earlier crawls, read-only, that are asked before the index; the index keeps only what is new.

A page that matches the base is a duplicate of the oldest page there that it matches. All users of an index must ask the
same base, or one would call unique what another calls a duplicate. So the index's meta names the base's generation, and
the script refuses a call made beside another one. A new base is moved to by one compare-and-set: whoever asked the one
before and sees the new one first. The others are refused, look again, and follow once the new one lies before them too.
Who begins cannot tell a newer base from a wrong one: it waits until somebody moves who asked the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

from simhash.errors import BaseDiffers, IndexUnreachable
from simhash.index.interface import Duplicate, Entry, Unique

FIELD = "base"
NONE = ""
_MOVE = """
local stored = redis.call('HGET', KEYS[1], 'base') or ''
if stored ~= ARGV[1] then return stored end
redis.call('HSET', KEYS[1], 'base', ARGV[2])
return ARGV[2]
"""


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

    def renewed(self) -> Self | None:
        """The base that lies in the same place now, when that is another one."""


class Beside:
    """An index's side of its base: which one its calls are made beside.

    Args:
        client: the index's Redis.
        meta: the key of its meta.
    """

    def __init__(self, client: Any, meta: str, base: Base) -> None:
        self._client = client
        self._meta = meta
        self._move: Any = client.register_script(_MOVE)
        self._base = base

    def begin(self) -> None:
        """Take an index that has no base yet for this one.

        Raises:
            BaseDiffers: it is judged beside another.
        """
        stored = self._moved(NONE, self._base.generation)
        if stored != self._base.generation:
            raise BaseDiffers(
                f"the index is judged beside base {stored}; {self._base.place} holds {self._base.generation}. If that "
                f"is meant, stop all workers and announce it: simhash-dedup index base {self._base.place}"
            )

    def current(self) -> Base:
        """The base for the next call; a new one that lies in its place is moved to."""
        newer = self._base.renewed()
        if newer is not None and self._moved(self._base.generation, newer.generation) == newer.generation:
            self._base = newer
        return self._base

    def follow(self) -> None:
        """Another worker has moved on: go where it is.

        Raises:
            IndexUnreachable: its base does not lie here yet; try again.
        """
        stored = self._stored()
        here = self._base.renewed() or self._base
        if here.generation != stored:
            raise IndexUnreachable(
                f"the index is judged beside base {stored} now; {here.place} holds {here.generation}: waiting for it"
            )
        self._base = here

    def _stored(self) -> str:
        stored: bytes | None = self._client.hget(self._meta, FIELD)
        return (stored or b"").decode()

    def _moved(self, before: str, after: str) -> str:
        """The index's base, which is `after` if it was `before`."""
        stored: bytes = self._move(keys=[self._meta], args=[before, after])
        return stored.decode()
