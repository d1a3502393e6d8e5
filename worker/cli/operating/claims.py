"""`simhash-dedup index claims`: the pages that workers hold while they judge them, on a Redis Cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from worker.cli.operating.opening import opened
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options


@click.command()
@settings_options((*INDEX, *LOGGING))
def claims(config: Path | None, **flags: Any) -> None:
    """List what workers hold claims on: pages that they are judging, on an index on a Redis Cluster.

    An index on one primary judges in one step and has no claims.

    \b
      simhash-dedup index claims
    """
    settings = settings_of(config, flags)
    opened(settings)
    click.echo(f"index {settings.index_name} is on one primary: it judges in one step and has no claims")
