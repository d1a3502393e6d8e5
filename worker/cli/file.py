"""`simhash-dedup file`: the judgement over files."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from simhash.index import Index
from simhash.signature.profiles import Profile
from worker.cli.options import LOGGING, Count, cores, settings_of, settings_options
from worker.cli.summary import say, show
from worker.errors import InputError, SettingsError
from worker.files.inputs import Input, open_inputs
from worker.files.judged import Workbench, run_files
from worker.files.locations import check_unread, failing, identity, is_remote, place, size_of
from worker.files.outputs import OutputPaths, Outputs
from worker.files.pages_out import is_of_inputs, writing
from worker.files.summary import Summary
from worker.index.configured import configured_profile, index_in_memory
from worker.judging.fingerprinters import Fingerprinters, page_limits, recipe_for_files
from worker.settings import Settings
from worker.stopping import stop_on_signals

NAMES = (
    "processes",
    "index_name",
    "profile",
    "design",
    "documents",
    "base",
    "previous",
    "max_age",
    "max_documents",
    "max_page_bytes",
    "max_url_bytes",
    "page_deadline",
    "page_memory",
    *LOGGING,
)
DEFAULTS = {"documents": 1_000_000, "processes": "all cores"}
"""Where a file run differs: files are mostly smaller than streams, and it has the machine to itself."""
LINE_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""


class _PathOrAddress(click.Path):
    """A path, or an address."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_remote(value):
            return place(value)
        return super().convert(value, param, ctx)


