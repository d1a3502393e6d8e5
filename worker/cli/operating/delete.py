"""`simhash-dedup index delete`: forget pages, and say so to whoever rebuilds the index."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from simhash.errors import IndexFault, TableFault
from simhash.index.redis.operators.takedowns import Found, of_urls
from simhash.index.rows import Takedown, encoded
from worker.cli.operating.telling import teller
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import InputError, SettingsError
from worker.files.locations import check_unread
from worker.index.whole import Whole, found_whole
from worker.lines import lines_in, lines_of
from worker.records.verdict import Verdict, decode, decode_told
from worker.settings import Settings
from worker.stream.kafka.takedown_topic import check_topic, publish

FILE = click.Path(path_type=Path, dir_okay=False)
KAFKA = [name for name in Settings.model_fields if name.startswith("kafka_")]


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--from", "listed", type=click.File("rb"), help="URLs too, one a line; - is standard input")
@click.option("--verdicts", type=FILE, help="find the pages by their verdicts in this file (JSONL, .gz, .zst): quick")
@click.option("--takedowns", type=FILE, help="append what is removed to this file (JSONL), for a rebuild")
@click.option("--dry-run", is_flag=True, help="remove nothing, only say what would be")
@settings_options((*INDEX, "archive", "takedown_topic", "bootstrap_servers", *KAFKA, *LOGGING))
def delete(
    urls: tuple[str, ...],
    listed: IO[bytes] | None,
    verdicts: Path | None,
    takedowns: Path | None,
    dry_run: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Forget pages by their URLs: their records leave the index with all that leads to them.

    A page of such a URL that is seen again is judged afresh. Without --verdicts all records are searched, about a
    minute for each million pages. What is removed is appended to --takedowns and to the takedown topic, where one is
    set, before it is removed: a rebuild from the verdicts leaves it out. The verdicts themselves, and the journal
    of pages whose verdicts are not committed yet, are not touched. Exit code 1 when a URL was not found.

    \b
      simhash-dedup index delete https://example.com/private --takedowns takedowns.jsonl
      simhash-dedup index delete --from urls.txt --takedown-topic pages.takedowns
      simhash-dedup index delete --from urls.txt --verdicts verdicts.jsonl.zst --dry-run
    """
    check_unread([takedowns], [verdicts])
    wanted = {*map(_given, urls), *_listed(listed)}
    if not wanted:
        raise SettingsError("--from names no URL" if listed else "give a URL, or --from a file of them")
    settings = settings_of(config, flags)
    whole = found_whole(settings, writes=not dry_run)
    if settings.takedown_topic and not dry_run:
        check_topic(settings, settings.takedown_topic)
    unknown: set[str] = set()
    if verdicts:
        places, unknown = _places(verdicts, wanted, whole.index.spec.relation.design.bits)
        found = [found for place in places for found in whole.under(*place, wanted)]
    else:
        found = list(of_urls(_told(whole.scan(), whole.documents()), wanted))
    for each in found:
        click.echo(f"{'would remove' if dry_run else 'removing'} seq {each.record.seq}  {each.record.url}")
    if found and not dry_run:
        _tell(settings, takedowns, [_takedown(each) for each in found])
        _take_down(whole, found)
        click.echo(f"{len(found):,} pages removed, {whole.documents():,} left")
    if not dry_run:
        whole.forget_versions(wanted)  # also of duplicates, of which there is no record
    missing = sorted(wanted - {each.record.url for each in found})
    for url in missing:
        why = f"no unique verdict in {verdicts}, and not searched for" if url in unknown else "not in the index"
        click.echo(f"{why}: {url}", err=True)
    sys.exit(1 if missing else 0)


STILL_THERE = "pages that were told of as removed may still be there, until the same command has come to its end"


def _take_down(whole: Whole, found: list[Found]) -> None:
    try:
        whole.take_down(found)
    except IndexFault as error:
        error.args = (f"{error}; {STILL_THERE}",)
        raise
    except (TableFault, OSError):
        click.echo(STILL_THERE, err=True)
        raise


def _listed(file: IO[bytes] | None) -> Iterator[str]:
    try:
        for number, line in lines_of(file) if file else ():
            yield _url(number, line)
    except OSError as error:
        raise InputError(f"--from: {error.strerror or error}") from error


def _given(url: str) -> str:
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{url!r} is not UTF-8") from error
    return url


def _url(number: int, line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")  # blanks around a URL are part of it, as a page may have them
    except UnicodeDecodeError as error:
        raise InputError(f"--from: line {number} is not UTF-8: {error.reason} (byte {error.start})") from error


def _told(records: Iterator[Any], documents: int) -> Iterator[Any]:
    tell = teller()
    for number, each in enumerate(records):
        if number % 1000 == 0:
            tell(f"searching: {number:,} of {documents:,} pages")
        yield each


def _places(verdicts: Path, urls: Collection[str], bits: int) -> tuple[list[tuple[int | None, str]], set[str]]:
    """Fingerprint and digest of each `unique` verdict on these URLs, each once; and the URLs that have none.

    Args:
        bits: of the index's fingerprints.
    """
    places: dict[tuple[int | None, str], None] = {}
    without = set(urls)
    for number, line in lines_in(verdicts):
        try:
            verdict = decode(line)
            if verdict.url in urls and verdict.verdict == "unique":
                places[_place(decode_told(line), bits)] = None
                without.discard(verdict.url)
        except (msgspec.DecodeError, ValueError) as error:
            raise InputError(f"{verdicts}: line {number} is no verdict: {error}") from error
    return list(places), without


def _place(verdict: Verdict, bits: int) -> tuple[int | None, str]:
    fingerprint = None if verdict.fingerprint is None else int(verdict.fingerprint, 16)
    if fingerprint is not None and fingerprint.bit_length() > bits:
        raise ValueError(f"its fingerprint has more than the {bits} bits of this index: it is another index's")
    return fingerprint, verdict.digest


def _takedown(found: Found) -> Takedown:
    record = found.record
    return Takedown(record.url, int(time.time() * 1000), record.seq, record.observation.hex())


def _tell(settings: Settings, path: Path | None, rows: list[Takedown]) -> None:
    """Publish what is about to be removed: whoever rebuilds must never know less than the index."""
    if path:
        try:
            with path.open("ab") as file:
                file.writelines(map(encoded, rows))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from error
    if settings.takedown_topic:
        publish(settings, settings.takedown_topic, rows)
    if not path and not settings.takedown_topic:
        click.echo("not published: a rebuild from the verdicts will bring these pages back (--takedowns)", err=True)
