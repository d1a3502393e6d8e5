"""How good the default is beside what else one could take, on one corpus: `python -m benchmarks.quality`.

Four tables, in Markdown, as they stand in docs/quality.md: the speed of each profile, shipped or a file; peers on the
same texts; the default with one part of its recipe changed at a time; the default through other tables. But for speed,
texts are extracted once, by the extractor from whose texts the listed pairs were found (`--extractor`), and every pair
of the set is compared, none is sampled. The profiles themselves are measured by `simhash-dedup evaluate`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import mean, median, stdev

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks import peers
from benchmarks.report import markdown
from simhash import native
from simhash.evaluation import (
    Figures,
    FoundPairs,
    KnownPairs,
    MatchRule,
    SignatureTable,
    Truth,
    figures_by_language,
    make_truth,
)
from simhash.evaluation import search as compare_all
from simhash.features.schemes import ScriptRuns
from simhash.features.segment import segmenter
from simhash.features.shingles import TokenShingles
from simhash.reading.extract import EXTRACTORS
from simhash.relation.tables import Design, design
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import DEFAULT, PROFILES, Profile, Signature, Weights
from worker.evaluating.assessment import relation_of
from worker.evaluating.reading import Corpus, read_corpus, read_pairs, text_of
from worker.index.configured import configured_profile
from worker.judging.judge import Recipe
from worker.records.page import Limits
from worker.records.passing import RawRecord
from worker.settings import load

THRESHOLDS = (0.5, 0.6, 0.7, 0.8)
TABLES = "3"
DESIGNS = ("3", "3-probed", "6-probed", "4", "6", "2-probed", "8", "10", "11", "14", "16", "20")
ORDERS = 16
SPEED_STEP = 40
SPEED_ROUNDS = 3
TABLE_NAMES = ("speed", "peers", "recipe", "tables")
LARGEST_PAGE = 64 << 20
LIMITS = Limits(LARGEST_PAGE, 1 << 16, 1 << 16)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
HEADER = ("", "recall ≥ .8", "recall ≥ .9", "precision", "false pairs", "found, not scored")


@dataclass(frozen=True)
class Texts:
    """A corpus as texts, and what is known of its pairs."""

    corpus: Corpus
    texts: list[str]
    truth: Truth
    known: KnownPairs

    def row(self, name: str, found: FoundPairs, note: str = "") -> list[str]:
        """A table's row for what was found."""
        figures = figures_by_language(found, self.known, self.corpus.languages)["ALL"]
        return [name, *_cells(figures), *([note] if note else [])]


@click.command()
@click.option("--pages", type=FILE, multiple=True, required=True, help="as for simhash-dedup evaluate (repeatable)")
@click.option("--pairs", type=FILE, required=True)
@click.option("--extractor", type=click.Choice([*EXTRACTORS]), default="resiliparse-main", show_default=True)
@click.option("--only", type=click.Choice(TABLE_NAMES), multiple=True, help="these tables alone")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    help="of the speed table: name or TOML file (repeatable) [default: all shipped]",
)
def main(
    pages: tuple[Path, ...], pairs: Path, extractor: str, only: tuple[str, ...], profiles: tuple[str, ...]
) -> None:
    """Compare the default with peers, with other recipes and through other tables."""
    console = Console(stderr=True)
    corpus = read_corpus(pages, LARGEST_PAGE)
    wanted = only or TABLE_NAMES
    if "speed" in wanted:
        speed_table(corpus, profiles or PROFILES)
    if set(wanted) != {"speed"}:
        _tables_of_pairs(corpus, pairs, extractor, wanted, console)


def _tables_of_pairs(corpus: Corpus, pairs: Path, extractor: str, wanted: Sequence[str], console: Console) -> None:
    records = track(corpus.records(), "extracting", len(corpus.ids), console=console, transient=True)
    recipe = Recipe(replace(DEFAULT, extractor=extractor), "json", LIMITS)
    texts = [text_of(record, recipe) for record in records]
    truth = make_truth(corpus.ids, read_pairs(pairs))
    signatures = signatures_of(texts, DEFAULT)
    given = Texts(corpus, texts, truth, truth.known([s.digest for s in signatures]))
    tables: dict[str, Callable[[], None]] = {
        "peers": lambda: peers_table(given, signatures, console),
        "recipe": lambda: recipe_table(given),
        "tables": lambda: tables_table(given, signatures),
    }
    for name in tables:
        if name in wanted:
            tables[name]()


def signatures_of(texts: Sequence[str], profile: Profile) -> list[Signature]:
    """Signatures of texts."""
    return [profile.signature(text, text.encode("utf-8", "replace")) for text in texts]


