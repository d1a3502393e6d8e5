"""Whether Redis still has what it was given: watermarks for what was stored, and replicas that have it too.

An *epoch* is one server's time with an index (`lua/epochs.lua` says how it is named and kept). A *watermark* is an
epoch and the largest number that was told under it. The worker that commits a verdict keeps the watermark beside it and
presents it when it comes back. One that the index cannot meet proves that pages are lost whose verdicts are out.
Every script call names the epoch that it counts on, and Redis compares it with its own replication id in the same
atomic step: no call is answered by a server that was restarted, promoted or restored since, before that was looked at.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from simhash.errors import IndexServerChanged, IndexUnreplicated
from simhash.index.redis.faults import IN_DOUBT, SERVER_CHANGED

log = logging.getLogger(__name__)

_SCRIPT = resources.files("simhash.index.redis").joinpath("lua", "epochs.lua").read_text(encoding="utf-8")
_RECEIPT = re.compile(r"simhash-dedup ([0-9a-f]{12}\.[0-9a-f]+) (\d{1,15})")

HELD = "was held against all that is known here to be committed, and lacks nothing of it"
NOT_HELD = "will be held against each partition's commits before its pages are judged"
"""Of a command, or a process that only moves pages: neither knows of any commit."""


@dataclass(frozen=True, slots=True)
class Durability:
    """What must hold of the server before a verdict counts.

    Attributes:
        replicas: how many must have acknowledged what was stored; 0: it is not asked.
        wait_ms: for how long they are waited for.
    """

    replicas: int = 0
    wait_ms: int = 1000


class Watermark(NamedTuple):
    """The largest number that was told under an epoch, or is known to have been told before it."""

    epoch: str
    seq: int

    def __str__(self) -> str:
        """As it travels beside a commit."""
        return f"simhash-dedup {self.epoch} {self.seq}"


def watermark_in(text: str) -> Watermark | None:
    """The watermark in a commit's metadata; None where there is none (another tool's, or an older program's)."""
    found = _RECEIPT.fullmatch(text)
    return Watermark(found[1], int(found[2])) if found else None


class Safekeeping:
    """See the module. Raises the driver's errors: `simhash.index.redis.faults.translated` knows those of the script.

    Args:
        client: a connection; answers as bytes. Where replicas are waited for, it is exchanged for one that has a single
            connection, because WAIT speaks of what was written through its own.
        meta: the key ns:meta.
    """

    def __init__(self, client: Any, meta: str, durability: Durability) -> None:
        self.client = client.client() if durability.replicas else client
        self._meta = meta
        self._durability = durability
        self._script = self.client.register_script(_SCRIPT)
        self._epoch = ""
        self._seq = 0
        self._connects = 0
        self._connects_before = 0
        if durability.replicas:
            self.client.connection.register_connect_callback(self._note_connect)

    @property
    def watermark(self) -> Watermark | None:
        """For all that was told so far; None before the first call."""
        return Watermark(self._epoch, self._seq) if self._epoch else None

    def present(self, watermarks: Iterable[Watermark] = (), others: Callable[[], Iterable[Watermark]] = tuple) -> str:
        """Hold these watermarks against the index, and those of others if it is in another epoch than this one counts
        on; returns the epoch it is in now."""
        held = list(watermarks)
        epoch, seq, left = self._hold(held)
        if epoch != self._epoch and (more := list(others())):
            held += more
            epoch, seq, _ = self._hold(held)
        self._note_change(left or _server_of(self._epoch), _server_of(epoch), seq, HELD if held else NOT_HELD)
        if epoch != self._epoch:
            self._epoch, self._seq = epoch, min(seq, max((each.seq for each in held), default=0))
        return self._epoch

    def _hold(self, watermarks: Iterable[Watermark]) -> tuple[str, int, str]:
        """The epoch, the index's last number, and the replication id that was left behind (empty: none)."""
        told = [str(value) for each in watermarks for value in each]
        epoch, seq, left = self._script(keys=[self._meta], args=["present", *told])
        return epoch.decode(), seq, left.decode()

    def expected(self) -> str:
        """The epoch that a call counts on."""
        return self._epoch or self.present()

    def accept(self) -> None:
        """Take the index as it is: a new epoch begins, and watermarks of all earlier ones are void."""
        self._script(keys=[self._meta], args=["accept"])

    def told(self, seq: int) -> None:
        """This number was named in an answer."""
        self._seq = max(self._seq, seq)

    def unchanged(self) -> None:
        """Make sure that the server is the one that all answers so far came from.

        Raises:
            IndexServerChanged: it is not.
        """
        if self._epoch and self._hold(())[0] != self._epoch:
            raise IndexServerChanged(SERVER_CHANGED)

    def begin(self) -> None:
        """A batch begins: what follows until `replicated` must travel over one connection."""
        self._connects_before = self._connects

    def replicated(self) -> None:
        """Wait until enough replicas have what was stored since `begin`.

        Raises:
            IndexUnreplicated: they have not, or it cannot be known.
        """
        wanted, wait_ms = self._durability.replicas, self._durability.wait_ms
        found = self.client.wait(wanted, wait_ms)
        if self._connects != self._connects_before:
            raise IndexUnreplicated(
                "the connection to Redis was lost while a batch was judged: nobody can say who has it"
            )
        if found < wanted:
            raise IndexUnreplicated(
                f"{found} of {wanted} replicas (wait_replicas) acknowledged a batch within {wait_ms} ms (wait_timeout)"
            )

    def _note_change(self, before: str, now: str, seq: int, held: str) -> None:
        if before in ("", now):
            return
        log.warning(
            "Redis was restarted or failed over (replication id %s, now %s): the index %s. "
            "It goes on from number %d. %s",
            *(before, now, held, seq, IN_DOUBT),
        )

    def _note_connect(self, _: Any) -> None:
        self._connects += 1


def _server_of(epoch: str) -> str:
    """Its replication id; empty where there is no epoch yet."""
    return epoch[13:]