FILE = _PathOrAddress(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class Job:
    """What one run was asked to do.

    Attributes:
        state: keep the index in this directory.
        on_server: judge on the index of a server; with neither the index is for this run only.
        force: overwrite what an earlier run has written.
    """

    inputs: tuple[str, ...]
    places: OutputPaths
    state: Path | None
    on_server: bool
    force: bool = False

    def __post_init__(self) -> None:
        if self.state and self.on_server:
            raise SettingsError("--state is for the embedded index, --redis for a server's: give one of them")
        check_unread(self.places.files(), (place(name) for name in self.inputs if name != "-"))
        self._check_places()

    def _check_places(self) -> None:
        written: set[str] = set()
        for file in self.places.files():
            path = identity(file)
            with writing(str(file)), failing():
                is_file, exists = file.is_file(), file.exists()
            if not self.force and is_file and size_of(file):
                raise InputError(f"{file} exists: --force overwrites it, another name keeps it")
            if path in written and (is_file or not exists):
                raise InputError(f"{file} is to be written twice")
            written.add(path)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--out", "-o", required=True, help="where the verdicts go, one JSON object a line; - is standard output")
@click.option(
    "--state", type=click.Path(path_type=Path, file_okay=False), help="keep the index in this directory between runs"
)
@click.option(
    "--redis",
    "--redis-url",
    "redis_url",
    metavar="URL",
    help="use the index on this server",
)
@click.option(
    "--server", is_flag=True, help="the same, with the URL of the setting redis_url: no password is seen by `ps`"
)
@click.option(
    "--unique-out",
    type=FILE,
    help="also write the unique pages: to FILE.parquet, FILE.csv or FILE.tsv of such inputs, with all their columns; "
    "to FILE.warc.gz of WARCs, with revisits for exact copies; else as JSONL, and their byte offsets to FILE.index",
)
@click.option(
    "--annotate",
    type=FILE,
    metavar="FILE",
    help="also write all pages, in the same forms, with `dup_of` (URL of the match) and `similarity`; none is dropped",
)
@click.option("--rejected-out", type=FILE, help="what was rejected, and why  [default: OUT.rejected.jsonl]")
@click.option("--force", is_flag=True, help="overwrite what an earlier run has written")
@click.option("--max-rejected", type=Count(), help="exit code 1 where more records are rejected  [default: any number]")
@click.option("--summary-json", type=FILE, help="write the summary's figures")
@click.option("--quiet", "-q", is_flag=True, help="no progress and no summary on standard error")
@settings_options(NAMES, DEFAULTS)
def file(
    inputs: tuple[str, ...],
    out: str,
    state: Path | None,
    redis_url: str | None,
    server: bool,
    force: bool,
    max_rejected: int | None,
    quiet: bool,
    config: Path | None,
    **options: Any,
) -> None:
    """Judge the pages in files, in order: one verdict a page, the same as on a stream.

    INPUT is JSONL, CSV, TSV, a WARC or WET (each plain, .gz or .zst), Parquet (needs pyarrow: the extra `parquet`), an
    HTML file, a directory (its Parquet, or else its JSONL and WARCs, or else its HTML), or - for JSONL on standard
    input. Inputs and outputs may be addresses: s3://…, https://… (the extra `remote`). A line of JSONL is a page:
    {"url": …, "html": …}, or with "text" or "html_base64" in place of "html"; the columns of a table have these names.

    Nothing needs to run: the index is in this process's memory, some 320 bytes a unique page, and gone with the run.
    With --state it is kept, in an embedded Redis that writes to a directory; --redis takes that of a server.

    \b
      simhash-dedup file crawl.jsonl.zst --out verdicts.jsonl
      simhash-dedup file monday.warc.gz --state ./seen --out monday.jsonl
      simhash-dedup file tuesday.warc.gz --state ./seen --out tuesday.jsonl   # judged against monday
      simhash-dedup file pages.parquet --out verdicts.jsonl --unique-out unique.parquet
      zstdcat pages.zst | simhash-dedup file - --out - | jq .verdict

    Rejected records are kept in OUT.rejected.jsonl; where OUT is no file, in a new simhash-dedup.rejected.jsonl here. A
    file that is given twice, directly or in a directory, is read once.

    Exit code 3 when an input is broken or an output cannot be written, after what came before is judged and written;
    1 when no page was judged, or more were rejected than --max-rejected.
    """
    if redis_url and server:
        raise SettingsError("--redis names a server, --server takes that of the setting redis_url: give one of them")
    job = Job(inputs, _places(out, options), state, server or redis_url is not None, force)
    settings = settings_of(config, options | {"redis_url": redis_url}, DEFAULTS | {"processes": cores()})
    console = Console(stderr=True, quiet=quiet)
    if not job.on_server and "redis_url" in settings.model_fields_set:
        note = "redis_url is for streams: this run has an index of its own; --server judges on that server's"
        console.print(note, soft_wrap=True)
    summary, rejected_in = _done(job, settings, console)
    _show(summary, job.places, rejected_in, console)
    if not summary.complete:
        raise KeyboardInterrupt
    summary.check(max_rejected)


def _places(out: str, options: dict[str, Any]) -> OutputPaths:
    names = ("unique_out", "rejected_out", "summary_json", "annotate")
    unique, rejected, summary, annotated = (options.pop(name) for name in names)
    if out == "-":
        return OutputPaths(None, unique, rejected, summary, annotated=annotated)
    # A device or a pipe has no neighbour: `--out /dev/null` must not make /dev/null.rejected.jsonl.
    beside = is_remote(out) or not os.path.exists(out) or os.path.isfile(out)
    rejected = rejected or (place(out + ".rejected.jsonl") if beside else None)
    return OutputPaths(place(out), unique, rejected, summary, annotated=annotated)


def _done(job: Job, settings: Settings, console: Console) -> tuple[Summary, str | None]:
    """The job, done; and where rejected records are."""
    keeps_index = job.state is not None or job.on_server
    keep = any(place is not None and is_of_inputs(place) for place in (job.places.unique, job.places.annotated))
    inputs, again = open_inputs(job.inputs, settings.max_page_bytes, spool=keeps_index, keep=keep)
    # Those in a directory too, of which only its name was given.
    check_unread(job.places.files(), (place(each.name) for each in inputs if each.name != "-"))
    configured_profile(settings)  # a wrong name is said before a server starts
    with ExitStack() as stack:
        stopping = stack.enter_context(stop_on_signals())
        profile, reopen = _index(job, settings, stack)
        index = reopen()
        outputs = Outputs(job.places, inputs)  # only now: a run that is refused must not empty the last run's files
        stack.callback(outputs.close)
        fingerprinters = Fingerprinters(recipe_for_files(settings, profile), settings.processes, page_limits(settings))
        stack.callback(fingerprinters.close)
        on_progress = stack.enter_context(_progress(inputs, console))
        bench = Workbench(profile, index, fingerprinters, reopen, settings.previous)
        summary = run_files(inputs, outputs, bench, stopping, on_progress)
        summary.again = len(again)
        outputs.finish(summary)
        return summary, outputs.rejected_in


def _index(job: Job, settings: Settings, stack: ExitStack) -> tuple[Profile, Callable[[], Index]]:
    """By which profile pages are judged, and what opens the index: in memory, where nobody asked for more."""
    if not (job.state or job.on_server or settings.base or settings.archive):
        profile = configured_profile(settings)
        return profile, partial(index_in_memory, settings, profile)
    from simhash.index.redis import epochs  # with the client, which takes its time to load
    from worker.files.embedded import embedded_redis
    from worker.index.stores import connected_index, judging_profile

    client = None if job.on_server else stack.enter_context(embedded_redis(job.state))
    if client is not None:  # it is another server in each run: that is no news
        logging.getLogger(epochs.__name__).setLevel(logging.ERROR)
    profile = judging_profile(settings, client)
    return profile, partial(connected_index, settings, profile, client)


@contextmanager
def _progress(inputs: list[Input], console: Console) -> Iterator[Callable[[Summary], None]]:
    """A bar on a terminal; a line now and then where standard error is a file or a pipe."""
    total = None if any(each.total is None for each in inputs) else sum(each.total or 0 for each in inputs)
    if console.is_terminal:
        with _bar(inputs, total, console) as update:
            yield update
        return
    told = time.monotonic()

    def tell(summary: Summary) -> None:
        nonlocal told
        if time.monotonic() - told < LINE_SECONDS:
            return
        told = time.monotonic()
        share = sum(each.done() for each in inputs) / total if total else 0.0
        done = f"{share:.0%}, " if total else ""
        left = f", about {_roughly(summary.seconds * (1 / share - 1))} left" if share else ""
        say(f"judging: {done}{summary.pages:,} pages, {summary.pages_per_second:,.0f}/s{left}", console)

    yield tell


def _roughly(seconds: float) -> str:
    """A time as one would guess it."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def _bar(inputs: list[Input], total: int | None, console: Console) -> Iterator[Callable[[Summary], None]]:
    columns = (
        TextColumn("judging"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[pages]:,} pages"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("", total=total, pages=0, rate=0.0)

        def update(summary: Summary) -> None:
            done = sum(each.done() for each in inputs)
            bar.update(task, completed=done, pages=summary.pages, rate=summary.pages_per_second)

        yield update


def _show(summary: Summary, places: OutputPaths, rejected_in: str | None, console: Console) -> None:
    show(summary, console)
    say(f"verdicts: {places.verdicts or 'standard output'}", console)
    if places.unique:
        say(f"unique pages: {places.unique}", console)
    if places.annotated:
        say(f"annotated pages: {places.annotated}", console)
    if summary.rejected:
        say(f"rejected: {rejected_in}", console)
