"""The parts of an index on a cluster, put together once: for the protocol, and for what operators do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from simhash.index.cluster.claims import Claims
from simhash.index.cluster.nodes import Nodes
from simhash.index.cluster.placement import Placement
from simhash.index.cluster.reading import Reader
from simhash.index.interface import IndexSpec, Partition
from simhash.index.layout import Layout


@dataclass(frozen=True)
class Inside:
    """An opened index.

    Attributes:
        generation: must be what the index says of itself at each call to the claim slot.
    """

    nodes: Nodes
    name: str
    generation: str
    layout: Layout
    placement: Placement
    claims: Claims
    reader: Reader

    @classmethod
    def of(
        cls, nodes: Nodes, name: str, spec: IndexSpec, generation: str, clock: Callable[[], int] | None = None
    ) -> Self:
        """All parts of the index called `name`.

        Args:
            clock: milliseconds since the epoch; None: that of the claim slot's server.
        """
        layout = Layout(name, spec)
        placement = Placement(name, spec, layout)
        claims = Claims(nodes.claims, name, generation, placement, layout, clock)
        return cls(nodes, name, generation, layout, placement, claims, Reader(nodes, placement, layout))

    def journals(self) -> dict[Partition, str]:
        """The key of the journal of every partition that the index has seen."""
        found = {}
        for key in self.nodes.keys(self.claims.journals):
            topic, _, number = key.removeprefix(self.claims.journals).rpartition(":")
            found[Partition(topic, int(number))] = key
        return found
