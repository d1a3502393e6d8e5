"""`simhash-dedup index stats`: what an index is like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from simhash.index import Record
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.statistics import EXACT_KEYS, SAMPLE, Kind, Statistics
from worker.cli.options import INDEX, LOGGING, settings_of, settings_options
from worker.index.whole import OnDisk, found_whole


@click.command()
@click.option(
    "--sample",
    type=click.IntRange(1),
    help=f"buckets to look at in each table; else all where there are at most {EXACT_KEYS:,} keys, or {SAMPLE:,}",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
@settings_options((*INDEX, "archive", *LOGGING))
def stats(sample: int | None, as_json: bool, config: Path | None, **flags: Any) -> None:
    """Show how large an index is, what takes the memory, how even its buckets are, its oldest and newest page,
    and what lies in its archive on disk.

    All is counted where the keys are few. In a large index entries and memory are estimated, and it says so.

    \b
      simhash-dedup index stats
      simhash-dedup index stats --sample 1000000     # every bucket: the largest ones for certain
    """
    whole = found_whole(settings_of(config, flags))
    index, disk = Operations(whole.index), whole.on_disk()
    found = index.statistics(sample, Random(0))
    if as_json:
        click.echo(msgspec.json.encode(_fields(index, found, disk)))
    else:
        click.echo("\n".join(_lines(index, found, disk)))


def _spec_fields(index: Operations) -> dict[str, object]:
    spec = index.layout.spec
    return {
        "index": index.layout.name,
        "generation": index.generation,
        "profile": spec.profile.get("name"),
        "design": spec.relation.design.name,
        "tables": len(spec.relation.design.tables),
        "bands": spec.relation.bands,
        "bucket_bits": spec.bucket_bits,
        "laid_out_for": spec.capacity,
    }


def _fields(index: Operations, found: Statistics, disk: OnDisk | None) -> dict[str, object]:
    kinds = {kind.kind: msgspec.to_builtins(kind) | {"skew": round(kind.skew, 2)} for kind in found.kinds}
    return _spec_fields(index) | {
        "documents": found.documents,
        "archive": disk and disk._asdict(),
        "numbers": found.numbers,
        "removed": found.removed,
        "oldest": _record_fields(found.oldest),
        "newest": _record_fields(found.newest),
        "most_candidates": found.most_candidates,
        "crowded": found.crowded,
        "migration": found.migration and found.migration._asdict(),
        "server_bytes": found.server_bytes,
        "server_resident_bytes": found.server_resident_bytes,
        "server_skew": round(found.server_skew, 2),
        "servers": [msgspec.to_builtins(server) for server in found.servers],
        "kinds": kinds,
        "journals": [
            {"topic": j.partition.topic, "partition": j.partition.number, "mark": j.mark, "decisions": j.decisions}
            for j in found.journals
        ],
    }


def _record_fields(record: Record | None) -> dict[str, object] | None:
    if record is None:
        return None
    return {"seq": record.seq, "inserted_ms": record.inserted_ms, "url": record.url, "fetched_at": record.fetched_at}


def _lines(index: Operations, found: Statistics, disk: OnDisk | None) -> Iterator[str]:
    for name, value in _spec_fields(index).items():
        yield f"{name.replace('_', ' '):22}{value}"
    numbers = f"{found.numbers:,} numbers given, {found.removed:,} removed out of turn"
    yield f"{'documents':22}{found.documents:,} ({numbers})"
    if disk:
        yield f"{'archive':22}{disk.pages:,} ({disk.segments} segments, {_size(disk.bytes)}, up to {disk.archived:,})"
        yield f"{'in both together':22}{found.documents + disk.pages - disk.in_both:,}"
    for which, record in (("oldest", found.oldest), ("newest", found.newest)):
        yield f"{which:22}{'none' if record is None else f'{_time(record)}  seq {record.seq:,}  {record.url}'}"
    yield f"{'most candidates':22}{found.most_candidates:,} of one page"
    yield f"{'crowded':22}{found.crowded:,} records do not stand in all their places, because one was full"
    if found.migration:
        to = f"to design {found.migration.design}, {found.migration.bucket_bits} bucket bits"
        yield f"{'migration begun':22}{to}: {found.migration.copied:,} of {found.numbers:,} numbers copied"
    yield f"{'server memory':22}{_size(found.server_bytes)} used, {_size(found.server_resident_bytes)} resident"
    if len(found.servers) > 1:
        yield f"{'primaries':22}{len(found.servers)}, the fullest with {found.server_skew:.2f} times the mean"
        for server in found.servers:
            yield f"  {server.address:20}{_size(server.used_bytes)} used, {_size(server.resident_bytes)} resident"
    yield ""
    yield f"{'kind':10}{'keys':>12}{'entries':>14}{'memory':>12}{'a document':>12}{'skew':>7}  largest bucket"
    for kind in found.kinds:
        yield _kind_line(kind, found.documents)
    estimated = [kind for kind in found.kinds if kind.looked_at < kind.of]
    if estimated:
        yield f"estimated from {sum(k.looked_at for k in estimated):,} of {sum(k.of for k in estimated):,} buckets"
    for journal in found.journals:
        place = f"{journal.partition.topic}[{journal.partition.number}]"
        yield f"{place}: mark {journal.mark if journal.mark is not None else 'none'}, {journal.decisions:,} decisions"


def _kind_line(kind: Kind, documents: int) -> str:
    each = f"{kind.bytes / documents:.1f} B" if documents else ""
    skew, largest = "", ""
    if kind.largest:
        skew = f"{kind.skew:.1f}"
        most = kind.largest[0]
        largest = f"  {most.entries:,} entries ({most.entries / max(documents, 1):.2%} of all pages): {most.key}"
    return f"{kind.kind:10}{kind.keys:>12,}{kind.entries:>14,}{_size(kind.bytes):>12}{each:>12}{skew:>7}{largest}"


def _time(record: Record) -> str:
    return datetime.fromtimestamp(record.inserted_ms / 1000, UTC).isoformat(timespec="seconds")


def _size(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"
