"""The pairs that a report shows whole: which, and their texts, from the files that were judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, zip_longest
from pathlib import Path

from simhash.errors import PageError
from simhash.reading.extract import extract_text
from simhash.signature.profiles import Profile
from worker.files.inputs import open_inputs
from worker.judging.judge import Rejected, utf8_of
from worker.records.page import Limits, page_in
from worker.records.passing import Page
from worker.reporting.report_data import DuplicateRow, ReportData

LARGEST_PAGE = 10 << 20
LIMITS = Limits(page=LARGEST_PAGE, url=32 << 10, key=16 << 10)
PER_CLUSTER = 3
Name = tuple[str, str | None]
"""How a page is found again: its URL and id."""


def shown(collected: ReportData, clusters: int, count: int) -> list[DuplicateRow]:
    """Which pairs to show: some of each large cluster, and the near-duplicates that are furthest apart."""
    of_clusters = (row for rows in zip_longest(*collected.largest(clusters)) for row in rows if row)
    near = (row for row in collected.rows if row.kind == "near")
    furthest = sorted(near, key=lambda row: (row.similarity or 0.0, -row.distance))
    most = islice(of_clusters, min(count // 2, PER_CLUSTER * clusters))
    chosen = {row.number: row for row in most}
    for row in chain(furthest, collected.rows):
        if len(chosen) >= count:
            break
        chosen.setdefault(row.number, row)
    return list(chosen.values())


def names_of(rows: Iterable[DuplicateRow]) -> set[Name]:
    """Both pages of each pair."""
    return {name for row in rows for name in ((row.url, row.id), (row.match_url, row.match_id))}


def texts_of(files: Sequence[Path], wanted: set[Name], profile: Profile) -> dict[Name, str]:
    """The main texts of these pages, those that are in the files; of one that is there twice, the first.

    Raises:
        InputError: a file cannot be read.
    """
    found: dict[Name, str] = {}
    for page in pages_in(files):
        name = (page.url, page.id)
        if name in wanted and name not in found:
            text = text_of(page, profile)
            if text is not None:
                found[name] = text
    return found


def pages_in(files: Sequence[Path]) -> Iterator[Page]:
    """The pages of JSONL, WARC, WET, HTML and folders of it; what is no page is left out."""
    inputs, _ = open_inputs([str(path) for path in files], LARGEST_PAGE, spool=False)
    for each in inputs:
        for record in each.records():
            if not isinstance(record, Rejected):
                with suppress(PageError):
                    yield page_in(record, "json", LIMITS)


def text_of(page: Page, profile: Profile) -> str | None:
    """A page's main text; None where it cannot be read."""
    try:
        utf8 = utf8_of(page)
        return extract_text(utf8, profile.extractor) if page.is_html else utf8.decode()
    except PageError:
        return None