def table_of(signatures: Sequence[Signature], profile: Profile) -> SignatureTable:
    """Signatures in columns."""
    return SignatureTable.of(signatures, profile.bits, profile.verifier_bits, profile.bands)


def speed_table(corpus: Corpus, profiles: Sequence[str]) -> None:
    """Pages a second of one process, by its processor time; over every SPEED_STEP-th page, as they come and as text.

    The profiles are timed in turns, SPEED_ROUNDS times; a figure is the median of the rounds.
    """
    records = [record for number, record in enumerate(corpus.records()) if number % SPEED_STEP == 0]
    made = [configured_profile(load({"profile": name})) for name in profiles]
    rounds = [[_seconds(each, records) for each in made] for _ in range(SPEED_ROUNDS)]
    rows = []
    for profile, timed in zip(made, zip(*rounds, strict=True), strict=True):
        rates = [len(records) / median(each) for each in zip(*timed, strict=True)]
        rows.append([profile.label, *(f"{rate:,.0f}" for rate in rates)])
    print(f"\nevery {SPEED_STEP}th page, {len(records)} in all; {native.describe()}, words by {segmenter()}")
    _print("Speed", ["", "pages/s", "pages/s without the kernel", "texts/s", "texts/s without the kernel"], rows)


def _seconds(profile: Profile, records: Sequence[RawRecord]) -> tuple[float, float, float, float]:
    """Of all pages from their markup and from their text, each with the kernel and without it."""
    recipe = Recipe(profile, "json", LIMITS)
    first = text_of(records[0], recipe)
    profile.signature(first, b"")  # loads dictionaries and tables
    profile.signature_in_numpy(first, b"")
    texts: list[str] = []
    extracting = _processor_seconds(lambda: texts.extend(text_of(record, recipe) for record in records))
    signing = _processor_seconds(lambda: signatures_of(texts, profile))
    slowly = signing
    if profile.for_kernel:
        slowly = _processor_seconds(lambda: [profile.signature_in_numpy(text, b"") for text in texts])
    return extracting + signing, extracting + slowly, signing, slowly


