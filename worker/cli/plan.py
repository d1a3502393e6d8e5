"""`simhash-dedup plan`: what an index would take, before there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
from pydantic import ByteSize, TypeAdapter

from simhash.index import Relation
from simhash.index.redis.layout import MOST_DOCUMENTS
from simhash.index.urls import stored_bytes, trained
from simhash.planning.archive_size import ArchivePlan, archive_plan
from simhash.planning.memory_size import VERSION_BYTES
from simhash.planning.plans import CHECK_LIMIT_US, SIMILARITY, Plan, PlanRequest, cheapest_quick, plans
from simhash.relation.tables import MOST_K, automatic_design
from simhash.relation.tables import design as find_design
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import Profile
from worker.cli.options import LOGGING, Count, settings_of, settings_options
from worker.errors import InputError, SettingsError
from worker.files.locations import check_unread
from worker.index.configured import configured_profile
from worker.lines import lines_in
from worker.settings import Settings

URL_BYTES = 77
PRIMARY_MEMORY = "64GiB"
DICTIONARY_BYTES = 64 << 10
"""Of 16, 32, 48 and 64 kB, real URLs of 68 bytes took 32.5, 30.3, 29.1 and 28.1; none took longer to compress."""
LEAST_URLS = 1000
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
MOST_URL_BYTES = 32 << 10
"""As for the setting `max_url_bytes`."""


@click.command()
@click.option(
    "--documents",
    "-n",
    type=Count(1, MOST_DOCUMENTS),
    required=True,
    help="unique pages that the index will hold",
)
@click.option(
    "--k", type=click.IntRange(0, MOST_K), help="bits within which every pair is found  [default: the profile's]"
)
@click.option(
    "--url-bytes",
    type=click.IntRange(1, MOST_URL_BYTES),
    default=URL_BYTES,
    show_default=True,
    help="mean length of a URL",
)
@click.option(
    "--urls", type=FILE, help="URLs, one a line: their length, and a dictionary for them, in place of --url-bytes"
)
@click.option("--dictionary-out", type=click.Path(path_type=Path, dir_okay=False), help="write that dictionary here")
@click.option(
    "--primary-memory", default=PRIMARY_MEMORY, show_default=True, help="memory of one Redis primary: 32GiB, 500MB"
)
@click.option(
    "--archived",
    type=Count(1, MOST_DOCUMENTS),
    help="unique pages that are on disk besides (the setting `archive`): what they take there in each design",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object, with all shares")
@settings_options(("profile", *LOGGING))
def plan(
    documents: int,
    k: int | None,
    url_bytes: int,
    urls: Path | None,
    dictionary_out: Path | None,
    primary_memory: str,
    archived: int | None,
    as_json: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Show what each design of permutation tables would cost and find, and which one to take.

    For random fingerprints: tables, prefix p and bucket bits b; candidates, the entries that a page is compared with (a
    stored page is one in each table and band that brings it); the share of the pairs at each distance that the tables
    find (counted exactly); Redis' memory (used, and resident while it grows), microseconds of Redis a page, and how
    many primaries of the given size that makes.

    An index that ages has the tables of its archive, so the design must be one for all its pages: with --archived, what
    they take on disk, and how many of them one page meets there.

    --urls trains a dictionary by which a new index compresses URLs (the setting `url_dictionary`), on nine of ten of
    the URLs in FILE, and measures it on the others. Without it an index takes the one that ships.

    \b
      simhash-dedup plan --documents 10000000
      simhash-dedup plan --documents 1000000000 --url-bytes 90 --primary-memory 128GiB
      simhash-dedup plan --documents 5000000 --k 4 --json | jq .recommended
      simhash-dedup plan --documents 10M --archived 8G           # an index that ages
      simhash-dedup plan --documents 10M --urls urls.txt --dictionary-out urls.zdict
    """
    check_unread([dictionary_out], [urls])
    profile = configured_profile(settings_of(config, flags))
    question = _question(profile, documents, k, url_bytes, primary_memory)
    if urls:
        question = _with_urls(question, urls, dictionary_out)
    elif dictionary_out:
        raise SettingsError("--dictionary-out: give the URLs by --urls")
    found = plans(question)
    quick = cheapest_quick(found)
    aged = {} if archived is None else _archives(question, found, archived)
    if as_json:
        click.echo(msgspec.json.encode(_fields(question, found, quick) | ({"archive": aged} if aged else {})))
    else:
        click.echo("\n".join([*lines(question, found, quick), *_archive_lines(aged)]))


def _with_urls(question: PlanRequest, path: Path, out: Path | None) -> PlanRequest:
    """The question with the lengths of these URLs, as they are and by a dictionary trained on nine of ten of them."""
    given = [line.strip().decode(errors="replace") for _, line in lines_in(path)]
    if len(given) < LEAST_URLS:
        raise InputError(f"--urls: {path} has {len(given):,} URLs, too few to learn from: give {LEAST_URLS:,} or more")
    held_out, others = given[::10], [url for number, url in enumerate(given) if number % 10]
    try:
        dictionary = trained(others, DICTIONARY_BYTES)
    except ValueError as error:
        raise InputError(f"--urls: {path}: {error}") from error
    if out:
        out.write_bytes(dictionary.content)
        click.echo(f"{out}: a dictionary of {len(dictionary.content):,} bytes", err=True)
    mean = sum(len(url.encode()) for url in held_out) / len(held_out)
    return replace(question, url_bytes=round(mean), stored_url_bytes=stored_bytes(dictionary, held_out))


