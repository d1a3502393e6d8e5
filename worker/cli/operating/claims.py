"""`simhash-dedup index claims`: the pages that workers hold while they judge them, on a Redis Cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from simhash.index.cluster import ClusterIndex
from simhash.index.cluster.answers import Claim
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import SettingsError
from worker.stores import found_index
from worker.verdict import hexadecimal


@click.command()
@click.option("--release", multiple=True, metavar="ID", help="end this claim; may be given again")
@settings_options((*INDEX, *LOGGING))
def claims(release: tuple[str, ...], config: Path | None, **flags: Any) -> None:
    """List the claims on an index on a Redis Cluster, or end some: pages that a worker is judging, or has died over.

    Each line: the id, the state, the number if it has one, the fingerprint, the journal and offset. To end a claim is
    safe while its worker lives. A page that was decided to be unique is then written to its end. An index on one
    primary judges in one step and has no claims. Exit code 1 when an id to release is not there.

    \b
      simhash-dedup index claims
      simhash-dedup index claims --release 1b6125b31532a365a0328d76c48d9859
    """
    settings = settings_of(config, flags)
    ids = [_id(text) for text in release]
    index = found_index(settings)
    if not isinstance(index, ClusterIndex):
        click.echo(f"index {settings.index_name} is on one primary: it judges in one step and has no claims")
        sys.exit(1 if ids else 0)
    if not ids:
        for claim in index.claims():
            click.echo(_line(claim, index.spec.relation.design.bits))
        return
    ended = index.release(ids)
    click.echo(f"{ended} of {len(ids)} claims ended")
    sys.exit(0 if ended == len(ids) else 1)


def _id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise SettingsError(f"--release: {text!r} is no id of a claim: give one that the list shows") from error


def _line(claim: Claim, bits: int) -> str:
    number = "" if claim.seq is None else f"seq {claim.seq}"
    fingerprint = hexadecimal(claim.fingerprint, bits) or "short"
    return f"{claim.id.hex()}  {claim.state:8}  {number:12}  {fingerprint}  {claim.journal} {claim.offset}"
