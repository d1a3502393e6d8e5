"""`simhash-dedup index check`: whether a live index is whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from simhash.index.redis.operators.check_findings import CheckFindings
from worker.cli.operating.telling import teller
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.index.whole import found_whole

SHOWN = 100


@click.command()
@click.option("--json", "as_json", is_flag=True, help="one JSON object, with all violations")
@settings_options((*INDEX, "archive", *LOGGING))
def check(as_json: bool, config: Path | None, **flags: Any) -> None:
    """Verify that the index is whole: each record in all its tables and bands, and nothing beyond; and the files of its
    archive, where it has one.

    Workers may go on: what looks wrong is read again, in one step, before it is reported; and no command to Redis is
    long. Reads everything once: some minutes for each million pages. Exit code 1 when something is wrong; then
    `simhash-dedup rebuild` makes the index afresh from the verdicts.

    \b
      simhash-dedup index check
      simhash-dedup index check --json | jq .violations
    """
    whole, tell = found_whole(settings_of(config, flags)), teller()
    found = whole.check(lambda found: tell(f"checking: {_counts(found)}"))
    click.echo(msgspec.json.encode(found) if as_json else _text(found))
    sys.exit(1 if found.violations else 0)


def _counts(found: CheckFindings) -> str:
    counts = {"records": found.records, "keys": found.keys, "members": found.members}
    counts |= {"decisions": found.journalled} | ({"versions": found.versions} if found.versions else {})
    counts |= {"archived records": found.archived} if found.archived else {}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def _text(found: CheckFindings) -> str:
    lines = [f"{violation.invariant}: {violation.what}" for violation in found.violations[:SHOWN]]
    if len(found.violations) > SHOWN:
        lines.append(f"... and {len(found.violations) - SHOWN:,} more (--json has them all)")
    if found.long_buckets:
        lines.append(f"note: {found.long_buckets:,} buckets are too long for a listpack and take more memory")
    if found.replaced:
        lines.append(
            f"note: {found.replaced:,} keys are of tables that a migration has replaced: `simhash-dedup index migrate` "
            "with its options again removes them"
        )
    if found.crowded:
        lines.append(f"note: {found.crowded:,} records do not stand in all their places, because one was full")
    result = f"{len(found.violations):,} violations" if found.violations else "the index is whole"
    return "\n".join([*lines, f"{_counts(found)}: {result}"])
