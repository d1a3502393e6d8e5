"""What an index on a cluster is like: the figures of `simhash.index.statistics`, over all primaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from simhash.index.cluster.groups import GROUPS
from simhash.index.cluster.inside import Inside
from simhash.index.cluster.placement import LOG_SEGMENT
from simhash.index.generations import Begun, begun
from simhash.index.interface import Record
from simhash.index.specs import decoded
from simhash.index.statistics import AT_ONCE, Journal, Statistics, buckets, server, single


def statistics(inside: Inside, sample: int, random: Random) -> Statistics:
    """Look at an index.

    Args:
        sample: buckets to look at, for each table, band and so on.
    """
    claims, placement, spec = inside.claims, inside.placement, inside.layout.spec
    journals = inside.journals()
    meta, *fields = inside.nodes.hashes([claims.meta, *journals.values()])
    first, seq = int(meta[b"first"]), int(meta[b"seq"])
    of, segments = 1 << spec.bucket_bits, range(first // LOG_SEGMENT, seq // LOG_SEGMENT + 1)
    starts = {
        "tables": [f"t{i}" for i in range(len(spec.relation.design.tables))],
        "bands": [f"b{i}" for i in range(spec.relation.bands)],
        "records": ["r"],
        "short": ["x"],
    }

    def look(keys: Sequence[str], count: str) -> Iterator[tuple[str, int, int]]:
        for at in range(0, len(keys), AT_ONCE):
            yield from inside.nodes.sizes(keys[at : at + AT_ONCE], count)

    def segment(log: str, number: int) -> str:
        return placement.bucket(log, segments[number])

    kinds = [
        buckets(kind, all_of, placement.bucket, of, sample, random, look) for kind, all_of in starts.items() if all_of
    ]
    marks = [(partition, own.get(b"mark"), own) for partition, own in sorted(zip(journals, fields, strict=True))]
    return Statistics(
        documents=int(meta[b"documents"]),
        numbers=seq,
        removed=inside.nodes.count(claims.gone),
        oldest=_first_record(inside, range(first, seq + 1)),
        newest=_first_record(inside, range(seq, first - 1, -1)),
        most_candidates=int(meta.get(b"most_candidates", 0)),
        cuts=int(meta.get(b"cuts", 0)),
        crowds=int(meta.get(b"crowds", 0)),
        migration=_migration(inside),
        servers=tuple(server(address, memory) for address, memory in inside.nodes.memory()),
        kinds=(
            *kinds,
            buckets("log", ["log"], segment, len(segments), sample, random, look),
            single("journals", list(journals.values()), "hlen", look),
            single("meta", [claims.meta], "hlen", look),
            single("claims", claims.small_hashes, "hlen", look),
            single("gone", [claims.gone], "zcard", look),
            single("barred", [placement.barred(group) for group in range(GROUPS)], "zcard", look),
            single("ledger", [claims.ledger, *(placement.written(group) for group in range(GROUPS))], "exists", look),
        ),
        journals=tuple(
            Journal(partition, None if mark is None else int(mark), len(own) - (mark is not None))
            for partition, mark, own in marks
        ),
    )


def _migration(inside: Inside) -> Begun | None:
    fields = decoded(inside.nodes.hash(inside.claims.next))
    return begun(fields) if fields else None


def _first_record(inside: Inside, seqs: range) -> Record | None:
    """The first of these numbers' records that is there."""
    for at in range(0, len(seqs), AT_ONCE):
        logged = inside.reader.logged(seqs[at : at + AT_ONCE])
        for seq, entry in logged.items():
            for stored in inside.reader.stored_under([entry.key])[entry.key]:
                if stored.record.seq == seq:
                    return stored.record
    return None
