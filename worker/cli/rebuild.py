"""`simhash-dedup rebuild`: the index made afresh from the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from simhash.index import Retention
from simhash.index.redis.operators.filling import Store
from worker.cli.operating.telling import saying_what_is_next, teller
from worker.cli.options import LOGGING, settings_of, settings_options
from worker.errors import SettingsError
from worker.files.locations import in_utf8
from worker.index.configured import configured_profile, retention
from worker.index.stores import archive_of, opened_store, spec_to_fill
from worker.rebuilding.build import Needs, Target, archived_up_to, build
from worker.rebuilding.collected import CollectedVerdicts, RebuildCounts, keep_versions
from worker.rebuilding.order import Sorted
from worker.rebuilding.under_way import found_again
from worker.rebuilding.verdict_sources import Answered, Strays, in_file, in_topics, taken_down, whole_from_ms
from worker.settings import Settings
from worker.stream.kafka.topics import kept_too_shortly

FILE = click.Path(path_type=Path, dir_okay=False)
NAMES = (
    "input_topic",
    "verdict_topic",
    "dead_letter_topic",
    "takedown_topic",
    "bootstrap_servers",
    *(name for name in Settings.model_fields if name.startswith("kafka_")),
    "redis_url",
    "redis_timeout",
    "index_name",
    "profile",
    "design",
    "documents",
    "archive",
    "previous",
    "max_age",
    "max_documents",
    *LOGGING,
)


@click.command()
@click.option(
    "--from", "files", type=FILE, multiple=True, help="a file of verdicts in place of the topic; may be given again"
)
@click.option("--takedowns", type=FILE, multiple=True, help="what `index delete --takedowns` wrote; may be given again")
@click.option(
    "--partial",
    "of_a_part",
    is_flag=True,
    help="make it of what there is, though verdicts or takedowns are missing or damaged",
)
@settings_options(NAMES)
def rebuild(
    files: tuple[Path, ...], takedowns: tuple[Path, ...], of_a_part: bool, config: Path | None, **flags: Any
) -> None:
    """Make the index afresh from the verdict topic, or from files of verdicts, with the same answers afterwards.

    Reads all committed verdicts and dead letters from the beginning to the ends that the topics have now. Unique pages
    are stored under their numbers, as of the time at which their verdicts were written; what was taken down, or is
    beyond max_age or max_documents, is left out. With an archive, what lies there stays there. Each partition's mark
    is set behind what was answered, so that nothing is judged twice; the journal is empty. With --previous the verdicts
    are read once more, for the last version of each URL. From files the time is that
    of the page (source.timestamp), or of the file.

    Stop all workers first, and give the settings that they have. Killed, it goes on where it was when it is started
    again with the same settings and files: reading begins anew, storing does not. An index that is not empty, or was
    begun with others, is refused: use another --index-name. So are, unless --partial is given, verdicts among which
    numbers are missing that neither max_age nor max_documents explains, or that are those of two indexes, a topic of
    takedowns whose begin is gone, and what stands among verdicts or takedowns and is none. Numbers that were never
    told are not missing: a worker was killed with a batch under way, and its pages come again. Where a duplicate names
    one of these, it is looked for in the input topics, behind what is answered, and keeps its number.

    \b
      simhash-dedup rebuild --config dedup.toml --index-name dedup2
      simhash-dedup rebuild --from verdicts.jsonl.zst --takedowns takedowns.jsonl --index-name dedup2
    """
    settings = settings_of(config, flags)
    profile = configured_profile(settings)
    spec = spec_to_fill(settings, profile)
    archive = archive_of(settings) if settings.archive is not None else None
    kept = retention(settings) if archive is None else Retention()
    tell = teller()
    strays = Strays(passed_over=of_a_part)
    with Sorted() as unique:
        collected = CollectedVerdicts(profile.label, taken_down(settings, takedowns, strays), unique)
        collected.archived = archived_up_to(archive, spec) if archive else 0

        def answered(strays: Strays) -> Iterator[Answered]:
            if not files:
                return in_topics(settings, strays)
            return chain.from_iterable(in_file(path, strays) for path in files)

        def versions(store: Store, oldest_ms: int) -> None:
            tell("storing: the last version of each URL")
            keep_versions(store, answered(Strays(of_a_part)), profile, collected.takedowns, oldest_ms)

        for counts in collected.add_all(answered(strays)):
            tell(f"reading: {counts.verdicts:,} verdicts, {counts.dead_letters:,} dead letters")
        _refuse_other_profile(collected)
        if not files and settings.base is None and (named := collected.only_named()):
            tell(f"reading: the input, for {len(named):,} pages that have no verdict and are named by duplicates")
            collected.counts.only_named = len(named)
            for seq, told in found_again(settings, profile, named, collected.marks):
                collected.add_unique(told, seq)
                collected.counts.found_again += 1
        needs = None if of_a_part else _needed(settings, files)
        again = versions if settings.previous else None
        target = Target(partial(opened_store, settings), spec, kept, _source(settings, files), archive, again, needs)
        with saying_what_is_next("the same command goes on where it was; no worker is let in before its end"):
            stored = build(target, collected, lambda seq, last: tell(f"storing: number {seq:,} of {last:,}"))
    for line in _summary(collected.counts, collected, stored):
        click.echo(line)
    if strays.count:
        click.echo(f"left out: {strays.count:,} records that are neither verdicts nor takedowns; {strays.first}")


def _refuse_other_profile(collected: CollectedVerdicts) -> None:
    if collected.counts.verdicts and collected.counts.verdicts == collected.counts.other_profile:
        theirs = collected.other_profile
        raise SettingsError(
            f"profile: no verdict is of {collected.profile}, the last is of {theirs}: --profile {theirs}"
        )


def _needed(settings: Settings, files: tuple[Path, ...]) -> Needs:
    """Which numbers must be there. A topic that keeps verdicts for max_age drops only what is forgotten anyway."""
    if files:
        return Needs()
    dropped = settings.max_age is not None and not kept_too_shortly(settings)
    return Needs(dropped, whole_from_ms(settings))


def _source(settings: Settings, files: tuple[Path, ...]) -> str:
    names = [in_utf8(path.absolute()) for path in files]
    return " ".join(names or [settings.verdict_topic, settings.dead_letter_topic])


def _summary(counts: RebuildCounts, collected: CollectedVerdicts, stored: int) -> Iterator[str]:
    yield (
        f"read {counts.verdicts:,} verdicts and {counts.dead_letters:,} dead letters; stored {stored:,} pages, "
        f"the last number is {collected.last_seq + counts.renumbered:,}"
    )
    if collected.taken_down:
        yield f"left out: {len(collected.taken_down):,} pages that were taken down"
    if counts.other_profile:
        yield f"left out: {counts.other_profile:,} verdicts of other profiles than {collected.profile}"
    if counts.only_named:
        yield (
            f"{counts.only_named:,} pages without a verdict are named by duplicates: {counts.found_again:,} were found "
            "in the input, and keep their numbers"
        )
    if counts.renumbered:
        yield f"{counts.renumbered:,} pages have new numbers: theirs had been given before (Redis had lost the first)"
    for partition, mark in sorted(collected.marks.items()):
        yield f"{partition.topic}[{partition.number}]: answered up to offset {mark:,}"
