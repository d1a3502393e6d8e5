"""Whether kernel and Python give one text and one signature for every page: `python -m benchmarks.agreement`.

Of each page (--pages) its main text is signed by both, and its markup as if that were text; of each other file (`FILE`)
its content. What holds a tag is read by both as well. With --mutated so many texts of damaged forms of the pages come
besides (`benchmarks.mutations`), in charsets that may not be those that they declare. The tests do the same on the
bundled pages and on made-up text; this is for a corpus that cannot be bundled, and for a long run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path
from random import Random

import click
from rich.console import Console
from rich.progress import track

from benchmarks.mutations import as_bytes, mutated
from simhash import native
from simhash.errors import PageError
from simhash.reading import main_text
from simhash.reading.charset import decode
from simhash.reading.extract import extract_text
from simhash.signature.profiles import DEFAULT
from worker.evaluating.reading import read_corpus
from worker.records.page import Limits, decode_page

LARGEST_PAGE = 64 << 20
LIMITS = Limits(LARGEST_PAGE, 1 << 16, 1 << 16)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
Named = tuple[str, str]
"""A text, behind the name by which it can be told."""


@click.command()
@click.option("--pages", type=FILE, multiple=True, help="pages, JSONL (.gz, .zst) (repeatable)")
@click.option(
    "--mutated", "forms", type=click.IntRange(0), default=0, help="how many texts of their damaged forms besides"
)
@click.option("--seed", default=1, show_default=True, help="of the damage; a form's number and this name it")
@click.argument("files", type=FILE, nargs=-1)
def main(pages: tuple[Path, ...], forms: int, seed: int, files: tuple[Path, ...]) -> None:
    """Compare the native kernel with the NumPy path; ends with 1 where they differ, or where there is no kernel."""
    if reason := native.absence():
        raise click.ClickException(f"there is no kernel to compare with: {reason}")
    texts = characters = 0
    different = []
    for name, text in chain(_of_files(files), *(_of_pages(pages, forms, seed) if pages else ())):
        texts, characters = texts + 1, characters + len(text)
        if _differ(text):
            different.append(name)
            print(f"different: {name}")
    print(f"{texts:,} texts of {characters:,} characters, {len(different):,} of them with two readings or signatures")
    sys.exit(1 if different or not texts else 0)


def _differ(text: str) -> bool:
    """Whether the two ways sign a text differently, or read it differently as if it were markup."""
    if DEFAULT.signature(text, b"raw") != DEFAULT.signature_in_numpy(text, b"raw"):
        return True
    return "<" in text and main_text.read(text.encode()) != main_text.read_in_python(text.encode())


def _of_files(files: Sequence[Path]) -> Iterator[Named]:
    for path in files:
        try:
            yield path.name, decode(path.read_bytes(), None).text
        except PageError as error:
            print(f"left out: {path.name}: {error}")


def _of_pages(files: tuple[Path, ...], forms: int, seed: int) -> tuple[Iterator[Named], Iterator[Named]]:
    """The texts of the pages, and of their damaged forms."""
    return _texts(files), islice(chain.from_iterable(_damaged(files, f"{seed}.{turn}") for turn in count()), forms)


def _texts(files: tuple[Path, ...]) -> Iterator[Named]:
    for name, content, is_html in _contents(files):
        yield name, content
        if is_html:
            yield f"{name}, main text", extract_text(content, DEFAULT.extractor)


def _damaged(files: tuple[Path, ...], seed: str) -> Iterator[Named]:
    """A damaged form of each page and its main text, or its bytes one by one where the form is refused as a page."""
    for name, content, _ in _contents(files):
        random = Random(f"{seed} {name}")
        page = as_bytes(mutated(content, random), random)
        try:
            text = decode(page, None).text
            text = text.replace("\0", "")
            yield f"{name}, damaged by seed {seed}", text
            yield f"{name}, main text, damaged by seed {seed}", extract_text(text, DEFAULT.extractor)
        except PageError:
            yield f"{name}, damaged by seed {seed}, as it is", page.decode("latin-1").replace("\0", "")


def _contents(files: tuple[Path, ...]) -> Iterator[tuple[str, str, bool]]:
    """Name, content and whether it is markup of each page."""
    corpus = read_corpus(files, LARGEST_PAGE)
    records = track(corpus.records(), "signing", len(corpus.ids), console=Console(stderr=True), transient=True)
    for name, record in zip(corpus.ids, records, strict=True):
        page = decode_page(record.key, record.value, "json", LIMITS)
        content = page.content if isinstance(page.content, str) else decode(page.content, page.charset).text
        yield name, content, page.is_html


if __name__ == "__main__":
    main()
