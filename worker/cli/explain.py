"""`simhash-dedup explain`: why two pages match, or do not, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from simhash.explaining import Difference, Explanation
from simhash.explaining import explain as compared
from simhash.relation.hamming import to_binary
from simhash.signature.profiles import Profile
from worker.cli.options import PROFILE, given_profile
from worker.cli.terminal import plain
from worker.errors import InputError
from worker.records.passing import Page
from worker.reporting.pairs import LARGEST_PAGE, pages_in, text_of

FILE = click.Path(path_type=Path, exists=True)
TEXT_SUFFIXES = (".txt", ".text", ".md")
SHOWN_FEATURES, SHOWN_DIFFERENCES, SHOWN_CHARACTERS = 12, 20, 300


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--pages", type=FILE, multiple=True, help="where A and B, URLs or ids, are looked for (repeatable)")
@PROFILE
def explain(a: str, b: str, pages: tuple[Path, ...], profile: str | None) -> None:
    """Say why two pages match, or do not: distances, similarity, what differs, features by weight, bits.

    A and B are files of HTML (.txt: of text), or, with --pages, the URLs or ids of two pages in these files. Exit code
    1 when an index would not call them duplicates.

    \b
      simhash-dedup explain old.html new.html
      simhash-dedup explain https://a.example/1 https://b.example/1 --pages crawl.warc.gz
    """
    recipe = given_profile(profile or "default")
    told = compared(*_texts(a, b, pages, recipe), recipe)
    for line in _lines(told, recipe):
        click.echo(line)
    if not told.match:
        sys.exit(1)


def _texts(a: str, b: str, pages: tuple[Path, ...], profile: Profile) -> tuple[str, str]:
    if not pages:
        return _text_of_file(a, profile), _text_of_file(b, profile)
    found: dict[str, Page] = {}
    for page in pages_in(pages):
        for name in {page.url, page.id} & {a, b}:
            found.setdefault(str(name), page)
        if len(found) == len({a, b}):
            break
    for name in (a, b):
        if name not in found:
            raise InputError(f"no page has the URL or id {plain(name)} in {', '.join(map(str, pages))}")
    return _known(found[a], a, profile), _known(found[b], b, profile)


def _text_of_file(name: str, profile: Profile) -> str:
    try:
        with open(name, "rb") as file:
            raw = file.read(LARGEST_PAGE + 1)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror} (URLs are looked for in --pages)") from error
    if len(raw) > LARGEST_PAGE:
        raise InputError(f"{name}: a page has {LARGEST_PAGE:,} bytes at most (one of many is named with --pages)")
    return _known(Page(name, raw, not name.lower().endswith(TEXT_SUFFIXES)), name, profile)


def _known(page: Page, name: str, profile: Profile) -> str:
    text = text_of(page, profile)
    if text is None:
        raise InputError(f"{plain(name)}: no text can be read from it")
    return text


def _lines(told: Explanation, profile: Profile) -> Iterator[str]:
    yield f"{'duplicates' if told.match else 'not duplicates'} by profile {profile.name}/{profile.version}" + (
        ": the same text" if told.exact else ""
    )
    yield f"  fingerprints  {_bits(told.distance, told.reach)}"
    if told.verifier_reach is not None:
        yield f"  sketches      {_bits(told.verifier_distance, told.verifier_reach)}"
    yield (
        f"  similarity    {told.similarity:.3f} of the word sequences are in both: {told.containment[0]:.1%} of A's, "
        f"{told.containment[1]:.1%} of B's"
    )
    if told.estimate is not None:
        yield f"  estimate      {told.estimate:.3f} by the sketches, as a verdict tells it"
    yield from _bit_lines(told, profile)
    yield from _feature_lines(told)
    yield from _difference_lines(told.differences)


def _bits(distance: int | None, reach: int) -> str:
    return "too little text to compare" if distance is None else f"differ in {distance} bits, at most {reach} may"


def _bit_lines(told: Explanation, profile: Profile) -> Iterator[str]:
    one, other = told.fingerprints
    if one is None or other is None:
        return
    for name, value in (("A", one), ("B", other), (" ", None)):
        shown = to_binary(one if value is None else value, profile.bits)
        if value is None:
            shown = to_binary(one ^ other, profile.bits).replace("0", " ").replace("1", "^")
        yield f"  {name} {shown}".rstrip()


def _feature_lines(told: Explanation) -> Iterator[str]:
    different = [each for each in told.features if each.a != each.b]
    yield f"features: {len(told.features):,}, {len(different):,} of other weight" + (
        ", the first:" if different else ""
    )
    for each in different[:SHOWN_FEATURES]:
        yield f"  {each.a:8g} {each.b:8g}  {plain(each.name)}"


def _difference_lines(differences: Sequence[Difference]) -> Iterator[str]:
    found = [each for each in differences if each.kind == "other"]
    yield f"differences: {len(found):,}" + (", the first:" if len(found) > SHOWN_DIFFERENCES else "")
    for each in found[:SHOWN_DIFFERENCES]:
        for sign, text in (("-", each.a), ("+", each.b)):
            if text:
                yield f"  {sign} {plain(text)[:SHOWN_CHARACTERS]}"
