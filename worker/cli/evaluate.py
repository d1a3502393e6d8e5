"""`simhash-dedup evaluate`: how good a profile is on pages whose near-duplicates are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from simhash.errors import DesignError
from simhash.evaluation import Truth, Wrong, make_truth
from simhash.evaluation.truth import Pair
from simhash.relation.tables import Design, design_for
from simhash.relation.tables import design as find_design
from simhash.signature.profiles import Profile
from worker.cli.options import LOGGING, cores, settings_of, settings_options
from worker.cli.summary import say
from worker.errors import InputError, SettingsError
from worker.evaluating.assessment import Assessment, FingerprintedCorpus, as_json, assess, best, with_common_substrings
from worker.evaluating.reading import (
    Corpus,
    common_shares,
    fingerprint,
    read_corpus,
    read_labels,
    read_pairs,
    true_pairs,
)
from worker.files.locations import check_unread
from worker.index.configured import configured_design, configured_profile
from worker.judging.fingerprinters import page_limits, recipe_for_files
from worker.settings import Settings

NAMES = ("design", "documents", "processes", "max_page_bytes", "page_deadline", "page_memory", *LOGGING)
DEFAULTS = {"documents": 1_000_000, "processes": "all cores"}
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
OUT = click.Path(path_type=Path, dir_okay=False)
LARGEST_K = 16
"""Beyond it fingerprints of 64 bits say nothing, and the tables that find all pairs are hundreds."""
WIDEST_TABLE = 1000
"""In characters: more than any of these tables needs."""


@dataclass(frozen=True)
class Order:
    """What is to be evaluated on what."""

    corpus: Corpus
    truth: Truth
    ks: Sequence[int]
    least_share: float | None


@click.command()
@click.option("--pages", type=FILE, multiple=True, required=True, help="pages, JSONL (.gz, .zst) (repeatable)")
@click.argument("more_pages", type=FILE, nargs=-1, metavar="[FILE]...")
@click.option("--pairs", type=FILE, help="every pair of Jaccard >= 0.5: a, b, jaccard  [default: computed]")
@click.option("--pairs-out", type=OUT, help="write the pairs that were computed, for --pairs of the next run")
@click.option("--wrong-out", type=OUT, help="write the pairs that each profile finds falsely or misses")
@click.option("--labels", type=FILE, help='people\'s word on pairs: a, b, label ("duplicate" or "different")')
@click.option(
    "--profile",
    "profiles",
    metavar="NAME|FILE",
    multiple=True,
    help="a profile's name, or the TOML file of one's own (repeatable)  [default: that of the settings]",
)
@click.option(
    "--k", "ks", type=click.IntRange(0, LARGEST_K), multiple=True, help="also at this Hamming distance (repeatable)"
)
@click.option(
    "--lcs",
    "least_share",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="also with longest common substrings as verifier: at least SHARE of the shorter text",
)
@click.option("--json", "json_path", type=OUT, help="write all figures and histograms")
@click.option("--plot", "plots", type=click.Path(path_type=Path, file_okay=False), help="draw them here, as PNG")
@click.option("--quiet", "-q", is_flag=True, help="no progress and no tables")
@settings_options(NAMES, DEFAULTS)
def evaluate(
    pages: tuple[Path, ...],
    more_pages: tuple[Path, ...],
    pairs: Path | None,
    pairs_out: Path | None,
    wrong_out: Path | None,
    labels: Path | None,
    profiles: tuple[str, ...],
    ks: tuple[int, ...],
    least_share: float | None,
    json_path: Path | None,
    plots: Path | None,
    quiet: bool,
    config: Path | None,
    **options: Any,
) -> None:
    """Measure recall, precision and false pairs on pages whose near-duplicates are known.

    Pages are read, extracted and fingerprinted as a worker does it; then every pair of the set is compared, none is
    sampled. What counts is what the index would answer (pages must meet in a table, be within reach, and have
    verifiers that agree); beside it stands `raw`, the same with every pair compared.

    Without --pairs the truth is computed first: the Jaccard similarity of all pairs of pages, of their sets of 5-token
    shingles of main text, exactly; by the first profile's extractor. At the end stands a proposal, of what was
    measured: the profile, and k of --k, with the highest F1 of recall and precision.

    \b
      simhash-dedup evaluate --pages mine.jsonl --profile default --profile loose --wrong-out wrong.jsonl
      simhash-dedup evaluate --pages pages.jsonl.zst --pairs pairs.jsonl.gz
      simhash-dedup evaluate --pages a.jsonl b.jsonl --pairs pairs.jsonl --json figures.json
      simhash-dedup evaluate … --profile default --profile jieba-keywords --k 0 --k 3 --k 6 --plot plots/

    \b
    The files, one JSON object a line:
      pages    {"id": "1", "url": …, "html" | "text": …, "lang": "en"}
      pairs    {"a": "1", "b": "2", "jaccard": 0.87}     a pair not listed is below 0.5
      wrong    {"profile": "default/2", "kind": "missed" | "false", "a": "1", "b": "2", "jaccard": 0.84 | null}
      labels   {"a": "1", "b": "2", "label": "duplicate"}, or "different"
    Pairs of other pages are counted and left out; a pair that is said twice must be said alike. A page without an id is
    called by its URL; those that share one are "ID, page N".

    \b
    How to read it:
      recall      found share of the pairs of Jaccard >= 0.8 (>= 0.9), exact copies apart
      precision   of the found pairs, those of >= 0.8 against those below 0.5 (the rest is not scored)
      false       found pairs below 0.5, of all pairs of the set
      grey        of the pages called duplicate, judged in their order, those whose match is of 0.5 to 0.8
      plain       at --k: fingerprints within k bits, no verifier; verified: with the profile's verifier
    """
    _check_extras(plots, least_share)
    if pairs and pairs_out:
        raise SettingsError("--pairs-out is for pairs that are computed, and --pairs names a file of them: give one")
    check_unread((json_path, pairs_out, wrong_out), (*pages, *more_pages, pairs, labels))
    _check_places((json_path, pairs_out, wrong_out), plots)
    settings = settings_of(config, options, DEFAULTS | {"processes": cores()})
    console = Console(quiet=quiet)
    corpus = read_corpus([*pages, *more_pages], settings.max_page_bytes)
    known = read_pairs(pairs) if pairs else _computed(corpus, settings, [*profiles, settings.profile][0], console)
    if pairs_out:
        _write_lines(pairs_out, ({"a": a, "b": b, "jaccard": round(known[a, b], 6)} for a, b in sorted(known)))
    order = _order(corpus, known, pairs, labels, sorted(set(ks)), least_share)
    found = [_assessment(order, settings, name, console) for name in profiles or (settings.profile,)]
    _show(found, order, console)
    if json_path:
        content = msgspec.json.encode(as_json(found, _described(order)))
        json_path.write_bytes(msgspec.json.format(content) + b"\n")
    if wrong_out:
        _write_lines(wrong_out, (_wrong(each.profile, wrong, corpus) for each in found for wrong in each.wrong))
    if plots:
        _plot(found, plots, console)


def _computed(corpus: Corpus, settings: Settings, name: str, console: Console) -> Mapping[Pair, float]:
    settings = settings.model_copy(update={"profile": name})
    told = recipe_for_files(settings, configured_profile(settings))
    with _progress(console) as bar:
        task = bar.add_task("truth: all pairs", total=len(corpus.ids))
        return true_pairs(corpus, told, settings.processes, lambda pages: bar.advance(task, pages))


def _wrong(profile: Profile, wrong: Wrong, corpus: Corpus) -> dict[str, object]:
    ends = {"a": corpus.ids[wrong.first], "b": corpus.ids[wrong.second]}
    return {"profile": profile.label, "kind": wrong.kind, **ends, "jaccard": wrong.jaccard or None}


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


def _order(
    corpus: Corpus,
    known: Mapping[Pair, float],
    pairs: Path | None,
    labels: Path | None,
    ks: list[int],
    least_share: float | None,
) -> Order:
    labelled = read_labels(labels) if labels else {}
    for path, named in ((pairs, known if pairs else {}), (labels, labelled)):
        if shared := sorted(corpus.shared.intersection(name for pair in named for name in pair)):
            raise InputError(f"{path} names {shared[0]}, which is the id (or URL) of several pages: give each its own")
    truth = make_truth(corpus.ids, known, labelled)
    if labels and not truth.labels:
        raise InputError(f"{labels}: {_none_known('label', truth.unknown_labels)}")
    if pairs and not truth.jaccard and not truth.labels:
        raise InputError(f"{pairs}: {_none_known('pair', truth.unknown_pairs)}")
    return Order(corpus, truth, ks, least_share)


def _none_known(kind: str, unknown: int) -> str:
    return (
        f"none of {unknown:,} {kind}s has both its pages among those given" if unknown else f"there is no {kind} in it"
    )


def _check_extras(plots: Path | None, least_share: float | None) -> None:
    """Before minutes of work: is there what draws, and what finds substrings?"""
    wanted = {"matplotlib": (plots, "--plot", "plots"), "pydivsufsort": (least_share, "--lcs", "lcs")}
    for module, (given, flag, extra) in wanted.items():
        if given is not None and find_spec(module) is None:
            raise SettingsError(f"{flag} needs {module}: pip install 'simhash-dedup[{extra}]'")


def _check_places(files: Iterable[Path | None], plots: Path | None) -> None:
    """Before minutes of work: can the results be written?"""
    places = [path for path in files if path]
    for path, before in combinations(places, 2):
        if path.resolve() == before.resolve():
            raise InputError(f"{path} is named for two results: give each a file of its own")
    try:
        if plots:
            plots.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=plots).close()
        for path in places:
            path.touch()
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _assessment(order: Order, settings: Settings, name: str, console: Console) -> Assessment:
    settings = settings.model_copy(update={"profile": name})
    profile = configured_profile(settings)
    design = configured_design(settings, profile)
    designs = {k: _design_at(k, profile, settings) for k in order.ks}
    with _progress(console) as bar:
        task = bar.add_task(f"{name}: fingerprints", total=len(order.corpus.ids))
        told = recipe_for_files(settings, profile)
        made = fingerprint(
            order.corpus, told, settings.processes, page_limits(settings), lambda pages: bar.advance(task, pages)
        )
        bar.add_task(f"{name}: all pairs", total=None)
        known = order.truth.known([signature.digest for signature in made.signatures])
        bench = FingerprintedCorpus(profile, design, made, known, order.corpus.languages)
        found = assess(bench, order.ks, designs)
        if order.least_share is None:
            return found
        candidates = bench.candidates()
        pairs = bar.add_task(f"{name}: substrings", total=len(candidates))
        shares = common_shares(
            order.corpus, candidates, told, settings.processes, lambda done: bar.advance(pairs, done)
        )
        return with_common_substrings(found, bench, candidates, shares, order.least_share)


def _design_at(k: int, profile: Profile, settings: Settings) -> Design:
    try:
        return design_for(k, profile.bits) if settings.design == "auto" else find_design(settings.design, profile.bits)
    except DesignError as error:
        raise SettingsError(f"--k {k}: {error}") from error


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=console.quiet)


def _described(order: Order) -> dict[str, object]:
    count = len(order.corpus.ids)
    return {
        "files": [path.name for path in order.corpus.files],
        "pages": count,
        "pairs": count * (count - 1) // 2,
        "listed_pairs": len(order.truth.jaccard),
        "labelled_pairs": len(order.truth.labels),
        "pairs_of_other_pages": order.truth.unknown_pairs,
        "labels_of_other_pages": order.truth.unknown_labels,
    }


def _show(found: Sequence[Assessment], order: Order, console: Console) -> None:
    count = len(order.corpus.ids)
    say(f"{count:,} pages, {count * (count - 1) // 2:,} pairs, all compared", console)
    if shared := len(order.corpus.shared):
        say(f"{shared:,} ids (or URLs) are of several pages, which are called ID, page N", console)
    for unknown, kind in ((order.truth.unknown_pairs, "listed pairs"), (order.truth.unknown_labels, "labels")):
        if unknown:
            say(f"{unknown:,} {kind} are of other pages: left out", console)
    for each in found:
        speed = each.speed
        console.rule(f"[bold]{each.profile.label}", align="left")
        say(
            f"{speed.rejected:,} pages rejected, {speed.without_fingerprint:,} without fingerprint; one process: "
            f"{speed.html_to_fingerprint:,.0f} pages/s as they come, {speed.text_to_fingerprint:,.0f}/s from text",
            console,
        )
        if speed.first_rejection:
            say(f"the first that is rejected: {speed.first_rejection}", console)
        _print_whole(_rules_table(each), console)
        _print_whole(_language_table(each), console)
    console.rule("[bold]Recall by Jaccard similarity", align="left")
    _print_whole(_bands_table(found), console)
    say(_proposal(found), console)


def _proposal(found: Sequence[Assessment]) -> str:
    chosen = best(found)
    if chosen is None:
        return "no proposal: no two pages are of Jaccard similarity 0.8 or more, copies apart"
    profile, result = chosen
    figures = result.answered["ALL"]
    rule = {"profile": "as it is", "plain": "its fingerprints alone", "verified": "with its verifier"}.get(
        result.rule, "lcs"
    )
    return (
        f"proposal, of what was measured: profile {profile.label}, {rule}, k {result.k}, reach {result.reach}: recall "
        f"{_share(figures.recall_080)}, precision {_share(figures.precision)}, {figures.false_pairs:,} false pairs"
    )


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _print_whole(table: Table, console: Console) -> None:
    """Print a table with every figure whole: a file has no width, and a narrow terminal breaks the lines."""
    needed = console.measure(table, options=console.options.update(max_width=WIDEST_TABLE)).maximum
    console.width = max(console.width, needed)
    console.print(table)


def _rules_table(found: Assessment) -> Table:
    table = _table("rule", "reach", "tables", "recall ≥.8", "(raw)", "≥.9", "precision", "false", "grey")
    for result in found.results:
        figures, raw = result.answered["ALL"], result.raw.get("ALL")
        verified = result.verifier_reach is not None
        table.add_row(
            result.rule if result.rule in ("profile", "lcs") else f"{result.rule} k={result.k}",
            f"{result.reach}/{result.verifier_reach}" if verified else f"{result.reach}",
            result.design,
            _share(figures.recall_080),
            _share(raw.recall_080 if raw else None),
            _share(figures.recall_090),
            _share(figures.precision),
            f"{figures.false_pairs:,}",
            _share(result.grey_share),
        )
    return table


def _language_table(found: Assessment) -> Table:
    table = _table("language", "pages", "pairs ≥.8", "recall", "≥.9", "precision", "false", "exact", "recall")
    for language, figures in found.shipped.answered.items():
        table.add_row(
            language,
            f"{figures.pages:,}",
            f"{figures.pairs_080:,}",
            _share(figures.recall_080),
            _share(figures.recall_090),
            _share(figures.precision),
            f"{figures.false_pairs:,}",
            f"{figures.pairs_exact:,}",
            _share(figures.recall_exact),
        )
    return table


def _bands_table(found: Sequence[Assessment]) -> Table:
    bands = found[0].shipped.answered["ALL"].bands
    table = _table("profile", *(f"{band.low:g} to {band.high:g}" for band in bands))
    table.add_row("(pairs)", *(f"{band.pairs:,}" for band in bands))
    for each in found:
        table.add_row(each.profile.label, *(_share(band.recall) for band in each.shipped.answered["ALL"].bands))
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _plot(found: Sequence[Assessment], directory: Path, console: Console) -> None:
    from worker.evaluating.plots import draw  # matplotlib is an extra, and takes its time

    for path in draw(found, directory):
        console.print(f"plot: {path}", markup=False, highlight=False, soft_wrap=True)
