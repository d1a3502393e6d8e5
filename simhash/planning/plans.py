"""Every design laid out for a number of documents: what it finds and what it costs.

All of it is arithmetic on random fingerprints: candidates and memory follow from the layout, the pairs found are
counted. Only the time of a page is measured: `COSTS` says where. Recommended is what `design = auto` takes, and no
second rule: `simhash.relation.tables` has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from simhash.errors import DesignError
from simhash.index.interface import IndexSpec, Relation
from simhash.index.redis.layout import Layout, bucket_bits
from simhash.planning.coverage import coverage, with_bands
from simhash.planning.memory_size import Memory, by_shipped, memory
from simhash.relation.tables import NAMES, Design
from simhash.relation.tables import design as find_design
from simhash.signature.minhash import BAND_BITS

RESIDENT_PER_USED = 1.45
"""What Redis takes of its machine's memory for what it uses, while buckets grow: 412 MB for 285 MB at 1M documents in
10 tables (Redis 7.0.15, jemalloc 5.3, no active defragmentation)."""
CHECK_LIMIT_US = 150.0
"""The most that a page may take of Redis for a design to count as quick: 6,700 pages a second."""
SIMILARITY = 0.8
"""Jaccard similarity of the texts for which the bands' share is given."""
MORE_DESIGNS = ("2(4c2)", "8c2", "2(5c2)")
"""For k = 5, 6 and 7."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of Redis' main thread for a page that is checked and stored.

    Attributes:
        page: of its record, its journal entry, the call.
        table, band: of probing and storing in one more of them.
        probe: of one more probe in a table (prefixes at distance 1).
        candidate: of comparing one more.
    """

    page: float
    table: float
    band: float
    probe: float
    candidate: float


COSTS = Costs(page=20.0, table=5.5, band=5.0, probe=2.4, candidate=1.2)
"""Coarse, good for telling designs apart and not for promising a rate. Beside 6 bands, at 100,000 random documents in
batches of 500, on two cores that were busy with other work: 127 us a page with 3 tables, 84 with 6, 106 with 10, in
turns in one run. `make bench` measures the machine at hand."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is made for.

    Attributes:
        relation: of the profile; its design does not matter.
        k: bits within which every pair must be found.
        rows: minima in a band key.
        url_bytes: mean length of a URL.
        stored_url_bytes: what one takes by the index's dictionary; None: by the one that ships.
        primary_bytes: memory of one Redis primary.
    """

    documents: int
    relation: Relation
    k: int
    rows: int
    url_bytes: int
    primary_bytes: int
    index_name: str = "dedup"
    stored_url_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One design.

    Attributes:
        prefixes: the shortest and the longest, in bits.
        candidates: entries that a page is compared with, on average. A stored page is one in each table and band that
            brings it, so that few pages in many tables make more candidates than there are pages.
        candidates_per_probe: those that one probe of a table brings, on average.
        found: share of the pairs at distance 0, 1 ... reach that its tables find.
        found_with_bands: the same of pairs of texts of `SIMILARITY`, by tables or bands.
        check_us: microseconds of Redis for a page.
    """

    design: str
    k: int
    tables: int
    prefixes: tuple[int, int]
    bucket_bits: int
    candidates: float
    candidates_per_probe: float
    found: tuple[float, ...]
    found_with_bands: tuple[float, ...]
    memory: Memory
    resident_bytes: float
    check_us: float
    primaries: int


def designs_for(k: int, bits: int) -> list[Design]:
    """The designs to choose among: those that find all pairs within k bits, and promise no more than need be."""
    known = list(_known(bits))
    least = min((each.k for each in known if each.k >= k), default=None)
    if least is None:
        return [find_design(f"{k + 2}c2", bits)]
    return [each for each in known if each.k == least]


def _known(bits: int) -> Iterator[Design]:
    for name in (*NAMES, *MORE_DESIGNS):
        with suppress(DesignError):  # so few bits cannot be cut into its blocks
            yield find_design(name, bits)


def plans(question: PlanRequest) -> list[Plan]:
    """A plan for each design that can be, in the order of the memory they take."""
    found = []
    for design in designs_for(question.k, question.relation.design.bits):
        try:
            found.append(plan(question, design))
        except DesignError:
            continue  # its prefixes are too long for so few buckets
    return sorted(found, key=lambda each: each.memory.used)


def plan(question: PlanRequest, design: Design) -> Plan:
    """One design, laid out for the question.

    Raises:
        DesignError: it cannot be laid out.
    """
    relation = replace(question.relation, design=design)
    b = bucket_bits(question.documents, design)
    layout = Layout(question.index_name, IndexSpec({}, relation, b, question.documents))
    stored = question.stored_url_bytes
    used = memory(layout, question.documents, by_shipped(question.url_bytes) if stored is None else stored)
    met = candidates(layout, question.documents)
    shares = coverage(design, relation.reach)
    prefixes = [table.prefix for table in design.tables]
    return Plan(
        design=design.name,
        k=design.k,
        tables=len(design.tables),
        prefixes=(min(prefixes), max(prefixes)),
        bucket_bits=b,
        candidates=met,
        candidates_per_probe=candidates_per_probe(design, question.documents),
        found=tuple(shares),
        found_with_bands=tuple(with_bands(each, relation.bands, question.rows, SIMILARITY) for each in shares),
        memory=used,
        resident_bytes=used.used * RESIDENT_PER_USED,
        check_us=check_us(relation, met),
        primaries=max(1, math.ceil(used.used * RESIDENT_PER_USED / question.primary_bytes)),
    )


def candidates(layout: Layout, documents: int) -> float:
    """Entries that a page's probes bring, on average."""
    relation = layout.spec.relation
    design = relation.design
    tables = sum(table.probes * 2.0**-table.prefix for table in design.tables)
    bands = relation.bands * 2.0 ** -min(BAND_BITS, layout.band_shape.bucket + layout.band_shape.field)
    return documents * (tables + bands)


def candidates_per_probe(design: Design, documents: int) -> float:
    """Entries of a table that share one prefix, on average."""
    probes = [(table.probes, 2.0**-table.prefix) for table in design.tables]
    return documents * sum(count * share for count, share in probes) / sum(count for count, _ in probes)


def check_us(relation: Relation, met: float) -> float:
    """Microseconds of Redis for a page that is checked and stored."""
    design = relation.design
    more_probes = sum(table.probes - 1 for table in design.tables)
    return (
        COSTS.page
        + COSTS.table * len(design.tables)
        + COSTS.band * relation.bands
        + COSTS.probe * more_probes
        + COSTS.candidate * met
    )


def cheapest_quick(found: list[Plan]) -> Plan:
    """The one that takes the least memory of those whose pages are quick; if none are, the quickest."""
    quick = [each for each in found if each.check_us <= CHECK_LIMIT_US]
    return min(quick, key=lambda each: each.memory.used) if quick else min(found, key=lambda each: each.check_us)