def _processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def peers_table(given: Texts, signatures: Sequence[Signature], console: Console) -> None:
    """The default, and packages that a user might take instead, with the speed from text of one process."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "texts.jsonl"
        path.write_text("".join(json.dumps(text) + "\n" for text in given.texts))
        asked: dict[str, object] = {"texts": str(path), "thresholds": THRESHOLDS}
        found = peers.run("quality", asked, lambda text: console.print(text))
    count = len(given.texts)
    seconds = _processor_seconds(lambda: signatures_of(given.texts, DEFAULT))
    rows = [given.row("default", _shipped(signatures, DEFAULT), _rate(count, seconds))]
    for lsh in found["lsh"]:
        name = f"datasketch MinHashLSH, 128, threshold {lsh['threshold']} ({lsh['bands'][0]} x {lsh['bands'][1]})"
        name += f", its own estimate at least {lsh['least']}" if lsh["least"] else ""
        rows.append(given.row(name, _pairs(lsh["pairs"], count), _rate(count, found["seconds"]["datasketch"])))
    for package, fingerprints in found["fingerprints"].items():
        values = [None if text is None else int(text, 16) for text in fingerprints]
        name = f"{package} simhash, k = 3 ({sum(value is None for value in values)} texts raise)"
        rows.append(given.row(name, _within(values, 3), _rate(count, found["seconds"][package])))
    _print("Peers", [*HEADER, "texts/s"], rows)


def recipe_table(given: Texts) -> None:
    """The default with one part changed at a time."""
    rows = []
    for profile, changes in groupby(_changes(), key=lambda change: change[1]):
        signatures = signatures_of(given.texts, profile)
        known = given.truth.known([signature.digest for signature in signatures])
        named = list(changes)
        searched = compare_all(table_of(signatures, profile), [rule for _, _, rule in named])
        of_profile = replace(given, known=known)
        rows += [of_profile.row(name, found) for (name, _, _), found in zip(named, searched.found, strict=True)]
    _print("One part changed at a time", HEADER, rows)


def _changes() -> Iterator[tuple[str, Profile, MatchRule]]:
    """A name, a profile and a rule; those of one profile together."""
    rule = _rule(DEFAULT)
    yield "**default**", DEFAULT, rule
    yield "no verifier", DEFAULT, replace(rule, verifier_reach=None)
    for reach in (6, 8, 10, 12, 16):
        yield f"reach {reach}", DEFAULT, replace(rule, reach=reach)
    for reach in (64, 68, 72, 80, 84, 88):
        yield f"verifier reach {reach}", DEFAULT, replace(rule, verifier_reach=reach)
    yield "every pair compared", DEFAULT, replace(rule, design=None)
    for name, profile in _recipes():
        yield name, profile, _rule(profile)


def _recipes() -> Iterator[tuple[str, Profile]]:
    for bands, rows in ((0, 4), (3, 4), (4, 4), (5, 4), (6, 3), (6, 5), (8, 4)):
        sketch = MinHashSketch(bands=bands, rows=rows)
        yield f"{bands} bands of {rows} rows" if bands else "no bands", replace(DEFAULT, verifier=sketch)
    for cap in (1, 4, 16, None):
        weights = Weights("count", cap=cap)
        yield f"counts capped at {cap}" if cap else "counts not capped", replace(DEFAULT, weights=weights)
    yield "features by jieba's words", replace(DEFAULT, features=ScriptRuns())
    second = replace(DEFAULT, verifier=TokenShingles(5), verifier_reach=14)
    yield "verifier a second simhash of 64 bits, reach 14, no bands", second
    for features in (1, 32, 64):
        yield f"at least {features} distinct features", replace(DEFAULT, min_features=features)


def _rule(profile: Profile) -> MatchRule:
    return MatchRule.of(relation_of(profile, design(TABLES)))


def tables_table(given: Texts, signatures: Sequence[Signature]) -> None:
    """The default through other designs, with its bands and without."""
    table = table_of(signatures, DEFAULT)
    rows = []
    for name in DESIGNS:
        tables = design(name)
        rules = [replace(_rule(DEFAULT), design=tables, bands=bands) for bands in (True, False)]
        with_bands, alone = compare_all(table, rules).found
        prefixes = sorted({each.prefix for each in tables.tables})
        place = f"{name}: {len(tables.tables)} tables, p = {prefixes[0]}" + (
            f"..{prefixes[-1]}" if prefixes[1:] else ""
        )
        rows.append([*given.row(place, with_bands), given.row("", alone)[1], _spread(given, table, tables)])
    _print(
        "Other tables", [*HEADER, "recall ≥ .8 without bands", f"recall ≥ .8 over {ORDERS} orders of the bits"], rows
    )


def _spread(given: Texts, table: SignatureTable, tables: Design) -> str:
    """Recall with the bits of all fingerprints in other orders: mean, standard deviation and the least of it.

    Which block a bit stands in is chance; a set this small has some luck with one order, and an index of another size
    has another design.
    """
    rule = replace(_rule(DEFAULT), design=tables)
    everything = compare_all(table, [replace(rule, design=None)]).found[0]
    shares = []
    for order in range(ORDERS):
        other = replace(table, gate=_reordered(table.gate, Random(order).sample(range(64), 64)))
        found = everything.only(other.meet(everything.first, everything.second, rule))
        recall = figures_by_language(found, given.known, given.corpus.languages)["ALL"].recall_080
        shares.append(recall or 0.0)
    return f"{mean(shares):.4f} ± {stdev(shares):.4f}, least {min(shares):.4f}"


def _reordered(gate: NDArray[np.uint64], order: Sequence[int]) -> NDArray[np.uint64]:
    """64-bit fingerprints, shape (n, 1), with bit `order[i]` of each at place i."""
    one = np.uint64(1)
    moved = [(gate >> np.uint64(source) & one) << np.uint64(place) for place, source in enumerate(order)]
    found: NDArray[np.uint64] = np.bitwise_or.reduce(moved)
    return found


def _shipped(signatures: Sequence[Signature], profile: Profile) -> FoundPairs:
    return compare_all(table_of(signatures, profile), [_rule(profile)]).found[0]


def _within(values: Sequence[int | None], k: int) -> FoundPairs:
    """Pairs of 64-bit fingerprints within k bits; texts without one match nothing."""
    signatures = [Signature(value, None, f"text:{number}", 0) for number, value in enumerate(values)]
    return compare_all(SignatureTable.of(signatures, 64, 64, 0), [MatchRule(k)]).found[0]


def _pairs(pairs: Sequence[Sequence[int]], pages: int) -> FoundPairs:
    """Pairs of pages, each of them a row of its own."""
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return FoundPairs(places[:, 0], places[:, 1], np.zeros(len(places), dtype=np.int64), np.arange(pages))


def _cells(figures: Figures) -> list[str]:
    shares = (figures.recall_080, figures.recall_090, figures.precision)
    return [*("" if s is None else f"{s:.4f}" for s in shares), f"{figures.false_pairs:,}", f"{figures.grey_found:,}"]


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}"


def _print(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(markdown(title, header, rows), flush=True)


if __name__ == "__main__":
    main()
