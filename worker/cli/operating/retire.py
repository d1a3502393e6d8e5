"""`simhash-dedup index retire`: the index's oldest pages into its archive, now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry

from worker.ageing.keeper import STEPS, AgeingMetrics, alone, opened, work
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import InputError

NAMES = (*INDEX, "profile", "design", "documents", "archive", "max_age", "max_documents", *LOGGING)


@click.command()
@settings_options(NAMES)
def retire(config: Path | None, **flags: Any) -> None:
    """Move the pages that pass max_age or max_documents into the archive, and merge its segments.

    Workers that are started with the setting `archive` do this by themselves, in the background, as soon as there are
    `archive_pages` of them. This does it now, however few there are: before a backup, or from cron. Workers may run.
    Memory is free again little by little, as further pages are judged.

    Ended at any moment, nothing is lost: a page stays in the index until the index knows that it is on the disk.

    \b
      simhash-dedup index retire --archive /var/lib/dedup --max-documents 10M
      simhash-dedup index retire --config dedup.toml
    """
    settings = settings_of(config, flags)
    ageing = opened(settings.model_copy(update={"archive_pages": 1}))
    try:
        before = ageing.retiring.contents()
        for step in STEPS:
            with alone(ageing.directory, step) as is_ours:
                if is_ours:
                    work(ageing, step, AgeingMetrics(CollectorRegistry()))
                else:
                    click.echo(f"a worker's process does this now: {step}", err=True)
        after = ageing.retiring.contents()
    except OSError as error:
        raise InputError(f"{error.filename or ageing.directory}: {error.strerror or error}") from error
    retired = sum(segment.pages for segment in after.segments) - sum(segment.pages for segment in before.segments)
    click.echo(
        f"{max(0, retired):,} pages retired; the archive holds {after.pages:,} in {len(after.segments)} segments, up "
        f"to number {after.archived:,}"
    )
