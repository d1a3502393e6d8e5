"""The benchmarks, as small as can be: that they run, print what they measure, and say honestly what was met."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import compressed, index, memory, meter, samples
from benchmarks.cli import main
from benchmarks.report import Ratio, Report, shown
from simhash.index import Relation
from simhash.relation.tables import design
from tests.servers import RedisServer

SMALL = index.Sizes(stored=(200, 400), runs=2, calls=1, singles=10)


@pytest.fixture
def report() -> Report:
    return Report(Console(width=200, record=True, quiet=True))


def test_a_ratio_says_what_is_expected_and_whether_it_is_met() -> None:
    assert Ratio("x", "rate", 31.2, "x", ">=", 20).line() == "rate: expected >= 20x: 31.2x, met"
    assert Ratio("x", "rate", 19.9, "x", ">=", 20).line() == "rate: expected >= 20x: 19.9x, NOT MET"
    assert Ratio("x", "share", 0.83, "%", ">=", 0.8).line() == "share: expected >= 80 %: 83 %, met"
    assert Ratio("x", "wait", 1.5, "ms", "<=", 1).line() == "wait: expected <= 1 ms: 1.5 ms, NOT MET"
    assert Ratio("x", "share", 0.83, "%").line() == "share: 83 %"


def test_a_value_that_just_misses_is_not_shown_as_if_it_met() -> None:
    line = Ratio("x", "rate", 19.999, "x", ">=", 20).line()
    assert "NOT MET" in line


@pytest.mark.parametrize(("value", "text"), [(0.01234, "0.0123"), (7.0, "7"), (42.56, "42.6"), (12345.6, "12,346")])
def test_numbers_have_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_figure_is_the_median_of_its_runs_with_their_extremes(report: Report) -> None:
    assert report.figure("x", "rate", "pages/s", [3.0, 1.0, 2.0]) == 2.0
    figure = report.figures[0]
    assert (figure.value, figure.low, figure.high, figure.runs) == (2.0, 1.0, 3.0, 3)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert meter.percentile([float(n) for n in range(100, 0, -1)], percent) == value


def test_the_sample_is_repeated_under_changed_urls() -> None:
    pages = samples.read_pages()
    values = list(samples.page_values(pages, len(pages) + 2))
    keys = [key for key, _ in values]
    assert len(set(keys)) > len({page["url"] for page in pages})
    assert json.loads(values[-1][1])["html"] == pages[1]["html"]
    assert json.loads(values[-1][1])["url"].encode() == keys[-1] != keys[1]


def test_made_up_entries_follow_one_another_and_fill_the_relation() -> None:
    relation = Relation(design("10"), 6, 14)
    entries = samples.entries(relation, 50, 7, Random(1))
    assert [entry.position.offset for entry in entries if entry.position] == list(range(7, 57))
    assert all(entry.verifier is not None and len(entry.url) == samples.URL_BYTES for entry in entries)
    assert max((entry.fingerprint or 0).bit_length() for entry in entries) == 64


def test_the_index_is_measured_at_every_size_and_all_its_pages_are_stored(report: Report, tmp_path: Path) -> None:
    server = RedisServer(tmp_path, dies_with_parent=True)
    server.start()
    try:
        index.measured(report, SMALL, server, "10")
    finally:
        server.kill()
    names = [figure.name for figure in report.figures]
    assert any("(10, 200 stored)" in name for name in names)
    assert any("(10, 400 stored)" in name for name in names)
    assert all(figure.value > 0 for figure in report.figures)


def test_the_command_runs_what_it_is_told_and_writes_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(report: Report, quick: bool, scratch: Path, pages: Path) -> None:
        report.figure("made up", "rate", "pages/s", [2.0])
        report.ratio(Ratio("made up", "rate", 2.0, "x", ">=", 3))

    monkeypatch.setattr("benchmarks.cli.BENCHMARKS", {"loop": measured})
    out = tmp_path / "figures.json"
    done = CliRunner().invoke(main, ["--only", "loop", "--quick", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "expected >= 3x: 2x, NOT MET" in done.output
    found = json.loads(out.read_text())
    assert found["figures"][0]["value"] == 2.0
    assert found["ratios"][0]["met"] is False
    assert found["machine"]["cores"] > 0


def test_memory_is_measured_beside_what_was_planned(report: Report, tmp_path: Path) -> None:
    memory.run(report, memory.Sizes((3_000,), ("10",)), tmp_path)
    values = {figure.name: figure.value for figure in report.figures}
    measured, planned = values["Redis memory (10, 3,000 stored)"], values["planned (10, 3,000 stored)"]
    assert planned == pytest.approx(measured, rel=0.15)
    assert 60 < values["tables (10, 3,000 stored)"] < measured


def test_compressed_tables_are_measured_beside_other_codes(report: Report, tmp_path: Path) -> None:
    sizes = compressed.Sizes(stored=(2_000,), singles=5, together=(50,), checked=5)
    compressed.run(report, sizes, tmp_path)
    values = {figure.name: figure.value for figure in report.figures}
    entropy, ours = values["entropy (2,000)"], values["a table's file (2,000)"]
    assert entropy < values["Elias-Fano (2,000)"] < values["raw (2,000)"] == 64
    assert entropy < ours < 64
    assert (values["one table, raw"], values["16 tables, raw"]) == (64, 1024)
    assert 0.5 < values["one table, compressed"] / 64 < 0.55


def test_elias_fano_has_the_size_that_its_formula_says() -> None:
    numbers = np.sort(np.random.default_rng(1).integers(0, 2**64, 5000, np.uint64))
    low = 51
    assert compressed.elias_fano(numbers) == 5000 * low // 8 + ((int(numbers[-1]) >> low) + 5000 - 1) // 8 + 1
