"""`simhash-dedup tables …`: sorted, compressed tables on disk: build them, merge them, ask them, check them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from pydantic import ByteSize, TypeAdapter, ValidationError
from pytimeparse2 import parse as parse_duration
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from simhash.archive import BuildPlan, Effort, EntrySource, Manifest, TableSet, build
from simhash.archive.building.builder import Progress as OnProgress
from simhash.archive.building.merging import Merged, holding
from simhash.archive.format import keys as arrays
from simhash.archive.format.manifest import identity
from simhash.archive.format.table_file import BLOCK_KEYS
from simhash.archive.verify import verify as faults
from simhash.errors import DesignError, ProfileError
from simhash.index import Record, Relation
from simhash.index.rows import decoded_takedown
from simhash.relation.tables import Design
from simhash.relation.tables import design as find_design
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profile_file import named_profile
from worker.cli.options import cores
from worker.cli.summary import say
from worker.errors import InputError, SettingsError
from worker.index.table_source import fingerprint_in, open_source
from worker.lines import lines_in, lines_of
from worker.records.verdict import hexadecimal
from worker.stopping import stop_on_signals

F = TypeVar("F", bound=Callable[..., Any])

LINE_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""
LOOKUP_LINES = 1 << 14
"""Looked up together: the more, the cheaper each."""
DIRECTORY = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


def _bytes(_: click.Context, __: click.Parameter, value: str) -> int:
    """A number of bytes, with or without a unit."""
    try:
        return int(TypeAdapter(ByteSize).validate_python(value))
    except ValidationError as error:
        raise click.BadParameter(f"{value!r} is no number of bytes: write 512MiB or 2GiB") from error


def _milliseconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A time span."""
    if value is None:
        return None
    seconds = parse_duration(value, raise_exception=False)
    if not isinstance(seconds, int | float) or seconds <= 0:
        raise click.BadParameter(f"{value!r} is no duration: write 90d, 12h or 30m")
    return int(1000 * seconds)


def _effort_options(function: F) -> F:
    """What a build may use, and how it shows where it is."""
    options = (
        click.option("--out", "-o", "out", type=DIRECTORY, required=True, help="a new directory for the tables"),
        click.option("--design", help="permutation tables: 4, 6, 10, 16, 20, …  [default: by the number of pages]"),
        click.option(
            "--memory",
            metavar="BYTES",
            callback=_bytes,
            default="1GiB",
            show_default=True,
            help="what sorting may take",
        ),
        click.option("--threads", type=click.IntRange(1), help="tables made at the same time  [default: all cores]"),
        click.option(
            "--block", type=click.IntRange(1, 1 << 20), default=BLOCK_KEYS, show_default=True, help="keys of a block"
        ),
        click.option("--quiet", "-q", is_flag=True, help="no progress and no summary on standard error"),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def tables() -> None:
    """Sorted, compressed tables of fingerprints on disk: an archive of earlier crawls.

    \b
      simhash-dedup tables build verdicts.jsonl.zst --out archive
      simhash-dedup tables lookup archive 57a843f31c06a026
    """


@tables.command(name="build")
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("--bits", type=click.IntRange(8, 256), help="width of bare fingerprints  [default: four a digit]")
@click.option("--profile", help="recipe of the verdicts, a name or a TOML file  [default: the one that they name]")
@_effort_options
def build_command(
    source: Path, bits: int | None, profile: str | None, out: Path, design: str | None, quiet: bool, **effort: int
) -> None:
    """Build tables from INPUT in the new directory --out.

    INPUT (plain, .gz or .zst) is a text file with one hexadecimal fingerprint a line, a file of verdicts, of which the
    unique ones are taken, or what `simhash-dedup index export` wrote. Verdicts and exports give tables that know their
    records (URL, verifier, …) and answer as the index does; bare fingerprints give fingerprints.

    Sorting is external: --memory bounds it, whatever the size of the input. A build that was stopped or killed goes on
    where it was when the same command is given again.

    \b
      simhash-dedup tables build fingerprints.txt.gz --out archive --memory 2GiB
      simhash-dedup tables build verdicts.jsonl.zst --out archive
    """
    console = Console(stderr=True, quiet=quiet)
    found = open_source(source, bits, None if profile is None else _profile(profile))
    chosen = None if design is None else _design(design, found.holding.bits)
    job = (*found.file.identity(), found.profile, chosen and chosen.describe(), effort)
    plan = BuildPlan(found.profile, found.holding, lambda count: found.relation(chosen, count), identity(job).hex())

    def share() -> float:
        return found.file.done() / max(1, found.file.size)

    _show(_built(out, found, plan, effort, console, share), out, console)


def _profile(name: str) -> Any:
    try:
        return named_profile(name)
    except ProfileError as error:
        raise SettingsError(f"--profile: {error}") from error


def _design(name: str, bits: int) -> Design:
    try:
        return find_design(name, bits)
    except DesignError as error:
        raise SettingsError(f"--design: {error}") from error


def _built(
    out: Path,
    source: EntrySource,
    plan: BuildPlan,
    options: dict[str, int],
    console: Console,
    share: Callable[[], float],
) -> Manifest:
    """Build with progress; SIGTERM and Ctrl-C end it between two steps."""
    effort = Effort(options["memory"], options["threads"] or cores(), options["block"])
    with stop_on_signals() as stopping, _progress(console, share) as tell:

        def step(stage: str, done: int, total: int | None) -> None:
            if stopping.is_set():
                raise KeyboardInterrupt
            tell(stage, done, total)

        try:
            return build(out, source, plan, effort, step)
        except KeyboardInterrupt:
            say(f"stopped; the same command goes on with what is in {out}", console)
            raise
        except OSError as error:
            raise InputError(f"{error.filename or out}: {error.strerror or error}") from error


@contextmanager
def _progress(console: Console, share: Callable[[], float]) -> Iterator[OnProgress]:
    """A bar on a terminal; a line now and then where standard error is a file or a pipe."""
    if console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[items]:,}")
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task("", total=1.0, items=0)

            def draw(stage: str, done: int, total: int | None) -> None:
                part = share() if total is None else done / max(1, total)
                bar.update(task, description=stage, completed=part, items=done)

            yield draw
        return
    told, lock = [time.monotonic()], threading.Lock()

    def write(stage: str, done: int, total: int | None) -> None:
        with lock:
            if time.monotonic() - told[0] < LINE_SECONDS:
                return
            told[0] = time.monotonic()
        part = share() if total is None else done / max(1, total)
        say(f"{stage}: {part:.0%}, {done:,}", console)

    yield write


