"""What the index attested beside each partition's commits, held against the server that answers now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simhash.index import Index, Partition


class Receipts:
    """Of the partitions that this worker reads; also of those that came from another one, which committed them."""

    def __init__(self, index: Index) -> None:
        self._index = index
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
        """
        self._index.present(dict.fromkeys(self._receipts.values()))
