"""New fingerprints against many existing ones: on Spark, by the tables alone, by popcount of everything, by a peer.

Fingerprints are random; a few of the existing ones are within k bits of new ones, and all of these must be found. "By
the tables alone" is the work of one task without Spark and files, by processor time; the popcount of every pair is
what no way without tables can be faster than, and tables and batch must find the same pairs as it does. The batch
itself runs as its users start it, on all cores of this machine, with files in and files out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.report import Ratio, Report
from simhash.index.interface import Relation
from simhash.relation.tables import design
from worker.batch import probing
from worker.batch.engine import Engine, EngineSettings
from worker.batch.job import run_batch, scratch_in
from worker.batch.keeping import Every, OldestProbe
from worker.batch.launch import FEW_ENTRIES, batch_of
from worker.batch.request import Request, Watch
from worker.batch.signatures import Signatures, of_columns, verifier_bytes
from worker.index.configured import configured_design, configured_profile
from worker.settings import load

NAME = "batch"
K = 3
DESIGNS = ("4", "6", "8", "10", "11", "14", "16", "20")
PLANTED = 1000
ROW_GROUP = 1 << 20
PAPER_SECONDS, PAPER_CORES, PAPER_EXISTING = 100, 200, 8_000_000_000
"""Manku, Jain, Das Sarma, WWW 2007, section 4: a million fingerprints against 8 billion on 200 mappers."""

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        new: fingerprints in the batches.
        existing: how many they are compared with, rising; the first also with `fewer` new ones.
        others: other numbers of new ones for the tables alone.
        probes: fingerprints looked up by the tables alone.
        whole: of both sides, where every pair is compared and a peer is asked.
        runs: of everything but the batches.
    """

    new: int = 1_000_000
    existing: tuple[int, ...] = (10_000_000,)
    fewer: int = 100_000
    others: tuple[int, ...] = (100_000, 4_000_000)
    probes: int = 500_000
    whole: int = 100_000
    runs: int = 2


QUICK = Sizes(new=5_000, existing=(20_000,), fewer=1_000, others=(1_000,), probes=5_000, whole=1_000, runs=1)
FULL = Sizes(existing=(10_000_000, 100_000_000))


@dataclass(frozen=True)
class Batched:
    """One batch: seconds of the whole and of its stages, and processor seconds of their tasks."""

    seconds: float
    stages: dict[str, float]
    tasks: dict[str, float]


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure everything of this file."""
    report.heading("batch: new fingerprints against many existing ones")
    alone = _tables_alone(report, sizes)
    compared = _every_pair(report, sizes)
    report.ratio(Ratio(NAME, "the tables alone against every pair", alone * sizes.new / compared.rate, "x"))
    _peers(report, sizes)
    engine = Engine(EngineSettings(None, "2g", directory))
    try:
        _same_on_spark(report, compared, directory, engine)
        rates = _batches(report, sizes, directory, engine)
    finally:
        engine.close()
    _projection(report, sizes, rates)


# By the tables alone ---------------------------------------------------------------------------------------------


def _tables_alone(report: Report, sizes: Sizes) -> float:
    """Existing fingerprints a second and core, with the design that a batch of this size takes."""
    random = np.random.default_rng(1)
    new, existing = _random(random, sizes.new), _random(random, sizes.probes)
    rates = {name: _probed(report, name, new, existing, sizes.runs) for name in DESIGNS}
    for count in sizes.others:
        for name in ("6", "8"):
            _probed(report, name, _random(random, count), existing, sizes.runs)
    profile = configured_profile(load({}))
    tables = configured_design(load({}), profile)
    relation = Relation(tables, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)
    width = verifier_bytes(relation)
    sides = [
        of_columns(side, random.integers(0, 256, (len(side), width), np.uint8), relation) for side in (new, existing)
    ]
    _rate(report, f"profile {profile.name}, verifier and bands, {len(new):,} new", relation, sides, sizes.runs)
    return rates["6" if sizes.new <= FEW_ENTRIES else "8"]


def _probed(report: Report, name: str, new: Words, existing: Words, runs: int) -> float:
    relation = Relation(design(name), K, None)
    sides = of_columns(new, None, relation), of_columns(existing, None, relation)
    return _rate(report, f"tables alone, design {name}, {len(new):,} new", relation, sides, runs)


def _rate(report: Report, label: str, relation: Relation, sides: Sequence[Signatures], runs: int) -> float:
    new, existing = sides
    tables = probing.build(relation, new, np.arange(len(new)))
    rates = []
    for _ in range(runs):
        began = time.process_time()
        tables.find(existing, OldestProbe(len(new)))
        rates.append(len(existing) / (time.process_time() - began))
    return report.figure(NAME, label, "existing/s a core", rates, "by processor time")


def _random(random: np.random.Generator, count: int) -> Words:
    return random.integers(0, 1 << 64, count, dtype=np.uint64)


# Every pair --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Two sides of which every pair was compared: pairs a second and core, and those within K bits, (existing, new)."""

    new: Words
    existing: Words
    rate: float
    near: frozenset[tuple[int, int]]