def _show(made: Manifest, out: Path, console: Console) -> None:
    size = sum(file.bytes for file in made.files)
    held = f"{made.fingerprints:,} fingerprints"
    if made.records is not None:
        held += f" with their records, {made.digests:,} pages too short for one"
    design = made.relation.design
    say(f"{out}: {held}", console)
    say(f"design {design.name}, {len(design.tables)} tables, {made.relation.bands} bands; {size:,} bytes", console)
    if made.fingerprints:
        bits = [8 * file.bytes / made.fingerprints for file in made.files if file.name.startswith("table-")]
        say(f"{sum(bits) / len(bits):.2f} bits a fingerprint and table, {design.bits} raw", console)
    say(f"generation {made.generation}", console)


@tables.command(name="merge")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--max-age", metavar="DURATION", callback=_milliseconds, help="leave out records stored before that")
@click.option("--min-seq", type=click.IntRange(0), help="leave out records with a lower number")
@click.option("--forget", type=FILE, multiple=True, help="leave out what this file names, a URL or takedown a line")
@_effort_options
def merge(
    directories: Sequence[Path],
    max_age: int | None,
    min_seq: int | None,
    forget: Sequence[Path],
    out: Path,
    design: str | None,
    quiet: bool,
    **effort: int,
) -> None:
    """Merge the tables of each DIR into the new directory --out, without what has expired.

    A record that is in two of them (the same delivery of the same page) is kept once. Records of which nobody knows
    when they were stored are kept whatever --max-age says. One DIR alone is rewritten: to remove what has expired, or
    to change its design. Like a build, a merge that was killed goes on when the same command is given again; with
    --max-age, on the same day (UTC).

    \b
      simhash-dedup tables merge 2024 2025 --out archive
      simhash-dedup tables merge archive --out trimmed --max-age 365d --forget takedowns.txt
    """
    console = Console(stderr=True, quiet=quiet)
    sets = [TableSet(directory) for directory in directories]
    held = holding(sets)
    # The clock is read once a day: a merge that goes on after a kill must leave out the same records.
    oldest = None if max_age is None else _today_ms() - max_age
    urls, observations = _forgotten(forget)
    if not held.records and (oldest is not None or min_seq is not None or forget):
        raise SettingsError("--max-age, --min-seq and --forget need records: these tables hold fingerprints alone")
    rule = sets[0].relation
    chosen = rule.design if design is None else _design(design, rule.design.bits)
    if held.records and chosen.k < rule.design.k:
        raise SettingsError(f"--design: {chosen.name} guarantees {chosen.k} bits, these tables {rule.design.k}")
    relation = Relation(chosen, rule.reach, rule.verifier_reach, rule.verifier_bits, rule.bands)

    def keep(record: Record) -> bool:
        young = oldest is None or not record.inserted_ms or record.inserted_ms >= oldest
        taken_down = record.url in urls or record.observation[:8] in observations
        return young and not taken_down and record.seq >= (min_seq or 0)

    removed = (oldest, min_seq, sorted(urls), sorted(observation.hex() for observation in observations))
    job = ([tables.generation for tables in sets], chosen.describe(), removed, effort)
    plan = BuildPlan(sets[0].profile, held, lambda _: relation, identity(job).hex())
    made = _built(out, Merged(sets, keep), plan, effort, console, lambda: 0.0)
    _show(made, out, console)
    gone = sum(map(len, sets)) - made.fingerprints - (made.digests or 0)
    say(f"{gone:,} records left out", console)


