"""`simhash-dedup hosts`: what verdicts say of each host."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from worker.cli.options import LOGGING, settings_of, settings_options
from worker.errors import InputError, SettingsError
from worker.files.locations import check_unread
from worker.files.verdicts_in import verdicts_in
from worker.hosts import Hosts, decoded
from worker.records.passing import runs
from worker.settings import Settings
from worker.stopping import stop_on_signals

NAMES = (
    *("verdict_topic", "hosts_topic", "group_id", "transactional_id", "transaction_timeout", "bootstrap_servers"),
    *(name for name in Settings.model_fields if name.startswith("kafka_")),
    *LOGGING,
)
LOOK_SECONDS = 10.0
VERDICTS_AT_ONCE = 5_000


@click.command()
@click.argument("verdicts", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="write all hosts to this file, whole each time"
)
@click.option("--follow", is_flag=True, help="of the topic: go on as verdicts come, and look every 10 s")
@click.option("--afresh", is_flag=True, help="of the topic: forget what was counted, and begin anew")
@settings_options(NAMES)
def hosts(
    verdicts: tuple[Path, ...], out: Path | None, follow: bool, afresh: bool, config: Path | None, **flags: Any
) -> None:
    """Say of each host how many of its pages are new, and which of its URLs never are.

    VERDICTS are files as `file`, `batch` or a consumer of the verdict topic wrote them (JSONL, .gz, .zst). A host is a
    line of JSON; those with most pages come first.

    Without files the verdict topic is counted into the topic of the setting hosts_topic, a record a host. Each verdict
    is counted once, however often this ends and is begun again. A second one that begins ends the first.

    A host has its pages, how many are unique, near and exact, and the page that is copied most. It is flagged where 20
    URLs and more give one page: soft-404 where their paths differ, trap where they do not. `useless` names what URLs
    have in common that never bring anything new, such as ?sid or /calendar/#/#.

    \b
      simhash-dedup hosts verdicts.jsonl --out hosts.jsonl
      simhash-dedup hosts verdicts.jsonl | jq -c 'select(.flags != []) | [.host, .flags, .useless]'
      simhash-dedup hosts --hosts-topic hosts                          # up to the end that the verdicts have now
      simhash-dedup hosts --hosts-topic hosts --follow --out hosts.jsonl
    """
    if verdicts and (follow or afresh):
        raise click.UsageError("--follow and --afresh are for the topic, not for files")
    check_unread([out], verdicts)
    if verdicts:
        counted = _of_files(verdicts)
        _write(counted, out or Path("-"))
        return
    settings = settings_of(config, flags)
    if settings.hosts_topic is None:
        raise SettingsError("hosts_topic: name the topic of hosts, or give files of verdicts")
    _keep(settings, settings.hosts_topic, out, follow, afresh)


def _of_files(paths: Iterable[Path]) -> Hosts:
    counted = Hosts()
    for path in paths:
        for some in runs(verdicts_in(path), lambda _: 0, 1, VERDICTS_AT_ONCE):
            counted.add(some)
    return counted


def _keep(settings: Settings, topic: str, out: Path | None, follow: bool, afresh: bool) -> None:
    from worker.stream.kafka.hosts_topic import keeping  # the client loads only where there is a topic

    with stop_on_signals() as stopping, keeping(settings, topic, afresh) as kept:
        while True:
            counted = kept.catch_up(stopping.is_set)
            if counted or not follow:
                _tell(kept.hosts, f"{counted:,} verdicts more: ")
                if out is not None:
                    _write(kept.hosts, out)
            if not follow or stopping.wait(LOOK_SECONDS):
                break
        if stopping.is_set() and not follow:
            sys.exit(130)


def _write(counted: Hosts, out: Path) -> None:
    if str(out) == "-":
        for line in counted:
            click.echo(line)
        return
    target = out.resolve()  # of a link: the link stays
    device = target.exists() and not target.is_file()  # or a pipe: it is written to as it is
    beside = target if device else target.with_name(f".{target.name}.new")
    try:
        beside.write_bytes(b"".join(line + b"\n" for line in counted))
        if not device:
            beside.replace(target)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from error
    _tell(counted, f"{out}: ")


def _tell(counted: Hosts, begin: str) -> None:
    found = [decoded(line) for line in counted]
    flagged = sum(bool(each.flags) for each in found)
    pages, unique = sum(each.pages for each in found), sum(each.unique for each in found)
    click.echo(f"{begin}{len(found):,} hosts with {pages:,} pages, {unique:,} unique; {flagged:,} flagged", err=True)
