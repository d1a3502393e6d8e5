"""`simhash-dedup batch`: new pages against all that exist and against themselves, on Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from worker.batch.request import ANNOTATED, FIELD, KEEP, Request, Watch
from worker.cli.options import LOGGING, Count, settings_of, settings_options
from worker.cli.summary import say, show
from worker.errors import InputError, SettingsError
from worker.stopping import stop_on_signals

if TYPE_CHECKING:
    from worker.batch.results import BatchSummary

NAMES = ("profile", "design", "documents", "max_page_bytes", "max_url_bytes", "page_deadline", "page_memory", *LOGGING)
DEFAULTS = {"documents": 1_000_000}
"""As for `file`, whose verdicts these are."""


def _memory(_: click.Context, __: click.Parameter, value: str) -> str:
    """A size as Java writes it: what it says of others is not to be understood."""
    if not re.fullmatch(r"[1-9]\d*[kmgt]", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} is no size for Java: write 512m or 8g")
    return value


def _keep(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in KEEP and not (value.startswith(FIELD) and value != FIELD):
        raise click.BadParameter(f"{value!r} is none of {', '.join(KEEP)} and {FIELD}NAME")
    return value


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="NEW...")
@click.option(
    "--against",
    multiple=True,
    metavar="EXISTING",
    help="pages that were called unique before, the oldest input first (repeatable)",
)
@click.option(
    "--out",
    "-o",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="directory for verdicts.jsonl, verdicts.parquet and rejected.jsonl",
)
@click.option("--master", help="Spark's master: local[4], spark://…, k8s://…  [default: spark-submit's, or local[*]]")
@click.option(
    "--memory", default="2g", show_default=True, callback=_memory, help="of each Java process of Spark: 512m, 8g"
)
@click.option(
    "--k",
    type=click.IntRange(0, 7),
    help="compare fingerprints alone, within K bits, without the profile's verifier  [default: as the profile says]",
)
@click.option(
    "--keep",
    callback=_keep,
    default=KEEP[0],
    metavar="|".join((*KEEP, f"{FIELD}NAME")),
    show_default=True,
    help="of NEW pages that match each other: the first; that with most words; that with the latest fetched_at; that "
    "with the largest number in a field of the input",
)
@click.option(
    "--annotate",
    type=click.Choice(ANNOTATED),
    help="also write the NEW pages once more, in this form, of a table all columns, with `dup_of` (URL of the match), "
    "`similarity` and `copies` (how many pages match this one)",
)
@click.option("--clusters", is_flag=True, help="also write clusters.jsonl: what hangs together, directly or not")
@click.option(
    "--max-rejected",
    type=Count(),
    help="refuse EXISTING beyond so many unreadable records; exit code 1 beyond so many of NEW  [default: any number]",
)
@click.option("--force", is_flag=True, help="overwrite what an earlier batch has written")
@click.option("--summary-json", type=click.Path(path_type=Path, dir_okay=False), help="write the summary's figures")
@click.option("--quiet", "-q", is_flag=True, help="no progress and no summary on standard error")
@settings_options(NAMES, DEFAULTS)
def batch(
    inputs: tuple[str, ...],
    against: tuple[str, ...],
    out: Path,
    master: str | None,
    memory: str,
    k: int | None,
    keep: str,
    annotate: str | None,
    clusters: bool,
    max_rejected: int | None,
    force: bool,
    summary_json: Path | None,
    quiet: bool,
    config: Path | None,
    **options: Any,
) -> None:
    """Judge NEW pages against EXISTING ones and against themselves, on Spark: the verdicts of a stream, all at once.

    An input is JSONL (plain, .gz or .zst), a WARC, HTML, Parquet with pages (url, and html, text or html_base64) or
    with signatures (fingerprint, and whatever else a verdict has), or verdicts of `run`, `file` or `batch`. Of verdicts
    given with --against only the unique ones count; other inputs there count whole, as they are.

    \b
      simhash-dedup batch monday.jsonl.zst --out monday/
      simhash-dedup batch tuesday/*.warc.gz --against monday/verdicts.parquet --out tuesday/
      simhash-dedup batch crawl/ --keep longest --out kept/
      simhash-dedup batch fingerprints.parquet --against archive/ --k 3 --out found/
      spark-submit --master spark://… deploy/spark/submit.py batch …   # see docs/batch.md

    The verdicts are those of `simhash-dedup file` on the same inputs in the same order (with --keep: in the order of
    preference). Nothing is written unless all is done, and then verdicts.jsonl last. Records of EXISTING that cannot be
    read are counted and kept in rejected.jsonl too; where none can, that is an error.

    Needs the extra `spark` (pip install 'simhash-dedup[spark]') and Java 17.
    """
    settings = settings_of(config, options, DEFAULTS)
    console = Console(stderr=True, quiet=quiet)
    how = (master, memory, k, clusters, max_rejected, keep, annotate, force, summary_json)
    request = Request(inputs, against, out, settings, *how)
    summary = _done(request, console)
    if summary_json:
        _write(summary_json, summary)
    more = {"existing": summary.existing, "duplicates of existing": summary.duplicates_of_existing}
    show(summary, console, more | {"existing, unreadable": summary.existing_rejected})
    say(f"verdicts: {out / 'verdicts.jsonl'}", console)
    if annotate:
        say(f"annotated pages: {out / f'annotated.{annotate}'}", console)
    if clusters:
        say(f"clusters: {out / 'clusters.jsonl'}", console)
    if summary.rejected + summary.existing_rejected:
        say(f"rejected: {out / 'rejected.jsonl'}", console)
    summary.check(max_rejected)


def _done(request: Request, console: Console) -> BatchSummary:
    """The batch, done; KeyboardInterrupt where it was stopped."""
    try:
        from worker.batch.engine import StageStopped
        from worker.batch.launch import launch
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed: pip install 'simhash-dedup[spark]'") from error
    with stop_on_signals() as stopping, _progress(console) as on_progress:
        try:
            return launch(request, Watch(stopping, on_progress))
        except StageStopped:
            raise KeyboardInterrupt from None


def _write(path: Path, summary: BatchSummary) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(summary.figures())) + b"\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; a line for each stage where standard error is a file or a pipe."""
    if not console.is_terminal:
        told: list[str] = []

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in told[-1:]:
                told.append(stage)
                say(f"{stage}: {total:,} {'pages' if stage == 'writing' else 'tasks'}", console)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("starting Spark", total=None)

        def update(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield update
