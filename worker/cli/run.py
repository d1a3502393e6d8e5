"""`simhash-dedup run`: the Kafka worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from worker.cli.options import settings_of, settings_options
from worker.index.configured import configured_profile, configured_relation
from worker.settings import Settings
from worker.stream import http
from worker.stream.consumer import run_consumer
from worker.stream.status import Status
from worker.stream.supervisor import supervise


@click.command()
@click.option("--print-config", is_flag=True, help="print the settings this run would have, secrets masked, and exit")
@settings_options()
def run(print_config: bool, config: Path | None, **flags: Any) -> None:
    """Consume pages from Kafka and emit one verdict a page, exactly once.

    Runs until SIGTERM or Ctrl-C: the batch under way is finished and committed, the group is left. Start as many as
    there are partitions, on as many machines as you like; --processes starts several here.

    DURATION is 30s, 15m, 12h or 90d; BYTES is 512KiB, 10MiB or a number. Each flag is also a setting in the TOML file
    (--max-age: max_age = "90d") and a variable (SIMHASH_DEDUP_MAX_AGE=90d).

    \b
      simhash-dedup run --bootstrap-servers kafka:9092 --redis-url redis://redis:6379/0
      simhash-dedup run --config dedup.toml --processes 4
      simhash-dedup run --config dedup.toml --print-config     # what it comes to, and whether it is valid
      curl localhost:9108/metrics                              # also /healthz and /readyz
    """
    settings = settings_of(config, flags)
    if print_config:
        click.echo(settings.toml())
        configured_relation(settings, configured_profile(settings))  # a broken one is said now, not at the start
    elif settings.processes > 1 or settings.archive is not None:  # what fills the archive is a process of its own
        sys.exit(supervise(settings))
    else:
        _run_one(settings)


def _run_one(settings: Settings) -> None:
    registry, status = CollectorRegistry(), Status()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    server = http.serve(settings.metrics_address, registry, [status], settings.stuck_after)
    try:
        run_consumer(settings, registry, status)
    finally:
        if server:
            server.shutdown()
