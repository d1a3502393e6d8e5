"""The command: which pages, which tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.extraction import framed, labelled, signed
from benchmarks.samples import SAMPLE, read_pages

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
TABLES = ("labelled", "framed", "signed")
ARTICLES = 60
ROUNDS = 3


@click.command()
@click.option(
    "--labelled",
    "labelled_files",
    type=FILE,
    multiple=True,
    help="pages with their main text: JSONL, plain or .zst, of `html` and `main`, or `with` and `without` (repeatable)",
)
@click.option(
    "--pages", type=FILE, default=SAMPLE, help="pages whose articles are framed [default: the bundled sample]"
)
@click.option("--only", type=click.Choice(TABLES), multiple=True, help="these tables alone (repeatable)")
@click.option("--articles", default=ARTICLES, show_default=True, help="how many of each language are framed")
@click.option("--rounds", default=ROUNDS, show_default=True, help="how often each extractor goes over the pages")
@click.option("--most", type=click.IntRange(1), help="of each file of labelled pages the first so many")
def main(
    labelled_files: tuple[Path, ...], pages: Path, only: tuple[str, ...], articles: int, rounds: int, most: int | None
) -> None:
    """Compare extractors on pages whose main text is known, on articles in made-up frames, and in cost.

    Rates are by processor time of one process; all contenders run in turns, so compare the rows of one table.
    """
    for line in machine.lines(machine.description()):
        print(line)
    tables, progress = only or TABLES, _progress()
    marked = [labelled.Labelled.read(path, most) for path in labelled_files]
    if "labelled" in tables:
        for each in marked:
            print(labelled.compare(each, rounds, progress), flush=True)
    found = [page for page in read_pages(pages) if "html" in page]
    if "framed" in tables:
        for language in sorted({page["lang"] for page in found}):
            of_language = [page["html"] for page in found if page["lang"] == language]
            if table := framed.compare(language, of_language, articles, progress):
                print(table, flush=True)
    if "signed" in tables:
        for name, every in (*((each.name, each.pages) for each in marked), (pages.name, [p["html"] for p in found])):
            print(signed.compare(name, [page.encode() for page in every], rounds, progress), flush=True)


def _progress() -> Callable[[str], None]:
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(f"[dim]... {text}[/dim]", highlight=False, soft_wrap=True)

    return say
