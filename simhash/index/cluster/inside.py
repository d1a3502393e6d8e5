"""The parts of an index on a cluster, put together once: for the protocol, and for what operators do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from simhash.index.cluster.claims import Claims
from simhash.index.cluster.groups import claim_tag
from simhash.index.cluster.keeping import Keeper
from simhash.index.cluster.nodes import Nodes, translated_on_cluster
from simhash.index.cluster.placement import Placement
from simhash.index.cluster.reading import Reader
from simhash.index.interface import IndexSpec, Partition
from simhash.index.layout import Layout
from simhash.index.safekeeping import Durability, Safekeeping
from simhash.index.specs import decoded, spec_of


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
    keeper: Keeper

    @classmethod
    def of(
        cls,
        nodes: Nodes,
        name: str,
        spec: IndexSpec,
        generation: str,
        clock: Callable[[], int] | None = None,
        durability: Durability = Durability(),
        keys: str | None = None,
    ) -> Self:
        """All parts of the index called `name`.

        Args:
            clock: milliseconds since the epoch; None: that of the claim slot's server.
            keys: what the hash tags of its groups start with, once it was migrated; None: its name.
            durability: what must hold of the servers before a verdict counts.
        """
        layout = Layout(name, spec)
        placement = Placement(keys or name, spec, layout)
        safekeeping = Safekeeping(nodes.client, f"{claim_tag(name)}:meta", replace(durability, replicas=0))

        def history() -> str:
            with translated_on_cluster():
                return safekeeping.expected()

        def look_beside() -> None:
            placement.next = next_placement(nodes.hash(claims.next), name)

        claims = Claims(nodes.claims, name, generation, placement, layout, nodes.ledger, history, look_beside, clock)
        keeper = Keeper(nodes, placement, claims, safekeeping, durability)
        return cls(nodes, name, generation, layout, placement, claims, Reader(nodes, placement, layout), keeper)

    def journals(self) -> dict[Partition, str]:
        """The key of the journal of every partition that the index has seen."""
        found = {}
        for key in self.nodes.keys(self.claims.journals):
            topic, _, number = key.removeprefix(self.claims.journals).rpartition(":")
            found[Partition(topic, int(number))] = key
        return found


def next_placement(stored: Mapping[bytes, bytes], name: str) -> Placement | None:
    """Where the generation lies that {ns:claim}:next names, in `stored`; None: there is none."""
    if not stored:
        return None
    fields = decoded(stored)
    spec = spec_of(fields, name)
    return Placement(fields["keys"], spec, Layout(name, spec))