def _archives(question: PlanRequest, found: list[Plan], pages: int) -> dict[str, ArchivePlan]:
    """An archive of so many pages in each design."""
    at_once: int = Settings.model_fields["archive_pages"].default
    bits = question.relation.design.bits
    rules = {each.design: replace(question.relation, design=find_design(each.design, bits)) for each in found}
    return {name: archive_plan(rule, pages, at_once, question.url_bytes) for name, rule in rules.items()}


def _archive_lines(plans: dict[str, ArchivePlan]) -> Iterator[str]:
    for number, (design, each) in enumerate(plans.items()):
        if not number:
            yield ""
            yield f"{each.pages:,} pages in the archive, in at most {each.segments} segments"
            titles = f"{'its tables':>12}{'on disk':>12}{'a process':>12}{'met by a page':>15}"
            yield f"{'design':10}{'B a page':>10}{titles}"
        yield (
            f"{design:10}{each.table_bytes + each.record_bytes:>10,.0f}{each.table_bytes:>12,.0f}{size(each.bytes):>12}"
            f"{size(each.open_bytes):>12}{each.met:>15,.0f}"
        )


def _question(profile: Profile, documents: int, k: int | None, url_bytes: int, primary_memory: str) -> PlanRequest:
    wanted = profile.k if k is None else k
    try:
        primary = TypeAdapter(ByteSize).validate_python(primary_memory)
    except ValueError as error:
        raise SettingsError(f"--primary-memory: {primary_memory!r} is no size: write 32GiB or 500MB") from error
    if primary < 1:
        raise SettingsError(f"--primary-memory: {primary_memory!r} holds nothing: write 32GiB or 500MB")
    relation = Relation(
        automatic_design(wanted, profile.bits, documents),
        max(profile.reach, wanted),
        profile.verifier_reach,
        profile.verifier_bits,
        profile.bands,
    )
    rows = profile.verifier.rows if isinstance(profile.verifier, MinHashSketch) else 1
    return PlanRequest(documents, relation, wanted, rows, url_bytes, int(primary))


def _fields(question: PlanRequest, found: list[Plan], quick: Plan) -> dict[str, object]:
    return {
        "documents": question.documents,
        "k": question.k,
        "reach": question.relation.reach,
        "bands": question.relation.bands,
        "url_bytes": question.url_bytes,
        "stored_url_bytes": question.stored_url_bytes,
        "primary_bytes": question.primary_bytes,
        "similarity_of_bands": SIMILARITY,
        "plans": [msgspec.to_builtins(each) | {"used_bytes": round(each.memory.used)} for each in found],
        "recommended": question.relation.design.name,
        "cheapest_quick": quick.design,
        "previous_bytes_a_url": VERSION_BYTES,
    }


def lines(question: PlanRequest, found: list[Plan], quick: Plan) -> Iterator[str]:
    """The plans as people read them."""
    reach, bands, n = question.relation.reach, question.relation.bands, question.documents
    stored = question.stored_url_bytes
    urls = f"URLs of {question.url_bytes} bytes" + ("" if stored is None else f", stored in {stored:.1f}")
    yield f"{n:,} documents, k = {question.k}, reach {reach}, {bands} bands, {urls}"
    yield ""
    yield (
        f"{'design':10}{'tables':>7}{'p':>8}{'b':>4}{'candidates':>12}{'us a page':>11}{'used':>11}{'resident':>11}"
        f"{'B a page':>10}{'primaries':>11}"
    )
    for each in found:
        low, high = each.prefixes
        yield (
            f"{each.design:10}{each.tables:>7}{low if low == high else f'{low}..{high}':>8}{each.bucket_bits:>4}"
            f" {each.candidates:>11,.1f} {each.check_us:>10,.0f} {size(each.memory.used):>10}"
            f" {size(each.resident_bytes):>10} {each.memory.used / n:>9.0f} {each.primaries:>10,}"
        )
    yield ""
    yield from _shares("pairs found by the tables", question, [(each.design, each.found) for each in found])
    if question.relation.bands:
        title = f"by tables or bands, texts of Jaccard similarity {SIMILARITY}"
        yield from _shares(title, question, [(each.design, each.found_with_bands) for each in found])
    yield from _advice(question.relation.design.name, quick)
    yield f"the setting `previous` takes {VERSION_BYTES} bytes more for each URL"


def _shares(title: str, question: PlanRequest, rows: list[tuple[str, tuple[float, ...]]]) -> Iterator[str]:
    reach = question.relation.reach
    distances = range(question.k, reach + 1)
    yield f"{title}, at a distance of"
    yield f"{'design':10}" + "".join(f"{distance:>7}" for distance in distances)
    for name, shares in rows:
        yield f"{name:10}" + "".join(f"{shares[distance]:>7.3f}" for distance in distances)
    yield ""


def _advice(automatic: str, quick: Plan) -> Iterator[str]:
    yield f"recommended: {automatic}, which `design = auto` takes (docs/planning.md says why)"
    if quick.design != automatic:
        limit = f"{CHECK_LIMIT_US:.0f} us a page"
        is_quick = quick.check_us <= CHECK_LIMIT_US
        yield f"{quick.design} is " + (
            f"the one with the least memory of those below {limit}"
            if is_quick
            else f"the quickest; none is below {limit}"
        )


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1024:,.1f} KiB"
