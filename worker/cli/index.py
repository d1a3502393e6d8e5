"""`simhash-dedup inspect` and `simhash-dedup index …`: look into an index, and tell it what an operator knows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from simhash.index import Neighbour, Partition
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.operators.operations import Operations
from simhash.signature.minhash import BAND_BITS
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.errors import BrokerError
from worker.index.stores import found_index
from worker.index.whole import Whole, found_whole
from worker.records.verdict import hexadecimal
from worker.settings import Settings
from worker.stream.kafka.groups import attested, reach_of, refuse_live_group, set_offsets

_ONLY = "only pages that were called unique are stored (the verdict of a duplicate names the page that it is one of)"


@click.command()
@click.argument("what", metavar="URL-OR-FINGERPRINT")
@click.option("--json", "as_json", is_flag=True, help="one JSON object a line")
@settings_options((*INDEX, "archive", *LOGGING))
def inspect(what: str, as_json: bool, config: Path | None, **flags: Any) -> None:
    """Show what the index holds within reach of a fingerprint (hex, as verdicts have it) or of a stored URL.

    Each line: the distance in bits, the fingerprint (or digest, of a page too short for one), the number, the URL. A
    URL is looked for in all records, which takes a while in a large index. Exit code 1 when nothing is found.

    \b
      simhash-dedup inspect https://example.com/page
      simhash-dedup inspect 57a843f31c06a026 --json
    """
    whole = found_whole(settings_of(config, flags))
    found = _near(whole, what)
    for neighbour in found:
        click.echo(_line(neighbour, whole.index, as_json))
    if not found:
        click.echo(f"nothing within reach of {what}: {_ONLY}", err=True)
        sys.exit(1)


def _near(index: Whole, what: str) -> list[Neighbour]:
    digits = -(-index.index.spec.relation.design.bits // 4)
    if re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", what):
        return index.neighbours(int(what, 16))
    own = [(fingerprint, record) for fingerprint, record in index.scan() if record.url == what]
    found = [Neighbour(None, 0, record) for fingerprint, record in own if fingerprint is None]
    fingerprints = dict.fromkeys(fingerprint for fingerprint, _ in own if fingerprint is not None)
    return found + [neighbour for fingerprint in fingerprints for neighbour in index.neighbours(fingerprint)]


def _line(neighbour: Neighbour, index: RedisIndex, as_json: bool) -> str | bytes:
    record, relation = neighbour.record, index.spec.relation
    fingerprint = hexadecimal(neighbour.fingerprint, relation.design.bits)
    if not as_json:
        return f"{neighbour.distance:3d}  {fingerprint or record.digest}  seq {record.seq}  {record.url}"
    fields = {
        "distance": neighbour.distance,
        "fingerprint": fingerprint,
        "verifier": hexadecimal(record.verifier, relation.verifier_bits + BAND_BITS * relation.bands),
        "digest": record.digest,
        "seq": record.seq,
        "inserted_ms": record.inserted_ms,
        "url": record.url,
        "id": record.id,
        "fetched_at": record.fetched_at,
        "features": record.features,
        "observation": record.observation.hex(),
    }
    return msgspec.json.encode(fields)


KAFKA = ("bootstrap_servers", "group_id", *(name for name in Settings.model_fields if name.startswith("kafka_")))
execute_option = click.option("--execute", is_flag=True, help="do it; without this, only say what would be done")


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), multiple=True, help="only this partition; may be given again")
@click.option(
    "--to", "offset", type=click.IntRange(0), default=0, show_default=True, help="the offset to begin again at"
)
@execute_option
@settings_options((*INDEX, *KAFKA, *LOGGING))
def rewind(
    topic: str, partition: tuple[int, ...], offset: int, execute: bool, config: Path | None, **flags: Any
) -> None:
    """Announce that TOPIC will be read again from an offset: the group is rewound, or the topic was made again.

    Workers refuse to judge pages whose verdicts are committed; this says that it is meant. Pages that are in the index
    keep their `unique` verdict and number; others are judged anew. Stop all workers first: while the group has members
    it is refused. Without --execute it only shows what it would do.

    \b
      simhash-dedup index rewind pages                                  # show: all partitions, from their beginning
      simhash-dedup index rewind pages --partition 3 --to 1200 --execute
    """
    settings = settings_of(config, flags)
    found = found_index(settings)
    if execute:
        refuse_live_group(settings)
    marks = dict(_rewound(found.marks(), topic, partition, offset))
    if not marks:
        click.echo(f"the index has no mark of {topic} above {offset}: nothing to announce", err=True)
        sys.exit(1)
    for each, mark in sorted(marks.items()):
        if execute:
            found.rewind(each, offset)
        click.echo(f"{topic}[{each.number}]: mark {mark} {'' if execute else 'would be '}lowered to {offset}")
    _say_how(execute)


def _rewound(
    marks: Mapping[Partition, int], topic: str, only: tuple[int, ...], offset: int
) -> Iterator[tuple[Partition, int]]:
    for partition, mark in marks.items():
        if partition.topic == topic and mark > offset and (not only or partition.number in only):
            yield partition, mark


@click.command()
@click.argument("topic")
@execute_option
@settings_options((*INDEX, *KAFKA, *LOGGING))
def resume(topic: str, execute: bool, config: Path | None, **flags: Any) -> None:
    """Set the group's offsets of TOPIC to the index's marks: it goes on behind what was answered.

    For a group that has no offsets any more, since all workers were stopped for longer than the brokers keep them
    (offsets.retention.minutes, a week), or that takes the place of another one; and for one that stands before the
    first page that its topic still has. Not for a topic that was made again: that is `index rewind`. An offset is never
    set back. Partitions without a mark are read from their beginning.

    The marks are what the last worker said as it ended. If it was killed, what it committed last may lie above them:
    these pages, a batch at most of each partition, are answered once more, by the same bytes. Stop all workers first:
    while the group has members it is refused. Without --execute it only shows what it would do.

    \b
      simhash-dedup index resume pages              # show
      simhash-dedup index resume pages --execute
    """
    settings = settings_of(config, flags)
    found = found_index(settings)
    if execute:
        refuse_live_group(settings)
    wanted: dict[int, int] = {}
    lines: list[str] = []
    for number, (begin, end, committed) in reach_of(settings, topic).items():
        mark = found.mark(Partition(topic, number))
        answered = max(mark or 0, committed or 0)
        offset = max(answered, begin)
        if mark is None or offset == committed:
            continue
        if offset > end:
            raise BrokerError(
                f"topic {topic} ends at offset {end} of partition {number}, below the mark {offset}: it was made again "
                f"(simhash-dedup index rewind {topic})"
            )
        wanted[number] = offset
        before = "none" if committed is None else str(committed)
        lost = "" if offset == answered else f"; what lay from {answered} on is deleted"
        lines.append(f"{topic}[{number}]: offset {before} {'' if execute else 'would be '}set to {offset}{lost}")
    if not wanted:
        click.echo(f"no partition of {topic} stands below a mark of the index: nothing to set", err=True)
        sys.exit(1)
    if execute and not set_offsets(settings, topic, wanted):
        raise BrokerError(f"group {settings.group_id} has members again, nothing was set: stop all workers first")
    click.echo("\n".join(lines))
    _say_how(execute)


@click.command()
@execute_option
@settings_options((*INDEX, *KAFKA, *LOGGING))
def accept(execute: bool, config: Path | None, **flags: Any) -> None:
    """Announce that the index is right as it is, though it lacks what was committed, or Redis has changed.

    Workers stop when Redis was restarted, restored or failed over and pages are missing whose verdicts are out;
    `simhash-dedup rebuild` brings them back. This says instead that they may be missing, as when an index was emptied
    on purpose: pages like them will be unique a second time. The numbers that the group's commits name are not given
    again; unless the index is empty each of them takes 110 bytes of Redis, so after a loss of millions `rebuild` is
    the better way. Stop all workers first: while the group has members it is refused. Without --execute it only shows
    what it would do.

    \b
      simhash-dedup index accept --index-name dedup             # show
      simhash-dedup index accept --index-name dedup --execute
    """
    settings = settings_of(config, flags)
    found = found_index(settings)
    lost = ""
    if execute:
        refuse_live_group(settings)
        lost = f"; {Operations(found).accept(attested(settings)):,} numbers were given and are missing"
    click.echo(f"{'accepted' if execute else 'would accept'}: {found.documents():,} pages, as they are{lost}")
    _say_how(execute)


def _say_how(executed: bool) -> None:
    if not executed:
        click.echo("nothing was changed: stop all workers, then give --execute", err=True)
