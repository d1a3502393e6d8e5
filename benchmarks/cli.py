"""The command line: which benchmarks run, how large, and where the figures go."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from rich.console import Console

from benchmarks import batch, compressed, crowd, index, kept, loop, machine, memory, migration, texts
from benchmarks.report import Report
from benchmarks.samples import SAMPLE

Benchmark = Callable[[Report, bool, Path, Path], None]
"""Called with the report, whether to be quick, a scratch directory and the file of pages."""


def _loop(report: Report, quick: bool, scratch: Path, pages: Path) -> None:
    loop.run(report, loop.QUICK if quick else loop.Sizes(), scratch, pages)


def _index(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    sizes = index.QUICK if quick else index.Sizes()
    stored: tuple[int, ...] = click.get_current_context().params["stored"]
    designs: tuple[str, ...] = click.get_current_context().params["designs"]
    index.run(report, replace(sizes, stored=stored or sizes.stored, designs=designs or sizes.designs), scratch)


def _crowd(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    crowd.run(report, crowd.QUICK if quick else crowd.Sizes(), scratch)


def _memory(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    asked = click.get_current_context().params
    sizes = memory.QUICK if quick else memory.FULL if asked["full"] else memory.Sizes()
    memory.run(report, memory.Sizes(asked["stored"] or sizes.stored, asked["designs"] or sizes.designs), scratch)


def _migration(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    migration.run(report, migration.QUICK if quick else migration.Sizes(), scratch)


def _texts(report: Report, quick: bool, _: Path, pages: Path) -> None:
    texts.run(report, texts.QUICK if quick else texts.Sizes(), pages)


def _kept(report: Report, quick: bool, scratch: Path, pages: Path) -> None:
    kept.run(report, kept.QUICK if quick else kept.Sizes(), scratch, pages)


def _compressed(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    full = bool(click.get_current_context().params["full"])
    compressed.run(report, compressed.QUICK if quick else compressed.FULL if full else compressed.Sizes(), scratch)


def _batch(report: Report, quick: bool, scratch: Path, _: Path) -> None:
    full = bool(click.get_current_context().params["full"])
    batch.run(report, batch.QUICK if quick else batch.FULL if full else batch.Sizes(), scratch)


BENCHMARKS: Mapping[str, Benchmark] = {
    "texts": _texts,
    "kept": _kept,
    "loop": _loop,
    "index": _index,
    "crowd": _crowd,
    "memory": _memory,
    "migration": _migration,
    "compressed": _compressed,
    "batch": _batch,
}


@click.command()
@click.option("--only", type=click.Choice(list(BENCHMARKS)), multiple=True, help="run only this one (repeatable)")
@click.option(
    "--stored",
    type=click.IntRange(1),
    multiple=True,
    help="documents in the index when it is measured (repeatable) [default: 100000 and 1000000]",
)
@click.option(
    "--design",
    "designs",
    type=click.Choice(index.DESIGNS),
    multiple=True,
    help="permutation tables of the index that is measured (repeatable) [default: 4, 10, 2-probed and the default]",
)
@click.option("--quick", is_flag=True, help="small sizes, about a minute: to see that all works, not to quote")
@click.option(
    "--full",
    is_flag=True,
    help="also what takes many minutes and 10 GB of disk: 100M compressed, a batch against 100M, memory of 5M",
)
@click.option(
    "--pages",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=SAMPLE,
    help="pages to measure with: JSONL, plain or .zst [default: the bundled sample]",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="also write the figures here"
)
def main(
    only: tuple[str, ...],
    stored: tuple[int, ...],
    designs: tuple[str, ...],
    quick: bool,
    full: bool,
    pages: Path,
    json_path: Path | None,
) -> None:
    """Measure speed and memory beside limits and peers, all in this run.

    Each figure stands with its spread over the runs and with the load of the machine: on a busy machine compare the
    processor times, not the rates. With a million documents stored it takes the better part of an hour, most of
    it to fill the indexes.
    """
    report = Report(Console())
    described = machine.description()
    for line in machine.lines(described):
        report.console.print(line, highlight=False, soft_wrap=True)
    for name in only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="simhash-dedup-bench-") as scratch:
            BENCHMARKS[name](report, quick, Path(scratch), pages)
    report.summary()
    if json_path:
        found = {"machine": described, "quick": quick, "pages": pages.name} | report.as_json()
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
