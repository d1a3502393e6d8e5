"""What the index attested beside each partition's commits, held against the server that answers now."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from simhash.index import Index, Partition
from worker.errors import ServerChanged
from worker.settings import Settings


class Receipts:
    """Of the partitions that this worker reads; also of those that came from another one, which committed them.

    Args:
        stopping: set when the worker is to end in any case.
    """

    def __init__(self, index: Index, settings: Settings, stopping: threading.Event) -> None:
        self._index = index
        self._ends_at_changes = settings.on_server_change == "restart"
        self._stopping = stopping
        self._receipts: dict[Partition, str] = {}

    def keep(self, receipts: Mapping[Partition, str]) -> None:
        """These stand beside the partitions' last commits."""
        self._receipts |= receipts

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Others read these partitions now."""
        for partition in partitions:
            self._receipts.pop(partition, None)

    def present(self) -> None:
        """Who answers now may be another server, or one that was restored: it must have what was committed.

        Raises:
            IndexFault: it has not; it does not answer.
            ServerChanged: see `refuse_change`.
        """
        self._index.present(dict.fromkeys(self._receipts.values()))
        self.refuse_change()

    def refuse_change(self) -> None:
        """End at a change of the server that lost nothing, where that is wanted: it is to be seen before it is gone on.

        Raises:
            ServerChanged: there was one.
        """
        change = self._index.server_change()
        if change and self._ends_at_changes and not self._stopping.is_set():
            raise ServerChanged(
                f"{change}. Nothing that is known to be committed is missing: start this worker again, and it goes on "
                "(--processes and supervisors do that); or make the index again from the verdicts, if in doubt "
                "(simhash-dedup rebuild). With on_server_change = verify workers go on without ending"
            )
