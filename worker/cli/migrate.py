"""`simhash-dedup index migrate`: other tables for a live index."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from simhash.errors import DesignError, IndexUnreachable
from simhash.index import IndexSpec
from simhash.index.redis.layout import MOST_DOCUMENTS, possible_bucket_bits
from simhash.index.redis.layout import bucket_bits as fitting_bits
from simhash.index.redis.operators.migration import Migration, MigrationProgress, Removal
from simhash.relation.tables import MOST_K, automatic_design
from simhash.relation.tables import design as find_design
from worker.cli.operating.telling import saying_what_is_next
from worker.cli.options import INDEX, LOGGING, Count, settings_of, settings_options
from worker.errors import SettingsError
from worker.index.stores import connect
from worker.stream.backoff import Backoff

TELL_SECONDS = 2.0
PATIENCE_SECONDS = 600.0
"""So long a migration that was under way waits for a Redis that does not answer."""


@click.command()
@click.option("--design", "name", metavar="NAME", help="permutation tables, or auto: by --documents and --k")
@click.option(
    "--documents",
    type=Count(1, MOST_DOCUMENTS),
    help="lay it out for so many unique pages  [default: as it is]",
)
@click.option("--bucket-bits", type=click.IntRange(1, 32), help="leading bits of a bucket  [default: by --documents]")
@click.option("--k", type=click.IntRange(0, MOST_K), help="with --design auto: find every pair within so many bits")
@click.option("--abandon", is_flag=True, help="give up what was begun: remove what was copied, let workers go on")
@settings_options((*INDEX, *LOGGING))
def migrate(
    name: str | None,
    documents: int | None,
    bucket_bits: int | None,
    k: int | None,
    abandon: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Give a live index other permutation tables, while workers go on.

    The records are copied into the new tables while workers go on with the old ones. Workers that store more than half
    as fast as it copies are made to wait for a second or two now and then, so that it comes to an end. For the last
    few hundred records workers wait, a fraction of a second; then the new tables take over. No verdict is lost or
    given twice; numbers, marks and journals stay. Workers with design = auto open the new generation by themselves,
    others stop with a line that says so. Needs the memory of both until the old tables are removed, at the end. A
    Redis that is away for some minutes is waited for. Killed, it goes on where it was when it is started again with
    the same arguments; or it is given up by --abandon. A second one takes over: the first ends with a line that says
    so. Beside a base or an archive it takes no tables for more bits (k) than the present ones: those on disk would not
    find as much.

    \b
      simhash-dedup index migrate --design 14 --documents 50000000
      simhash-dedup index migrate --design auto --k 5
      simhash-dedup index migrate --bucket-bits 18
      simhash-dedup index migrate --abandon
    """
    if abandon == bool(name or documents or bucket_bits):
        raise SettingsError("say what to change (--design, --documents or --bucket-bits), or --abandon, alone")
    if k is not None and name != "auto":
        raise SettingsError("--k chooses the tables of --design auto: give both")
    settings = settings_of(config, flags)

    teller = Teller()
    migration = Migration(connect(settings), settings.index_name, teller)
    if abandon:
        begun = migration.abandon()
        click.echo(f"index {settings.index_name}: " + ("given up" if begun else "no migration was begun"))
        return
    wanted = partial(_wanted, name, documents, bucket_bits, k)
    with saying_what_is_next(
        "workers go on as before; what was copied is kept until the same command has ended it, or --abandon gives it up"
    ):
        done = through_outages(lambda: migration.run(wanted), teller)
    click.echo(f"index {settings.index_name}: design {done.relation.design.name}, {done.bucket_bits} bucket bits")


def _wanted(
    name: str | None, documents: int | None, bucket_bits: int | None, k: int | None, present: IndexSpec
) -> IndexSpec:
    """What the options make of an index."""
    rule, capacity = present.relation, documents or present.capacity
    try:
        design = rule.design
        if name == "auto":
            design = automatic_design(rule.design.k if k is None else k, design.bits, capacity)
        elif name:
            design = find_design(name, design.bits)
        possible = possible_bucket_bits(design)
    except DesignError as error:
        raise SettingsError(f"design: {error}") from error
    if bucket_bits and bucket_bits not in possible:
        raise SettingsError(
            f"--bucket-bits {bucket_bits}: design {design.name} can have {possible[0]} to {possible[-1]}"
        )
    needed = int(str(present.profile.get("k", 0)))
    if design.k < needed:
        raise SettingsError(
            f"design: {design.name} guarantees {design.k} bits, profile {present.profile.get('name')} of this index "
            f"needs {needed}: --design auto chooses one that does"
        )
    bits = bucket_bits or fitting_bits(capacity, design)
    return replace(present, relation=replace(rule, design=design), bucket_bits=bits, capacity=capacity)


class Teller:
    """Writes a line of progress on standard error, when it is time for one.

    Attributes:
        steps: how many there were.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._told = time.monotonic()

    def __call__(self, progress: MigrationProgress | Removal) -> None:
        self.steps += 1
        if time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            click.echo(progress, err=True)


def through_outages(run: Callable[[], IndexSpec], teller: Teller) -> IndexSpec:
    """Run it again when Redis did not answer, from where it was, as long as there were steps in the last minutes.

    Raises:
        IndexUnreachable: Redis did not answer for too long, or not even at first.
    """
    backoff, steps, last = Backoff(threading.Event()), 0, -math.inf
    while True:
        try:
            return run()
        except IndexUnreachable as error:
            if teller.steps > steps:
                steps, last = teller.steps, time.monotonic()
                backoff.overcome()
            if time.monotonic() - last > PATIENCE_SECONDS:
                raise
            backoff.pause(error)
