"""`simhash-dedup report`: verdicts as a page of HTML to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from simhash.explaining import Explanation, explain
from simhash.signature.profiles import Profile
from worker.cli.options import PROFILE, Count, given_profile
from worker.errors import InputError
from worker.files.locations import check_unread, in_utf8
from worker.files.verdicts_in import verdicts_in
from worker.reporting.pairs import Name, names_of, shown, texts_of
from worker.reporting.report_data import DuplicateRow, ReportData, document

FILE = click.Path(path_type=Path, exists=True)
OUT = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("verdicts", nargs=-1, required=True, type=FILE)
@click.option(
    "--pages", type=FILE, multiple=True, help="the pages that were judged: pairs are shown with both texts (repeatable)"
)
@click.option("--out", type=OUT, default=Path("report.html"), show_default=True, help="the file to write")
@click.option("--force", is_flag=True, help="overwrite it")
@click.option("--pairs", type=Count(0, 5000), default=200, show_default=True, help="how many pairs to show whole")
@click.option(
    "--clusters", type=Count(1, 1000), default=50, show_default=True, help="of how many of the largest clusters"
)
@PROFILE
def report(
    verdicts: tuple[Path, ...],
    pages: tuple[Path, ...],
    out: Path,
    force: bool,
    pairs: int,
    clusters: int,
    profile: str | None,
) -> None:
    """Make of VERDICTS a page to look at: one file of HTML that needs no server and no network.

    It has the totals, how similar the near-duplicates are, the hosts, the largest clusters, and every duplicate, to be
    searched. With --pages it shows pairs whole: both texts side by side with what differs, the features by weight, the
    bits. These are some of each of the largest clusters, and the pairs that are least similar.

    Files are verdicts as `file`, `batch` or a consumer of the verdict topic wrote them (JSONL, .gz, .zst); pages are
    whatever `file` reads. A page is found again by its url and id.

    \b
      simhash-dedup file crawl.warc.gz --out verdicts.jsonl
      simhash-dedup report verdicts.jsonl --pages crawl.warc.gz
      simhash-dedup report monday.jsonl.zst tuesday.jsonl.zst --out week.html --force
    """
    check_unread([out], [*verdicts, *pages])
    if out.exists() and not force:
        raise InputError(f"{out} is there already: --force overwrites it")
    collected = ReportData()
    for path in verdicts:
        collected.add_all(verdicts_in(path))
    explained = _explained(collected, pages, pairs, clusters, profile)
    title = ", ".join(in_utf8(path.name) for path in verdicts)
    try:
        out.write_text(document(collected, explained, title), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from error
    click.echo(f"{collected.verdicts:,} verdicts, {len(collected.rows):,} duplicates, {len(explained):,} pairs: {out}")


def _explained(
    collected: ReportData, pages: tuple[Path, ...], pairs: int, clusters: int, name: str | None
) -> dict[int, Explanation]:
    if not pages or not collected.rows:
        return {}
    label = collected.profiles.most_common(1)[0][0]
    profile = given_profile(name or label.rpartition("/")[0])
    if name is None and profile.label != label:
        raise InputError(
            f"the verdicts are of profile {label}, and this program has {profile.label}, which explains none of them. "
            "Give --profile FILE that describes it, or leave --pages out"
        )
    rows = shown(collected, clusters, pairs)
    texts = texts_of(pages, names_of(rows), profile)
    return dict(_pairs(rows, texts, profile))


def _pairs(rows: list[DuplicateRow], texts: dict[Name, str], profile: Profile) -> Iterator[tuple[int, Explanation]]:
    for row in rows:
        kept, duplicate = texts.get((row.match_url, row.match_id)), texts.get((row.url, row.id))
        if kept is not None and duplicate is not None:
            yield row.number, explain(kept, duplicate, profile)
