"""What operators do with an index on a cluster: see `simhash.index.operations`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random

from simhash.index.cluster.checking import check
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.reading import fingerprint_of
from simhash.index.cluster.removing import Remover
from simhash.index.cluster.statistics import statistics
from simhash.index.findings import Findings
from simhash.index.interface import Retention
from simhash.index.layout import Layout, tagged
from simhash.index.operations import Moment
from simhash.index.statistics import Statistics
from simhash.index.takedowns import Found

AT_ONCE = 1024
"""Log entries read at once: a few for each script call."""


class OnCluster:
    """See `simhash.index.operations.Holding`."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._remover = Remover(
            inside.nodes, inside.placement, inside.claims, inside.reader, inside.keeper, Retention()
        )
        self.layout: Layout = inside.layout

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
        """See `Holding.under`."""
        key = tagged(digest) if fingerprint is None else self.layout.key_of(fingerprint)
        stored = self._inside.reader.stored_under([key])[key]
        return [Found(fingerprint, each.record) for each in stored if each.record.url in urls]

    def forget(self, seqs: Sequence[int]) -> int:
        """Remove records by their numbers; how many of them there were."""
        return self._remover.forget(seqs)

    def take_down(self, found: Sequence[Found]) -> int:
        """See `Holding.take_down`.

        Raises:
            IndexBusy: a page of the same fingerprint is being judged; call again.
        """
        return self.forget([each.record.seq for each in found])


class ClusterOperations(OnCluster):
    """See `simhash.index.operations.Operations`."""

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self.generation = inside.generation

    def moment(self) -> Moment:
        """See `Operations.moment`: one step in the claim slot."""
        journals = self._inside.journals()
        meta, *fields = self._inside.nodes.hashes([self._inside.claims.meta, *journals.values()])
        return Moment(int(meta[b"seq"]), int(meta[b"documents"]), dict(zip(journals, fields, strict=True)))

    def check(self, on_progress: Callable[[Findings], None]) -> Findings:
        """See `Operations.check`."""
        return check(self._inside, on_progress)

    def statistics(self, sample: int, random: Random) -> Statistics:
        """See `Operations.statistics`."""
        return statistics(self._inside, sample, random)

    def records(self, last: int, begin: int = 1) -> Iterator[Found]:
        """See `Operations.records`: along the log, from number `begin` on."""
        first = max(begin, int(self._inside.nodes.field(self._inside.claims.meta, "first") or 1))
        reader = self._inside.reader
        for at in range(first, last + 1, AT_ONCE):
            logged = reader.logged(range(at, min(at + AT_ONCE, last + 1)))
            stored = reader.stored_under(list(dict.fromkeys(entry.key for entry in logged.values())))
            for seq, entry in logged.items():
                own = [each.record for each in stored[entry.key] if each.record.seq == seq]
                yield from (Found(fingerprint_of(entry.key), record) for record in own)
