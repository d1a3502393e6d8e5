"""`simhash-dedup verify`: what was told, checked from outside."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec

from simhash.index.rows import encoded
from worker.cli.operating.telling import teller
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import InputError, SettingsError
from worker.files.locations import check_unread
from worker.index.whole import found_whole
from worker.lines import lines_in
from worker.settings import Settings
from worker.verifying.checks import Check
from worker.verifying.rules import BUCKET_BITS, PROFILES, Given, Rule
from worker.verifying.sources import Sources
from worker.verifying.table_masks import named

FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)
NAMES = (
    "verdict_topic",
    "dead_letter_topic",
    "input_topic",
    "unique_topic",
    "takedown_topic",
    "bootstrap_servers",
    *(name for name in Settings.model_fields if name.startswith("kafka_")),
    *INDEX,
    "archive",
    "base",
    "max_age",
    "max_documents",
    *LOGGING,
)
DEFAULT_LIMIT = Rule(*PROFILES["default/2"]).place_limit(named("3", 64))


@click.command()
@click.argument("verdicts", nargs=-1, type=FILE, metavar="[VERDICTS]...")
@click.option(
    "--dead-letters", type=FILE, multiple=True, help="what `file` rejected (OUT.rejected.jsonl); may be given again"
)
@click.option("--input", "inputs", type=FILE, multiple=True, help="JSONL that was judged: is each record answered?")
@click.option(
    "--with-input",
    is_flag=True,
    help="read the input topic: is each of its records answered? Has the unique topic, where set, the unique ones?",
)
@click.option(
    "--index", "with_index", is_flag=True, help="read the index too: does it hold what was told, nothing else?"
)
@click.option("--export", type=FILE, help="the same, from what `index export` wrote")
@click.option("--takedowns", type=FILE, multiple=True, help="what `index delete --takedowns` wrote; may be given again")
@click.option("--any-order", is_flag=True, help="pages were judged in another order than they come in: batch --keep")
@click.option("--design", help="the index's permutation tables (3: the default; 14 …); --index and --export know them")
@click.option(
    "--place-limit",
    type=click.IntRange(0),
    help=f"pages that a place takes; 0: any number  [default: by the design, {DEFAULT_LIMIT} for the default one]",
)
@click.option(
    "--bucket-bits",
    type=click.IntRange(1, 32),
    help=f"the index's b: less than {BUCKET_BITS} of one for fewer pages than a million; --index knows it  "
    f"[default: {BUCKET_BITS}]",
)
@click.option(
    "--k", type=click.IntRange(0), help="bits within which every pair is found  [default: the profile's, as below]"
)
@click.option("--reach", type=click.IntRange(0), help="most bits between two fingerprints that match")
@click.option("--verifier-reach", type=click.IntRange(-1), help="most bits between their verifiers; -1: there are none")
@click.option("--verifier-bits", type=click.IntRange(1), help="width of the verifier before its band keys")
@click.option("--bands", type=click.IntRange(0), help="how many band keys of 32 bits follow it")
@click.option("--fold", type=click.IntRange(1), help="minima of which each of its bits is made  [default: 1]")
@click.option("--summary-json", type=NEW_FILE, help="write counts, violations and notes")
@click.option("--quiet", "-q", is_flag=True, help="no progress on standard error")
@settings_options(NAMES)
def verify(
    verdicts: tuple[Path, ...],
    dead_letters: tuple[Path, ...],
    inputs: tuple[Path, ...],
    with_input: bool,
    with_index: bool,
    export: Path | None,
    takedowns: tuple[Path, ...],
    any_order: bool,
    design: str | None,
    summary_json: Path | None,
    quiet: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Check what was told, from outside: by a program that shares no code with the judging.

    VERDICTS are files of verdicts (JSONL, .gz, .zst), all that were written for one index since it was empty; without
    them the verdict topic and the dead-letter topic are read, from their beginning to the ends that they have now. Is
    there one answer for each record, and each number given once? Is each duplicate's match a page that was itself
    called unique, at the true distance, of the right kind, and the oldest that matches? Are there two unique pages that
    match? Does the index hold what was told, and nothing else?

    Let the workers come to the end of the input first: a record on its way counts as lost. Give max_age, max_documents
    and takedowns where the index has them: what it forgot is not held against it. Give `base`, where there is one: its
    pages are not read, so matches among them are not checked. Verdicts of a group that was rewound, or of an index that
    was rebuilt with losses, are not what is checked here. A million take half a minute, 0.5 GB.

    How far two pages of a shipped profile may be apart is known; of another one --k, --reach and so on say it, or the
    index. Without its design, and of an index that was migrated, only those pairs are looked for that every design
    finds. Exit code 1 when anything is wrong.

    \b
      simhash-dedup verify verdicts.jsonl --dead-letters verdicts.jsonl.rejected.jsonl --input pages.jsonl
      simhash-dedup verify --config dedup.toml --with-input --index          # an evening's check of a stream
      simhash-dedup verify monday.jsonl.zst tuesday.jsonl.zst --export index.jsonl.zst --summary-json found.json
    """
    given = Given(**{name: flags.pop(name) for name in Given.__dataclass_fields__})
    settings = settings_of(config, flags)
    if with_index and export:
        raise SettingsError("--index reads the index in Redis, --export a file: give one of them")
    check_unread([summary_json], [*verdicts, *dead_letters, *inputs, export, *takedowns])
    sources = Sources(settings, verdicts, dead_letters, inputs, with_input, takedowns)
    started = time.monotonic()
    lines: Iterator[bytes] | None = None
    if export:
        lines = (line for _, line in lines_in(export))
    elif with_index:
        lines = rows_of_index(settings)
    check = Check(sources, given, design, lines, (lambda _: None) if quiet else teller(), any_order)
    check.run()
    for line in _told(check):
        click.echo(line)
    if summary_json:
        _write(summary_json, check, time.monotonic() - started)
    if check.findings.violations:
        sys.exit(1)


def rows_of_index(settings: Settings) -> Iterator[bytes]:
    """The lines that `index export` would write: the one way in which an index is looked at here."""
    return map(encoded, found_whole(settings).exported())


def _told(check: Check) -> Iterator[str]:
    found, counts = check.findings, check.counts
    yield from found.first
    for kind, count in found.counts.most_common():
        yield f"{count:,} x {kind}"
    for note in found.notes:
        yield f"note: {note}"
    seen = [f"{counts.verdicts:,} verdicts ({counts.unique:,} unique)", f"{counts.dead_letters:,} dead letters"]
    if counts.records is not None:
        seen.append(f"{counts.records:,} records")
    if counts.held is not None:
        seen.append(f"{counts.held:,} stored pages")
    result = f"{found.violations:,} violations" if found.violations else "all as promised"
    yield f"{', '.join(seen)}: {result}"


def _write(path: Path, check: Check, seconds: float) -> None:
    found = check.findings
    summary = asdict(check.counts) | {
        "violations": dict(found.counts),
        "first": found.first,
        "notes": found.notes,
        "seconds": round(seconds, 1),
    }
    try:
        path.write_bytes(msgspec.json.encode(summary) + b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