def _every_pair(report: Report, sizes: Sizes) -> Compared:
    """Pairs a second and core by popcount alone; and that the tables find the same ones."""
    random = np.random.default_rng(2)
    new, existing = _random(random, sizes.whole), _random(random, sizes.whole)
    _plant(random, new, existing)
    began = time.process_time()
    wanted = frozenset(_popcounted(new, existing))
    seconds = time.process_time() - began
    rate = report.figure(
        NAME, f"popcount of every pair, {sizes.whole:,} x {sizes.whole:,}", "pairs/s a core", [sizes.whole**2 / seconds]
    )
    relation = Relation(design("6"), K, None)
    tables = probing.build(relation, of_columns(new, None, relation), np.arange(len(new)))
    keeper = Every()
    tables.find(of_columns(existing, None, relation), keeper)
    found = keeper.pairs
    if found != wanted:
        raise RuntimeError(f"the tables find {len(found)} pairs, {len(found ^ wanted)} others than brute force")
    report.progress(f"the tables find the same {len(wanted):,} pairs as the popcount of every pair")
    return Compared(new, existing, rate, wanted)


def _same_on_spark(report: Report, compared: Compared, directory: Path, engine: Engine) -> None:
    """The batch names, for each new fingerprint, the first existing one that is near: the same as brute force."""
    new, existing = directory / "whole-new.parquet", directory / "whole-existing.parquet"
    for path, side in ((new, compared.new), (existing, compared.existing)):
        pq.write_table(pa.table({"fingerprint": side}), path, row_group_size=len(side) // 5)
    _batch(engine, new, existing, directory / "out")
    oldest = {new: existing for existing, new in sorted(compared.near, reverse=True)}
    expected = {
        new: (f"fingerprint:{compared.existing[old]:016x}", int(compared.new[new] ^ compared.existing[old]).bit_count())
        for new, old in oldest.items()
    }
    matches = pq.read_table(directory / "out" / "verdicts.parquet", columns=["match"])["match"].to_pylist()
    found = {
        new: (match["url"], match["distance"])
        for new, match in enumerate(matches)
        if match is not None and match["seq"] <= len(compared.existing)
    }
    if found != expected:
        raise RuntimeError(f"the batch finds {len(found)} duplicates of existing ones, brute force {len(expected)}")
    report.progress(f"the batch names the same {len(found):,} existing ones as the popcount of every pair")


def _popcounted(new: Words, existing: Words, tile: int = 1 << 15) -> Iterator[tuple[int, int]]:
    """Pairs (existing, new) within K bits; a tile of the new ones stays in the processor's cache."""
    different, bits = np.empty(tile, np.uint64), np.empty(tile, np.uint8)
    for low in range(0, len(new), tile):
        some = new[low : low + tile]
        for number, fingerprint in enumerate(existing):
            np.bitwise_xor(some, fingerprint, out=different[: len(some)])
            counted = np.bitwise_count(different[: len(some)], out=bits[: len(some)])
            if counted.min() <= K:
                yield from ((number, low + int(place)) for place in np.flatnonzero(counted <= K))


def _plant(random: np.random.Generator, new: Words, existing: Words) -> None:
    """Put neighbours of new fingerprints, within K bits, among the existing ones."""
    count = min(PLANTED, len(new), len(existing))
    flips = random.integers(0, 64, (K, count), dtype=np.uint64)
    places = random.choice(len(existing), count, replace=False)
    existing[places] = new[random.integers(0, len(new), count)] ^ np.bitwise_xor.reduce(np.uint64(1) << flips)


def _peers(report: Report, sizes: Sizes) -> None:
    """Other packages on a size that they can still do, each beside what compares as much: verifiers, or k bits."""
    profile = configured_profile(load({}))
    tables = configured_design(load({}), profile)
    full = Relation(tables, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)
    bare = Relation(design("6"), K, None)
    for script, name, relation, label in (
        ("datasketch_batch", "datasketch's MinHashLSH", full, f"tables of profile {profile.name}"),
        ("text_dedup_batch", "text-dedup's simhash tables", bare, "tables of design 6"),
    ):
        options: dict[str, object] = {"new": sizes.whole, "existing": sizes.whole, "runs": 1}
        found = peers.run(script, options, report.progress)
        size = f"{sizes.whole:,} x {sizes.whole:,}"
        theirs = sizes.whole / (found["stored"][0] + found["looked_up"][0])
        report.figure(NAME, f"{name} in memory, stored and looked up, {size}", "existing/s a core", [theirs])
        ours = _built_and_looked_up(relation, sizes.whole)
        report.figure(NAME, f"{label}, built and looked up, {size}", "existing/s a core", [ours])
        report.ratio(Ratio(NAME, f"the tables against {name}", ours / theirs, "x", ">=", 10))


def _built_and_looked_up(relation: Relation, count: int) -> float:
    """So many existing ones a second and core, against as many, with the tables' making."""
    random = np.random.default_rng(3)
    width = verifier_bytes(relation)
    new, existing = (
        of_columns(
            _random(random, count),
            random.integers(0, 256, (count, width), np.uint8) if width else None,
            relation,
        )
        for _ in range(2)
    )
    began = time.process_time()
    probing.build(relation, new, np.arange(count)).find(existing, OldestProbe(count))
    return count / (time.process_time() - began)


# On Spark ----------------------------------------------------------------------------------------------------------


def _batches(report: Report, sizes: Sizes, directory: Path, engine: Engine) -> dict[int, Batched]:
    """Batches of all sizes; the scan's rates by how many exist, with `sizes.new` new ones."""
    report.progress(f"Spark on {engine.cores} cores")
    random = np.random.default_rng(4)
    new = _random(random, sizes.new)
    rates = {}
    for count in sizes.existing:
        existing = directory / f"existing-{count}.parquet"
        _write(existing, random, count, new)
        for wanted in (sizes.new, *([sizes.fewer] if count == sizes.existing[0] else [])):
            given = directory / f"new-{wanted}.parquet"
            pq.write_table(pa.table({"fingerprint": new[:wanted]}), given, row_group_size=ROW_GROUP)
            done = _batch(engine, given, existing, directory / "out")
            _report_batch(report, wanted, count, done)
            if wanted == sizes.new:
                rates[count] = done
        existing.unlink()
    return rates


def _write(path: Path, random: np.random.Generator, count: int, new: Words) -> None:
    """Existing fingerprints, a few near new ones, as Parquet; a row group at a time."""
    schema = pa.schema([("fingerprint", pa.uint64())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for low in range(0, count, ROW_GROUP):
            values = _random(random, min(ROW_GROUP, count - low))
            _plant(random, new, values)
            writer.write_table(pa.table({"fingerprint": values}, schema=schema))


def _batch(engine: Engine, new: Path, existing: Path, out: Path) -> Batched:
    request = Request((str(new),), (str(existing),), out, load({}), k=K)
    with scratch_in(out) as scratch:
        summary = run_batch(batch_of(request), engine, Watch(threading.Event()), scratch)
    if not summary.duplicates_of_existing:
        raise RuntimeError("the batch found none of the planted neighbours")
    return Batched(summary.seconds, summary.stage_seconds, summary.task_seconds)


def _report_batch(report: Report, new: int, existing: int, done: Batched) -> None:
    size = f"{new:,} new against {existing:,}"
    note = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in done.stages.items())
    report.figure(NAME, f"batch, {size}", "s", [done.seconds], note)
    rate = existing / done.tasks["scanning"]
    note = f"by processor time of its tasks, {rate * new:.3g} pairs/s a core"
    report.figure(NAME, f"scan, {size}", "existing/s a core", [rate], note)


def _projection(report: Report, sizes: Sizes, rates: dict[int, Batched]) -> None:
    """The paper's job at this machine's rate: arithmetic, nothing was measured at that size."""
    largest = max(rates)
    rate = largest / rates[largest].tasks["scanning"]
    seconds = PAPER_EXISTING / rate / PAPER_CORES
    report.progress(
        f"projection: {PAPER_EXISTING:,} existing / {rate:,.0f} existing/s a core / {PAPER_CORES} cores = "
        f"{seconds:.0f} s of scanning; the paper: {PAPER_SECONDS} s on {PAPER_CORES} mappers of 2007"
    )
    report.figure(
        NAME,
        f"projected scan, {sizes.new:,} new against {PAPER_EXISTING:,} on {PAPER_CORES} cores",
        "s",
        [seconds],
        "arithmetic",
    )
