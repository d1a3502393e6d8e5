"""The summary of a run as people read it: the figures, and a few pairs that were found."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from worker.cli.terminal import plain
from worker.files.summary import Summary
from worker.records.verdict import Verdict

SHOWN_REASONS, SHOWN_CHARACTERS = 5, 300
LEAST_SECONDS = 10
"""Of a shorter run pages/s say how long its start took."""
NO_FIGURES: Mapping[str, int] = {}


def show(summary: Summary, console: Console, more: Mapping[str, int] = NO_FIGURES) -> None:
    """Print the figures, `more` of them below, why records were rejected, and the example pairs."""
    console.print(_figures(summary, more))
    reasons = summary.reasons()
    for reason in reasons[:SHOWN_REASONS]:
        say(f"  {reason.count:,} rejected: {plain(reason.example)[:SHOWN_CHARACTERS]}", console)
    if more_reasons := reasons[SHOWN_REASONS:]:
        say(f"  {sum(reason.count for reason in more_reasons):,} rejected for {len(more_reasons):,} more", console)
    if hosts := summary.most_duplicates():
        said = ", ".join(f"{plain(host)} {count:,}" for host, count in hosts)
        say(f"most duplicates: {said}", console)
    for verdict in summary.examples:
        say(_pair(verdict), console)


def say(text: str, console: Console) -> None:
    """Print text as it is: URLs hold what looks like markup, and are not to be broken into lines."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _figures(summary: Summary, more: Mapping[str, int]) -> Table:
    table = Table(show_header=False, box=None)
    rows = {
        "pages": summary.pages,
        "unique": summary.unique,
        "duplicates, exact": summary.duplicates_exact,
        "duplicates, near": summary.duplicates_near,
        "of these, same URL again": summary.same_url,
        "rejected": summary.rejected,
        "skipped (no pages)": summary.skipped,
        **({"given again, read once": summary.again} if summary.again else {}),
        "seconds": round(summary.seconds, 1),
        **({"pages/s": round(summary.pages_per_second)} if summary.seconds >= LEAST_SECONDS else {}),
    }
    for name, value in (rows | dict(more)).items():
        table.add_row(name, f"{value:,}")
    return table


def _pair(verdict: Verdict) -> str:
    if verdict.match is None:
        raise ValueError("a unique page is no example of a pair")
    bits = verdict.match.distance
    return f"  {bits} bit{'' if bits == 1 else 's'} apart:\n    {plain(verdict.url)}\n    {plain(verdict.match.url)}"
