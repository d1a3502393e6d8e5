"""Compressed tables on disk: what they take beside the entropy and other codes, how fast they are built and asked.

Fingerprints are uniform random numbers, the hardest case: real ones cluster, and take less. Tables are built by the
command itself from a text file, so that its time and memory are its own.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks.meter import Stopwatch, percentile
from benchmarks.report import Ratio, Report
from simhash.archive import TableSet
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import BlockCode, canonical, code_lengths, gap_counts
from simhash.archive.format.table_file import BLOCK_KEYS

NAME = "compressed"
BITS = 64
REACH = 3
ARCHIVE = 8_000_000_000
ARCHIVE_TABLES = 16
ARCHIVE_SAMPLE = 4_000_000
INDEX_BITS = 8 * (8 + 8 + 4) / BLOCK_KEYS
"""A block's entry in the index: last key, end, check."""
TEXT_ROWS = 1 << 20
MANY, CHEAPER = 1_000, 10.0
"""From so many on, a lookup among others is expected to be so many times cheaper than one alone."""
RUNS = 3
INBLOCK_BYTES = 512
"""The unit of `ru_inblock`."""

Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        stored: fingerprints in a set, rising.
        singles: fingerprints looked up one by one.
        together: fingerprints looked up together, rising.
        checked: how many of them are compared with brute force.
        memory: what a build may take for its arrays.
    """

    stored: tuple[int, ...] = (1_000_000, 10_000_000)
    singles: int = 500
    together: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    checked: int = 5
    memory: str = "1GiB"


QUICK = Sizes(stored=(20_000,), singles=20, together=(200,))
FULL = Sizes(stored=(1_000_000, 10_000_000, 100_000_000))


def run(report: Report, sizes: Sizes, directory: Path) -> None:
    """Measure sets of every size, and what the paper's 8 billion come to."""
    for count in sizes.stored:
        numbers = np.random.default_rng(count).integers(0, 2**64, count, np.uint64)
        report.heading(f"compressed tables of {count:,} fingerprints")
        built = _build(report, numbers, sizes, directory / str(count))
        _codes(report, numbers, built)
        _lookups(report, numbers, built, sizes)
        _cold(report, built.directory, _near(numbers, max(*sizes.together, sizes.singles)), sizes)
    _archive(report)


def entropy(count: int) -> float:
    """Bits a fingerprint of so many sorted uniform ones: log2(2^64n / n!) / n."""
    return BITS - math.log2(count) + 1 / math.log(2)


# Building ----------------------------------------------------------------------------------------------------------


def _build(report: Report, numbers: Numbers, sizes: Sizes, directory: Path) -> TableSet:
    directory.mkdir()
    text, out = directory / "fingerprints.txt", directory / "tables"
    report.progress("writing the fingerprints as text")
    _write_text(numbers, text)
    command = [sys.executable, "-m", "worker", "tables", "build", text, "--out", out, "--memory", sizes.memory, "-q"]
    begun = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)))
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    if process.returncode:
        raise RuntimeError(f"the build ended with {process.returncode}")
    text.unlink()
    tables = TableSet(out)
    made, at = len(tables.relation.design.tables), f"{len(numbers):,}"
    cpu = used.ru_utime + used.ru_stime
    report.figure(NAME, f"build of {made} tables ({at})", "s", [wall], f"{cpu:.1f} s of processor time")
    report.figure(NAME, f"build ({at})", "fingerprints/s", [len(numbers) / wall])
    report.figure(NAME, f"build, a table's entries ({at})", "entries/s", [made * len(numbers) / wall])
    peak = used.ru_maxrss / 2**20
    report.figure(NAME, f"most memory of the build ({at})", "GiB", [peak], f"--memory {sizes.memory}")
    report.ratio(Ratio(NAME, f"most memory of the build ({at})", peak, "GiB", "<=", 4))
    return tables


def _write_text(numbers: Numbers, path: Path) -> None:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    with path.open("wb") as file:
        for start in range(0, len(numbers), TEXT_ROWS):
            data = numbers[start : start + TEXT_ROWS].astype(">u8").view(np.uint8).reshape(-1, 8)
            rows = np.full((len(data), 17), ord("\n"), np.uint8)
            rows[:, 0:16:2], rows[:, 1:16:2] = digits[data >> 4], digits[data & 15]
            file.write(rows.data)


