"""`simhash-dedup index migrate`: other tables for a live index."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from simhash.errors import DesignError
from simhash.index import IndexSpec
from simhash.index.cluster import ClusterMigration
from simhash.index.layout import bucket_bits as fitting_bits
from simhash.index.migration import Migration, Progress
from simhash.tables import design as find_design
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.designs import automatic_design
from worker.errors import SettingsError
from worker.settings import Settings
from worker.stores import connect, connect_cluster, on_cluster

TELL_SECONDS = 2.0


@click.command()
@click.option("--design", "name", metavar="NAME", help="permutation tables, or auto: by --documents and --k")
@click.option("--documents", type=click.IntRange(1), help="lay it out for so many unique pages  [default: as it is]")
@click.option("--bucket-bits", type=click.IntRange(1, 32), help="leading bits of a bucket  [default: by --documents]")
@click.option("--k", type=click.IntRange(0, 7), help="with --design auto: find every pair within so many bits")
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

    From its begin on workers write to the old tables and to the new ones, while the records from before are carried
    over; then the new tables take over. Nobody waits, but a page costs Redis about twice as much meanwhile. (On a Redis
    Cluster the records are copied, and in the end workers wait for the last ones, a fifth of a second at once.) No
    verdict is lost or given twice; numbers, marks and journals stay. Workers with design = auto open the new generation
    by themselves, others stop with a line that says so. Needs the memory of both until the old tables are removed, at
    the end. Killed, it goes on where it was when it is started again with the same arguments; or it is given up by
    --abandon (on a cluster once no such command runs any more).

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

    def wanted(present: IndexSpec) -> IndexSpec:
        rule, capacity = present.relation, documents or present.capacity
        try:
            design = rule.design
            if name == "auto":
                design = automatic_design(rule.design.k if k is None else k, design.bits, capacity)
            elif name:
                design = find_design(name, design.bits)
            return IndexSpec(
                present.profile,
                replace(rule, design=design),
                bucket_bits or fitting_bits(capacity, design),
                capacity,
            )
        except DesignError as error:
            raise SettingsError(f"design: {error}") from error

    migration = _migration(settings)
    if abandon:
        begun = migration.abandon()
        click.echo(f"index {settings.index_name}: " + ("given up" if begun else "no migration was begun"))
        return
    done = migration.run(wanted)
    click.echo(f"index {settings.index_name}: design {done.relation.design.name}, {done.bucket_bits} bucket bits")
    if isinstance(migration, ClusterMigration) and migration.still.times:
        longest = f"{1000 * migration.still.longest_seconds:.0f} ms"
        click.echo(f"the index stood still {migration.still.times} times, {longest} at most; workers waited", err=True)


def _migration(settings: Settings) -> Migration | ClusterMigration:
    if on_cluster(settings):
        return ClusterMigration(connect_cluster(settings), settings.index_name, _teller())
    return Migration(connect(settings), settings.index_name, _teller())


def _teller() -> Callable[[Progress], None]:
    """What writes a line of progress on standard error, when it is time for one."""
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            click.echo(f"{progress.step}: number {progress.copied:,} of {progress.last:,}", err=True)

    return tell