def _today_ms() -> int:
    return int(time.time()) // 86_400 * 86_400_000


def _forgotten(files: Iterable[Path]) -> tuple[frozenset[str], frozenset[bytes]]:
    """URLs, and the first bytes of observations, that the files name."""
    urls: set[str] = set()
    observations: set[bytes] = set()
    for path in files:
        for number, line in lines_in(path):
            try:
                if line.startswith(b"{"):
                    observations.add(bytes.fromhex(decoded_takedown(line).observation))
                else:
                    urls.add(line.rstrip(b"\r\n").decode())
            except ValueError as error:
                raise InputError(f"{path}, line {number}: neither a URL nor a takedown: {error}") from error
    return frozenset(urls), frozenset(observations)


# Asking ------------------------------------------------------------------------------------------------------------


@tables.command(name="lookup")
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.argument("fingerprints", metavar="FINGERPRINT...", nargs=-1, required=True)
@click.option("--k", type=click.IntRange(0), help="largest distance in bits  [default: the tables' own reach]")
def lookup(directory: Path, fingerprints: Sequence[str], k: int | None) -> None:
    """What DIR holds near each FINGERPRINT (hex), or near those on standard input (-), one a line.

    One JSON object a line and fingerprint: what was found, nearest first, with its records where there are some. Within
    the design's k bits (3 mostly) everything is found, beyond them what shares a table's prefix. Exit code 1 when
    nothing is found for any of them.

    \b
      simhash-dedup tables lookup archive 57a843f31c06a026 --k 3
      cut -f1 fingerprints.tsv | simhash-dedup tables lookup archive - > near.jsonl
    """
    found = 0
    tables = TableSet(directory)
    wanted = _on_standard_input() if list(fingerprints) == ["-"] else filter(None, fingerprints)
    while some := list(islice(wanted, LOOKUP_LINES)):
        for line, count in _looked_up(tables, some, k):
            click.echo(line)
            found += count
    if not found:
        sys.exit(1)


def _on_standard_input() -> Iterator[str]:
    try:
        for _, line in lines_of(sys.stdin.buffer):
            yield os.fsdecode(line.strip())
    except OSError as error:
        raise InputError(f"standard input: {error.strerror or error}") from error


def _looked_up(tables: TableSet, texts: Sequence[str], k: int | None) -> Iterator[tuple[bytes, int]]:
    """A line for each fingerprint, and how many were found near it."""
    bits = tables.relation.design.bits
    values = [_fingerprint(text, bits) for text in texts]
    near = tables.near(arrays.from_ints(values, bits), k)
    others = arrays.to_ints(near.keys, bits)
    records = tables.records(near.keys) if tables.has_records else [[] for _ in others]
    matches: list[list[dict[str, object]]] = [[] for _ in texts]
    for query, other, distance, held in zip(near.query.tolist(), others, near.distances.tolist(), records, strict=True):
        match: dict[str, object] = {"fingerprint": hexadecimal(other, bits), "distance": distance}
        if tables.has_records:
            match["records"] = [_fields(record, tables.relation) for record in held]
        matches[query].append(match)
    for text, found in zip(texts, matches, strict=True):
        yield msgspec.json.encode({"fingerprint": text, "matches": found}), len(found)


def _fingerprint(text: str, bits: int) -> int:
    value = fingerprint_in(os.fsencode(text), bits)
    if value is None:
        raise InputError(f"{text!r} is no fingerprint of these tables: {-(-bits // 4)} hexadecimal digits")
    return value


def _fields(record: Record, relation: Relation) -> dict[str, object]:
    width = relation.verifier_bits + BAND_BITS * relation.bands
    return {
        "url": record.url,
        "id": record.id,
        "seq": record.seq,
        "inserted_ms": record.inserted_ms,
        "fetched_at": record.fetched_at,
        "features": record.features,
        "verifier": hexadecimal(record.verifier, width),
        "digest": record.digest,
        "observation": record.observation.hex(),
    }


@tables.command(name="verify")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--quiet", "-q", is_flag=True, help="no progress on standard error")
def verify(directories: Sequence[Path], quiet: bool) -> None:
    """Read all of each DIR and check it: checksums, order, counts, and that all tables hold all records.

    What is wrong is one line each, naming file and block. Exit code 1 when anything is.

    \b
      simhash-dedup tables verify archive
    """
    found = 0
    console = Console(stderr=True, quiet=quiet)
    for directory in directories:
        with stop_on_signals() as stopping, _progress(console, lambda: 0.0) as tell:

            def step(
                name: str, done: int, total: int | None, stopping: threading.Event = stopping, tell: OnProgress = tell
            ) -> None:
                if stopping.is_set():
                    raise KeyboardInterrupt
                tell(name, done, total)

            wrong = list(faults(directory, step))
        for line in wrong or [f"{directory}: all is well"]:
            click.echo(line)
        found += len(wrong)
    if found:
        sys.exit(1)