# Sizes -------------------------------------------------------------------------------------------------------------


def _codes(report: Report, numbers: Numbers, tables: TableSet) -> None:
    """Bits a fingerprint, of a whole file of ours and of other codes of the same numbers in the same order."""
    count, at = len(numbers), f"{len(numbers):,}"
    least = entropy(count)
    ours = [8 * file.bytes / count for file in tables.manifest.files]
    report.figure(NAME, f"entropy ({at})", "bits/fingerprint", [least], "64 - log2 n + 1.443")
    middle = report.figure(NAME, f"a table's file ({at})", "bits/fingerprint", ours, "the spread is over the tables")
    report.ratio(Ratio(NAME, f"a table's file over the entropy ({at})", max(ours) / least - 1, "%", "<=", 0.07))
    ordered = np.sort(numbers)
    for name, size in (("Elias-Fano", elias_fano(ordered)), ("zstd -19", _zstandard(ordered)), ("raw", 8 * count)):
        found = report.figure(NAME, f"{name} ({at})", "bits/fingerprint", [8 * size / count])
        report.ratio(Ratio(NAME, f"a table's file over {name} ({at})", middle / found, "x"))


def elias_fano(ordered: Numbers) -> int:
    """Bytes of ascending numbers in Elias and Fano's code: lower halves as they are, upper ones in unary.

    Without the select structure that random access needs (3 to 5 % more). Source: Vigna, "Quasi-succinct indices",
    WSDM 2013, section 3.
    """
    count = len(ordered)
    low = max(0, math.floor(math.log2(2**BITS / count)))
    lower = -(-count * low // 8)
    ones = (ordered >> np.uint64(low)).astype(np.int64) + np.arange(count)
    upper = np.zeros(int(ones[-1]) // 8 + 1, np.uint8)
    np.bitwise_or.at(upper, ones >> 3, (1 << (ones & 7)).astype(np.uint8))
    return lower + len(upper)


def _zstandard(ordered: Numbers) -> int:
    compressor = zstandard.ZstdCompressor(level=19, threads=-1)
    return len(compressor.compress(ordered.data))


def _archive(report: Report) -> None:
    """The paper's 8 billion: neighbours as far apart as there, so each costs what it would there."""
    report.heading(f"what {ARCHIVE:,} fingerprints come to")
    span = 2**BITS * ARCHIVE_SAMPLE // ARCHIVE
    numbers = np.random.default_rng(8).integers(0, span, ARCHIVE_SAMPLE, np.uint64)
    keys = arrays.in_order(numbers.reshape(-1, 1))
    code = BlockCode(BITS, BLOCK_KEYS, canonical(code_lengths(gap_counts(keys, BITS).tolist())))
    bits = 8 * len(code.encode(keys).data) / ARCHIVE_SAMPLE + INDEX_BITS
    report.figure(NAME, f"a table ({ARCHIVE:,})", "bits/fingerprint", [bits], f"of {ARCHIVE_SAMPLE:,} as dense as that")
    report.ratio(Ratio(NAME, f"a table over the entropy ({ARCHIVE:,})", bits / entropy(ARCHIVE) - 1, "%"))
    for name, each in (("raw", float(BITS)), ("compressed", bits)):
        table = ARCHIVE * each / 8e9
        report.figure(NAME, f"one table, {name}", "GB", [table])
        report.figure(NAME, f"{ARCHIVE_TABLES} tables, {name}", "GB", [ARCHIVE_TABLES * table])


# Lookups -----------------------------------------------------------------------------------------------------------


def _lookups(report: Report, numbers: Numbers, tables: TableSet, sizes: Sizes) -> None:
    at = f"{len(numbers):,}"
    queries = _near(numbers, max(*sizes.together, sizes.singles))
    _singly(tables, queries, sizes.singles)
    watch = Stopwatch()
    seconds = _singly(tables, queries, sizes.singles)
    single = 1e6 * watch.cpu / sizes.singles
    note = f"warm; {single:.0f} us of processor time each"
    report.figure(NAME, f"lookup in all tables, p50 ({at})", "ms", [1e3 * percentile(seconds, 50)], note)
    slow = report.figure(NAME, f"lookup in all tables, p99 ({at})", "ms", [1e3 * percentile(seconds, 99)], "warm")
    report.ratio(Ratio(NAME, f"lookup, p99 ({at})", slow, "ms", "<=", 5))
    for count in sizes.together:
        _together(report, tables, queries[:count], at, single)
    _check(report, numbers, queries, tables, sizes)


def _near(numbers: Numbers, count: int) -> arrays.Keys:
    """Fingerprints at most REACH bits from stored ones."""
    random = np.random.default_rng(7)
    near = numbers[random.integers(0, len(numbers), count)].copy()
    for _ in range(REACH):
        near ^= np.uint64(1) << random.integers(0, BITS, count, np.uint64)
    return near.reshape(-1, 1)


def _singly(tables: TableSet, queries: arrays.Keys, count: int) -> list[float]:
    """Seconds of each of so many lookups."""
    seconds = []
    for one in range(count):
        begun = time.perf_counter()
        tables.near(queries[one : one + 1])
        seconds.append(time.perf_counter() - begun)
    return seconds


def _together(report: Report, tables: TableSet, queries: arrays.Keys, at: str, single: float) -> None:
    """What a lookup costs among many; `single` is what one alone does, in microseconds of processor time."""
    tables.near(queries)
    walls, cpus = [], []
    for _ in range(RUNS):
        watch = Stopwatch()
        found = tables.near(queries)
        walls.append(1e6 * watch.wall / len(queries))
        cpus.append(1e6 * watch.cpu / len(queries))
    if len(np.unique(found.query)) != len(queries):
        raise RuntimeError("a fingerprint within k bits was not found")
    each = min(cpus)
    note = f"{each:.1f} us of processor time each"
    report.figure(NAME, f"lookup, {len(queries):,} together ({at})", "us each", walls, note)
    wanted = CHEAPER if len(queries) >= MANY else None
    name = f"one by one over {len(queries):,} together, processor time ({at})"
    report.ratio(Ratio(NAME, name, single / each, "x", ">=", wanted))


def _cold(report: Report, directory: Path, queries: arrays.Keys, sizes: Sizes) -> None:
    """The same with nothing of the files in the page cache: dropped by POSIX_FADV_DONTNEED."""
    _dropped(directory)
    tables = TableSet(directory)
    at, before = f"{len(tables):,}", _read_mib()
    seconds = _singly(tables, queries, sizes.singles)
    note = f"{_read_mib() - before:,.0f} MiB read from disk for {sizes.singles}"
    for percent in (50, 99):
        found = 1e3 * percentile(seconds, percent)
        report.figure(NAME, f"lookup in all tables, p{percent} ({at}), cold", "ms", [found], note)
    _dropped(directory)
    some = queries[-sizes.together[-1] :]
    tables = TableSet(directory)
    before, begun = _read_mib(), time.perf_counter()
    tables.near(some)
    each = 1e6 * (time.perf_counter() - begun) / len(some)
    note = f"{_read_mib() - before:,.0f} MiB read from disk"
    report.figure(NAME, f"lookup, {len(some):,} together ({at}), cold", "us each", [each], note)


def _dropped(directory: Path) -> None:
    """Drop the files from the page cache; nothing maps them."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_mib() -> float:
    """What this process has had read from disk so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * INBLOCK_BYTES / 2**20


def _check(report: Report, numbers: Numbers, queries: arrays.Keys, tables: TableSet, sizes: Sizes) -> None:
    """The same answers as brute force."""
    begun = time.perf_counter()
    for one in range(sizes.checked):
        distances = np.bitwise_count(numbers ^ queries[one, 0])
        expected = np.unique(numbers[distances <= REACH])
        found = np.sort(tables.near(queries[one : one + 1], REACH).keys[:, 0])
        if not np.array_equal(expected, found):
            raise RuntimeError(f"brute force finds {expected}, the tables {found}")
    each = 1e3 * (time.perf_counter() - begun) / sizes.checked
    report.figure(NAME, f"limit: all compared, without tables ({len(numbers):,})", "ms each", [each], "same answers")
