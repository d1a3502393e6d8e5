"""`simhash-dedup topics`: make the Kafka topics, or say what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from worker.cli.options import LOGGING, settings_of, settings_options
from worker.settings import Settings
from worker.stream.kafka.topics import ensure_topics, hosts_plan, plans

BROKER_DEFAULT = -1
NAMES = [
    name
    for name in Settings.model_fields
    if name.endswith("_topic")
    or name.startswith("kafka_")
    or name in ("bootstrap_servers", "max_page_bytes", "max_age", *LOGGING)
]


@click.command()
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="partitions of new topics: at most so many consumers",
)
@click.option("--replication-factor", type=click.IntRange(1), help="copies of new topics  [default: the broker's]")
@click.option(
    "--retention-days",
    type=click.IntRange(1),
    help="how long new topics keep verdicts and dead letters  [default: 30 for dead letters, verdicts as long as the "
    "index remembers: max_age, or for ever]",
)
@click.option("--dry-run", is_flag=True, help="create nothing, only say what is missing or wrong")
@settings_options(NAMES)
def topics(
    partitions: int,
    replication_factor: int | None,
    retention_days: int | None,
    dry_run: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Create the topics that are missing, and say what is wrong with those that exist.

    Nothing of an existing topic is changed. Exit code 1 when something remains to be done.

    \b
      simhash-dedup topics --bootstrap-servers kafka:9092 --partitions 24 --replication-factor 3
      simhash-dedup topics --config dedup.toml --dry-run      # only say what is missing or wrong
    """
    settings = settings_of(config, flags)
    wanted = plans(settings, partitions, retention_days) + hosts_plan(settings)
    remains = False
    for line in ensure_topics(settings, wanted, replication_factor or BROKER_DEFAULT, dry_run):
        click.echo(line)
        remains |= line.startswith(("wrong:", "missing:"))
    sys.exit(1 if remains else 0)
