"""`simhash-dedup index base`: say beside which archive of compressed tables an index is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from simhash.archive.segments.contents import newest
from simhash.archive.segments.segmented import SegmentedArchive
from simhash.index.redis.index import RedisIndex
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.index.ageing import ArchiveBase
from worker.index.archive import TableBase
from worker.index.stores import found_index


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True), required=False)
@click.option("--none", "no_base", is_flag=True, help="from now on, judge without a base")
@settings_options((*INDEX, *LOGGING))
def base(directory: Path | None, no_base: bool, config: Path | None, **flags: Any) -> None:
    """Show the index's base, or announce another one: the compressed tables, or an archive of the index, in DIRECTORY.

    Workers take a new index for the base in their settings, and move on when newer tables come to lie in its place
    while they run. Any other change must be announced, because pages that are new beside one base may be duplicates
    beside another. Stop all workers first. An archive is one that the setting `archive` has made: an index that was
    lost goes on behind its newest pages.

    \b
      simhash-dedup index base                 # show it
      simhash-dedup index base /archive/2026   # judge beside these from now on
      simhash-dedup index base --none
    """
    if directory and no_base:
        raise click.UsageError("give a DIRECTORY or --none, not both")
    index = found_index(settings_of(config, flags))
    before = index.base() or "none"
    if directory is None and not no_base:
        click.echo(before)
        return
    after, archived = _base(directory, index) if directory else ("", None)
    index.announce_base(after, archived)
    click.echo(f"base {before} replaced by {after or 'none'}")


def _base(directory: Path, index: RedisIndex) -> tuple[str, int | None]:
    """Generation of the base in a directory, and up to which number it holds all pages of the index, if it is its
    archive."""
    spec = index.spec
    contents = newest(directory)
    if contents is None:
        return TableBase(directory, spec.profile, spec.relation).generation, None
    base = ArchiveBase(SegmentedArchive(directory, contents), spec.profile, spec.relation)
    return base.generation, base.archived
