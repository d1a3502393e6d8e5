"""`simhash-dedup file`: the judgement over files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from worker.cli.options import LOGGING, settings_of, settings_options
from worker.consumer import recipe, stop_on_signals
from worker.embedded import embedded_redis
from worker.errors import InputError, SettingsError
from worker.files import Outputs, Summary, run_files
from worker.fingerprinters import Fingerprinters
from worker.inputs import Input, open_input
from worker.settings import Settings
from worker.stores import configured_profile, connected_index

NAMES = (
    "index_name", "profile", "design", "documents", "max_age", "max_documents",
    "max_page_bytes", "max_url_bytes", "page_deadline", *LOGGING,
)  # fmt: skip
FILE_DOCUMENTS = 1_000_000
"""What a new index of a file run is laid out for unless told: files are mostly smaller than streams."""


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--out", "-o", required=True, help="where the verdicts go, one JSON object a line; - is standard output")
@click.option("--state", type=click.Path(path_type=Path, file_okay=False), help="keep the index in this directory between runs")
@click.option("--redis", "redis_url", help="use the index on this server (redis://…) instead of an embedded one")
@click.option("--processes", type=click.IntRange(1, 256), help="fingerprinting processes; same verdicts [default: all cores]")
@click.option("--unique-out", type=click.Path(path_type=Path, dir_okay=False), help="also write the unique pages, and FILE.index")
@click.option(
    "--rejected-out", type=click.Path(path_type=Path, dir_okay=False), help="what was rejected [default: OUT.rejected.jsonl]"
)
@click.option("--summary-json", type=click.Path(path_type=Path, dir_okay=False), help="write the summary's figures")
@click.option("--quiet", "-q", is_flag=True, help="no progress and no summary on standard error")
@settings_options(NAMES)
def file(
    inputs: tuple[str, ...],
    out: str,
    state: Path | None,
    redis_url: str | None,
    processes: int | None,
    unique_out: Path | None,
    rejected_out: Path | None,
    summary_json: Path | None,
    quiet: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Judge the pages in files, in order: one verdict a page, the same as on a stream.

    INPUT is JSONL (plain, .gz or .zst), a WARC (.warc, .warc.gz), a directory of HTML files, or - for JSONL on standard
    input. Nothing needs to run: an embedded Redis holds the index, for this run only unless --state is given.

    \b
      simhash-dedup file crawl.jsonl.zst --out verdicts.jsonl
      simhash-dedup file monday.warc.gz --state ./seen --out monday.jsonl
      simhash-dedup file tuesday.warc.gz --state ./seen --out tuesday.jsonl   # judged against monday
      zstdcat pages.zst | simhash-dedup file - --out - | jq .verdict
    """
    if state and redis_url:
        raise SettingsError("--state is for the embedded index, --redis for a server's: give one of them")
    flags["documents"] = flags["documents"] or str(FILE_DOCUMENTS)
    settings = settings_of(config, flags | {"redis_url": redis_url})
    kept = state is not None or redis_url is not None
    opened = _inputs(inputs, settings, spool=kept)
    console = Console(stderr=True, quiet=quiet)
    processes = processes or os.cpu_count() or 1
    if rejected_out is None and out != "-":
        rejected_out = Path(out + ".rejected.jsonl")
    with ExitStack() as stack:
        stream = stack.enter_context(_stream(out))
        outputs = Outputs(stream, unique_out, rejected_out)
        stack.callback(outputs.close)
        summary = _judged(stack, settings, redis_url, state, opened, outputs, processes, console)
    _finish(summary, summary_json, out, rejected_out, console)


def _judged(
    stack: ExitStack,
    settings: Settings,
    redis_url: str | None,
    state: Path | None,
    inputs: list[Input],
    outputs: Outputs,
    processes: int,
    console: Console,
) -> Summary:
    profile = configured_profile(settings)
    client = None if redis_url else stack.enter_context(embedded_redis(state))
    index = connected_index(settings, profile, client)
    fingerprinters = Fingerprinters(recipe(settings, profile), processes, settings.page_deadline)
    stack.callback(fingerprinters.close)
    stopping = stack.enter_context(stop_on_signals())
    with _progress(inputs, console) as on_progress:
        return run_files(inputs, outputs, index, profile, fingerprinters, processes, stopping, on_progress)


def _inputs(names: tuple[str, ...], settings: Settings, spool: bool) -> list[Input]:
    places = [name if name == "-" else os.path.realpath(name) for name in names]
    for name, place in zip(names, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{name} is given twice: the second reading would be a replay of the first")
    line_limit = 6 * settings.max_page_bytes + (1 << 20)
    return [open_input(name, line_limit, spool) for name in names]


@contextmanager
def _stream(out: str) -> Iterator[IO[bytes]]:
    if out == "-":
        yield sys.stdout.buffer
        return
    try:
        opened = open(out, "wb")
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from error
    with opened:
        yield opened


@contextmanager
def _progress(inputs: list[Input], console: Console) -> Iterator[Any]:
    total = None if any(each.total is None for each in inputs) else sum(each.total or 0 for each in inputs)
    columns = (
        TextColumn("judging"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[pages]:,} pages"),
        TextColumn("{task.fields[rate]:,.0f}/s"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("", total=total, pages=0, rate=0.0)

        def update(summary: Summary) -> None:
            done = sum(each.done() for each in inputs)
            bar.update(task, completed=done, pages=summary.pages, rate=summary.pages_per_second)

        yield update


def _finish(summary: Summary, json_path: Path | None, out: str, rejected: Path | None, console: Console) -> None:
    if json_path:
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(summary.figures())) + b"\n")
    _show(summary, console)
    console.print(f"verdicts: {'standard output' if out == '-' else out}", highlight=False, soft_wrap=True)
    if summary.rejected:
        console.print(f"rejected: {rejected or 'not written (--rejected-out)'}", highlight=False, soft_wrap=True)
    if not summary.complete:
        raise KeyboardInterrupt


def _show(summary: Summary, console: Console) -> None:
    table = Table(show_header=False, box=None)
    rows = {
        "pages": summary.pages,
        "unique": summary.unique,
        "duplicates, exact": summary.duplicates_exact,
        "duplicates, near": summary.duplicates_near,
        "of these, same URL again": summary.same_url,
        "rejected": summary.rejected,
        "skipped (no pages)": summary.skipped,
        "pages/s": round(summary.pages_per_second),
    }
    for name, value in rows.items():
        table.add_row(name, f"{value:,}")
    console.print(table)
    for verdict in summary.examples:
        if verdict.match:
            console.print(f"  {verdict.match.distance} bits apart:", highlight=False)
            console.print(f"    {verdict.url}\n    {verdict.match.url}", highlight=False, soft_wrap=True)
