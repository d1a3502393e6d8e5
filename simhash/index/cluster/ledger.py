"""What was written to each group, and by which server: how a primary that lost something is told from one that did not.

Every call that writes to a group counts up in the group itself, in the same step; and it names the server that it
expects, by its replication id, and is refused by any other. The claim slot keeps for each group its server and the
count that it had come to when the last work was finished: work whose groups have changed their server meanwhile is not
finished, but written once more. Every call carries the count that must be there at least; where it is not, the call is
refused.

Redis loses the end of what it was told, never the middle. So a group whose count is not below the claim slot's has all
that was finished; one that is below lacks pages whose verdicts may be out. A server takes a new id when it starts and
when it is promoted, so no other call gets between a loss and the look at it. A slot that moves takes its count with it:
another server has it then, it is looked at, and nothing is missing.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from simhash.index.cluster.groups import GROUPS

SERVER_BYTES = 8
_ENTRY = struct.Struct(">8s6s")
_NONE = bytes(SERVER_BYTES)


class Kept(NamedTuple):
    """How the replication id of a group's server begins (none yet: zeros), and how many calls have written there."""

    server: bytes
    calls: int

    @property
    def packed(self) -> bytes:
        """As the claim slot keeps it."""
        return _ENTRY.pack(self.server, self.calls.to_bytes(6))

    @property
    def known(self) -> bool:
        """Whether the group was ever looked at."""
        return self.server != _NONE


def unpacked(data: bytes) -> list[Kept]:
    """All groups, as the claim slot keeps them."""
    if not data:
        return [Kept(_NONE, 0)] * GROUPS
    return [Kept(server, int.from_bytes(count)) for server, count in _ENTRY.iter_unpack(data)]


class Ledger:
    """What the claim slot last said of the groups, and what was written to them since.

    Attributes:
        left: groups that are on another server now, whoever noticed it, with the one they were on before.
    """

    def __init__(self) -> None:
        self._groups = unpacked(b"")
        self._written: dict[int, Kept] = {}
        self.left: dict[int, bytes] = {}

    def learn(self, data: bytes) -> list[Kept]:
        """Take what the claim slot says; work begins anew."""
        before, self._groups, self._written = self._groups, unpacked(data), {}
        for group, (old, new) in enumerate(zip(before, self._groups, strict=False)):  # a migration brings more groups
            if old.known and new.known and old.server != new.server:
                self.left.setdefault(group, old.server)
        return self._groups

    def expected(self, group: int) -> Kept:
        """What a call to a group counts on; of one that the claim slot was not asked for yet, what no group is."""
        return self._groups[group] if group < len(self._groups) else Kept(_NONE, 0)

    def wrote(self, group: int, calls: int) -> None:
        """A call wrote to a group, which counts so many calls now."""
        self._written[group] = Kept(self.expected(group).server, calls)

    def tallies(self) -> bytes:
        """What was written since the claim slot was last heard: for each group its number, server and calls."""
        return b"".join(bytes([group]) + kept.packed for group, kept in self._written.items())


def settled(group: int, before: Kept, after: Kept) -> bytes:
    """A group that was looked at, for the claim slot."""
    return bytes([group]) + before.packed + after.packed + GROUPS.to_bytes(2)
