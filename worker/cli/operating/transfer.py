"""`simhash-dedup index export` and `index import`: an index into a file, and out of one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import msgspec
import zstandard

from simhash.archive.format.durable import move_whole
from simhash.index.redis.operators.transfer import loaded
from simhash.index.rows import AnyRow, EndRow, IndexRow, RecordRow, decoded, encoded
from worker.cli.operating.telling import saying_what_is_next, teller
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import InputError
from worker.index.stores import opened_store
from worker.index.whole import Whole, found_whole
from worker.lines import lines_in

FILE = click.Path(path_type=Path, dir_okay=False)
LEVEL = 3


@click.command()
@click.argument("file", type=FILE)
@settings_options((*INDEX, "archive", *LOGGING))
def export(file: Path, config: Path | None, **flags: Any) -> None:
    """Write the index to FILE: all records, marks and journals, a JSON object a line (ARCHITECTURE.md has the rows).

    FILE is compressed when it ends in .zst. What is written is the index as it was at the begin: workers may go on, but
    where another index is to take over, stop them first. FILE appears when it is complete; after a failure begin again.
    A device or a pipe (/dev/stdout) is written to as it is. Where the index has an archive, its records come first,
    sorted by number, which takes some room for temporary files. An import stores all of them in Redis.

    \b
      simhash-dedup index export index.jsonl.zst
      simhash-dedup index import index.jsonl.zst --redis-url redis://new:6379/0
    """
    whole = found_whole(settings_of(config, flags))
    device = file.exists() and not file.is_file()  # or a pipe: nothing may come into its place
    beside = file if device else file.with_name(f"{file.name}.partial")
    try:
        with beside.open("wb") if device else _alone(beside) as raw:
            with _packed(raw, file.suffix == ".zst") as out:
                end = _export(whole, out)
            if not device:
                raw.flush()
                os.fsync(raw.fileno())  # or, after a crash, nothing may be there where the last backup was
                move_whole(beside, file)
    except OSError as error:
        raise InputError(f"{beside} cannot be written: {error.strerror}") from error
    click.echo(f"{end.records:,} records, {end.marks:,} marks and {end.journal:,} decisions in {file}", err=device)


def _export(whole: Whole, out: IO[bytes]) -> EndRow:
    tell, records, last, total = teller(), 0, EndRow(0, 0, 0), whole.documents()
    for row in whole.exported():
        out.write(encoded(row))
        if isinstance(row, RecordRow):
            records += 1
            if records % 1000 == 0:
                tell(f"exporting: {records:,} of {total:,} records")
        elif isinstance(row, EndRow):
            last = row
    return last


@contextmanager
def _alone(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that no other export writes; what one that was killed has left there is overwritten.

    Raises:
        InputError: another one does.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except BlockingIOError:
            is_ours = False
        if not is_ours:  # or it has its name by now
            raise InputError(f"{path}: another export writes to it")
        file.truncate(0)
        yield file


@contextmanager
def _packed(raw: IO[bytes], compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        yield raw
        return
    with zstandard.ZstdCompressor(level=LEVEL).stream_writer(raw, closefd=False) as out:
        yield out


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@settings_options((*INDEX, *LOGGING))
def import_(file: Path, config: Path | None, **flags: Any) -> None:
    """Store an exported index in Redis, under --index-name: it then answers as the exported one did.

    There must be no index of that name, or an empty one of the same kind. Workers are refused until the import is
    complete; one that was ended goes on where it was when the same FILE is imported again.

    \b
      simhash-dedup index import index.jsonl.zst --redis-url redis://new:6379/0
      simhash-dedup index check --redis-url redis://new:6379/0
    """
    settings = settings_of(config, flags)
    rows = _rows(file)
    head = next(rows, None)
    if not isinstance(head, IndexRow):
        raise InputError(f"{file} does not begin with the row of an index")
    tell = teller()
    with saying_what_is_next("the same command goes on where it was; no worker is let in before its end"):
        store = opened_store(settings, head)
        end = loaded(store, head, rows, lambda seq: tell(f"importing: number {seq:,} of {head.seq:,}"))
        store.release(head.generation)
    click.echo(f"{end.records:,} records, {end.marks:,} marks and {end.journal:,} decisions in {settings.index_name}")


def _rows(path: Path) -> Iterator[AnyRow]:
    for number, line in lines_in(path):
        try:
            yield decoded(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}, line {number} is no row of an index: {error}") from error
