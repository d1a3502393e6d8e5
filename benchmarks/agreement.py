"""Whether kernel and NumPy give one signature for every page: `python -m benchmarks.agreement --pages FILE [FILE]…`.

Of each page its main text is signed by both, and its markup as if that were text; of each other file (`FILE`) its
content. The tests do the same on the bundled pages and on made-up text; this is for a corpus that cannot be bundled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from simhash import native
from simhash.errors import PageError
from simhash.reading.charset import decode
from simhash.reading.extract import extract_text
from simhash.signature.profiles import DEFAULT
from worker.evaluating.reading import Corpus, read_corpus
from worker.records.page import Limits, decode_page

LARGEST_PAGE = 64 << 20
LIMITS = Limits(LARGEST_PAGE, 1 << 16, 1 << 16, 1 << 16)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option("--pages", type=FILE, multiple=True, help="pages, JSONL (.gz, .zst) (repeatable)")
@click.argument("files", type=FILE, nargs=-1)
def main(pages: tuple[Path, ...], files: tuple[Path, ...]) -> None:
    """Compare the native kernel with the NumPy path; ends with 1 where they differ, or where there is no kernel."""
    if reason := native.absence():
        raise click.ClickException(f"there is no kernel to compare with: {reason}")
    texts = characters = 0
    different = []
    for name, text in _texts(pages, files):
        texts, characters = texts + 1, characters + len(text)
        if DEFAULT.signature(text, b"raw") != DEFAULT.signature_in_numpy(text, b"raw"):
            different.append(name)
            print(f"different: {name}")
    print(f"{texts:,} texts of {characters:,} characters, {len(different):,} of them with two signatures")
    sys.exit(1 if different or not texts else 0)


def _texts(pages: tuple[Path, ...], files: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    for path in files:
        try:
            yield path.name, decode(path.read_bytes(), None).text
        except PageError as error:
            print(f"left out: {path.name}: {error}")
    if pages:
        yield from _of_pages(read_corpus(pages, LARGEST_PAGE))


def _of_pages(corpus: Corpus) -> Iterator[tuple[str, str]]:
    console = Console(stderr=True)
    records = track(corpus.records(), "signing", len(corpus.ids), console=console, transient=True)
    for name, record in zip(corpus.ids, records, strict=True):
        page = decode_page(record.key, record.value, "json", LIMITS)
        content = page.content if isinstance(page.content, str) else decode(page.content, page.charset).text
        yield name, content
        if page.is_html:
            yield f"{name}, main text", extract_text(content, DEFAULT.extractor)


if __name__ == "__main__":
    main()
