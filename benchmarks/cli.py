"""The command line: which benchmarks run, how large, and where the figures go."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec
from rich.console import Console

from benchmarks import index, machine
from benchmarks.report import Report
from benchmarks.samples import SAMPLE


@click.command()
@click.option("--only", type=click.Choice(["index"]), multiple=True, help="run only this benchmark (repeatable)")
@click.option("--quick", is_flag=True, help="small sizes, under a minute: to see that all works, not to quote")
@click.option("--pages", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=SAMPLE, help="pages to measure with, as JSONL, plain or .zst")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="also write the figures here")
def main(only: tuple[str, ...], quick: bool, pages: Path, json_path: Path | None) -> None:
    """Measure speed and memory beside limits and peers, all in this run."""
    report = Report(Console())
    for line in machine.lines(machine.description()):
        report.console.print(line, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-bench-") as scratch:
        index.run(report, index.QUICK if quick else index.Sizes(), Path(scratch))
    report.summary()
    if json_path:
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report.as_json())) + b"\n")
