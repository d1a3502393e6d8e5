"""The command `evaluate` from files to tables, JSON and plots."""

import gzip
import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import worker.cli.evaluate as command
from simhash.evaluation import joining
from simhash.explaining import token_grams
from simhash.signature.profiles import DEFAULT
from tests.processes import wait_until_gone
from tests.stream import ROOT
from worker.cli.main import commands
from worker.errors import InputError, SettingsError

WORDS = [f"word{number}" for number in range(400)]
FIGURES = {"recall_080", "recall_090", "precision", "false_pairs", "pairs_080"}


def page(name: str, text: str, lang: str = "en") -> dict[str, str]:
    return {"id": name, "url": f"http://example.com/{name}", "lang": lang, "text": text}


def corpus() -> list[dict[str, str]]:
    """An original, a copy, one with a word changed, a stranger; and the original's HTML in another language's name."""
    original = " ".join(WORDS[:200])
    changed = original.replace("word100", "other")
    html = {"html": f"<html><body><main><p>{original}</p></main></body></html>"}
    other = {key: value for key, value in page("markup", "", "de").items() if key != "text"} | html
    return [
        page("original", original),
        page("copy", original),
        page("changed", changed),
        page("stranger", " ".join(WORDS[200:])),
        other,
    ]


PAIRS = [
    {"a": "original", "b": "copy", "jaccard": 1.0, "containment": 1.0},
    {"a": "original", "b": "changed", "jaccard": 0.95},
    {"a": "copy", "b": "changed", "jaccard": 0.95},
    {"a": "changed", "b": "markup", "jaccard": 0.95},
    {"a": "original", "b": "elsewhere", "jaccard": 0.9},
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with pages.jsonl and pairs.jsonl.gz."""
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in corpus()))
    lines = "".join(json.dumps(each) + "\n" for each in PAIRS)
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def run(files: Path, *arguments: str) -> Result:
    given = ["evaluate", "--pages", str(files / "pages.jsonl"), "--pairs", str(files / "pairs.jsonl.gz")]
    return CliRunner().invoke(commands, [*given, "--processes", "1", *arguments])


def rows(files: Path, *arguments: str) -> list[dict[str, Any]]:
    """The JSON's results."""
    result = run(files, "--json", str(files / "out.json"), *arguments)
    assert result.exception is None, result.output
    found: list[dict[str, Any]] = json.loads((files / "out.json").read_text())["results"]
    return found


def test_a_changed_page_is_found_and_a_stranger_is_not(files: Path) -> None:
    everything = rows(files)[0]
    assert (everything["profile"], everything["language"], everything["k"]) == ("default/2", "ALL", 3)
    assert everything["pages"] == 5
    assert (everything["pairs_080"], everything["recall_080"], everything["recall_090"]) == (3, 1.0, 1.0)
    assert (everything["pairs_exact"], everything["recall_exact"]) == (3, 1.0)
    assert (everything["false_pairs"], everything["precision"]) == (0, 1.0)


def test_pairs_that_are_not_listed_are_false_pairs(files: Path) -> None:
    (files / "pairs.jsonl.gz").write_text(json.dumps(PAIRS[0]) + "\n")
    everything = rows(files)[0]
    assert (everything["pairs_080"], everything["false_pairs"], everything["precision"]) == (0, 3, 0.0)


def test_the_json_has_every_profile_k_and_language(files: Path) -> None:
    found = rows(files, "--profile", "default", "--profile", "jieba-keywords", "--k", "0", "--k", "6")
    assert all(set(row) >= FIGURES for row in found)
    assert {(row["profile"], row["rule"], row["k"]) for row in found if row["language"] == "ALL"} == {
        ("default/2", "profile", 3),
        ("default/2", "plain", 0),
        ("default/2", "plain", 6),
        ("default/2", "verified", 0),
        ("default/2", "verified", 6),
        ("jieba-keywords/1", "profile", 3),
        ("jieba-keywords/1", "plain", 0),
        ("jieba-keywords/1", "plain", 6),
    }
    assert {row["language"] for row in found} == {"ALL", "en", "de", "mixed"}


@pytest.mark.parametrize("profile", ["default", "segmented", "jieba-keywords", "jieba-tutorial"])
def test_every_profile_finds_the_copies_at_every_k(files: Path, profile: str) -> None:
    found = rows(files, "--profile", profile, *(flag for k in range(8) for flag in ("--k", str(k))))
    assert {row["k"] for row in found if row["rule"] == "plain"} == set(range(8))
    assert all(set(row) >= FIGURES for row in found)
    assert {row["recall_exact"] for row in found if row["language"] == "ALL"} == {1.0}


def test_within_k_of_its_tables_the_index_answers_what_comparing_every_pair_finds(files: Path) -> None:
    plain = [row for row in rows(files, "--k", "5", "--k", "9") if row["rule"] == "plain"]
    assert plain
    for row in plain:
        assert {name: row[name] for name in FIGURES} == {name: row["raw"][name] for name in FIGURES}


def test_histograms_are_of_all_pairs(files: Path) -> None:
    rows(files)
    profile = json.loads((files / "out.json").read_text())["profiles"][0]
    for kind in ("gate_distances", "verifier_distances"):
        assert {name: sum(counted) for name, counted in profile[kind].items()} == {
            "exact": 3,
            "positive": 3,
            "grey": 0,
            "negative": 4,
        }


def test_files_from_windows_are_read(files: Path) -> None:
    """A byte order mark, and lines that end in CR and LF."""
    lines = (files / "pages.jsonl").read_text().splitlines()
    (files / "pages.jsonl").write_bytes(b"\xef\xbb\xbf" + "".join(line + "\r\n" for line in lines).encode())
    pairs = "".join(json.dumps(each) + "\r\n" for each in PAIRS)
    (files / "pairs.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + pairs.encode()))
    assert rows(files)[0]["recall_080"] == 1.0


def test_labels_override_the_similarity(files: Path) -> None:
    labels = files / "labels.jsonl"
    labels.write_text(json.dumps({"a": "changed", "b": "original", "label": "different"}) + "\n")
    everything = rows(files, "--labels", str(labels))[0]
    assert (everything["pairs_080"], everything["false_pairs"], everything["precision"]) == (2, 1, pytest.approx(2 / 3))


def test_longest_common_substrings_can_stand_in_for_the_verifier(files: Path) -> None:
    strict, loose = rows(files, "--lcs", "0.9"), rows(files, "--lcs", "0.4")
    found = [next(row for row in each if row["rule"] == "lcs")["recall_080"] for each in (strict, loose)]
    assert found == [0.0, 1.0]


KILLED = """
import os, signal, sys
import worker.cli.evaluate as command
from tests.processes import descendants
from worker.cli.main import commands

def killed(corpus, found, recipe, processes, on_pairs):
    def kill(pairs):
        print(*descendants(os.getpid()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    return common_shares(corpus, found, recipe, processes, kill)

if __name__ == "__main__":
    common_shares, command.common_shares = command.common_shares, killed
    commands(sys.argv[1:])
"""


def test_a_killed_evaluation_leaves_no_process_behind(files: Path) -> None:
    given = [
        "evaluate",
        "--pages",
        str(files / "pages.jsonl"),
        "--pairs",
        str(files / "pairs.jsonl.gz"),
        "--lcs",
        "0.9",
    ]
    command = [sys.executable, "-c", KILLED, *given, "--quiet"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = {int(pid) for pid in process.stdout.readline().split()}
    assert len(left) >= 2
    wait_until_gone(left)


def test_pages_of_a_table_give_the_figures_of_the_same_lines(files: Path) -> None:
    in_lines = rows(files)[0]
    schema = pa.schema([(name, pa.string()) for name in ("id", "url", "text", "html")])
    pq.write_table(pa.Table.from_pylist(corpus(), schema), files / "pages.parquet")
    (files / "pages.jsonl").write_text("")
    in_a_table = rows(files, "--pages", str(files / "pages.parquet"))[0]
    assert in_a_table["language"] == "ALL"
    assert in_a_table == in_lines


def test_several_files_of_pages_may_stand_behind_one_flag(files: Path) -> None:
    lines = (files / "pages.jsonl").read_text().splitlines(keepends=True)
    (files / "pages.jsonl").write_text("".join(lines[:2]))
    (files / "more.jsonl").write_text("".join(lines[2:]))
    assert rows(files, "--pages", str(files / "more.jsonl"))[0]["pages"] == 5
    arguments = ["--pages", str(files / "pages.jsonl"), str(files / "more.jsonl")]
    given = ["evaluate", *arguments, "--pairs", str(files / "pairs.jsonl.gz"), "--processes", "1"]
    assert "5 pages" in CliRunner().invoke(commands, given).output


def test_the_terminal_shows_languages_bands_and_what_was_left_out(files: Path) -> None:
    output = run(files).output
    for expected in (
        "5 pages, 10 pairs, all compared",
        "1 listed pairs are of other pages",
        "ALL",
        "mixed",
        "0.95 to 1",
    ):
        assert expected in output
    assert run(files, "--quiet").output == ""


def test_every_figure_is_whole_however_narrow_the_terminal_is(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output = run(files, "--k", "3").output
    assert "precision" in output
    assert "…" not in output


def test_plots_are_png_files(files: Path) -> None:
    result = run(files, "--plot", str(files / "plots"), "--profile", "default", "--profile", "jieba-tutorial")
    assert result.exception is None, result.output
    drawn = sorted((files / "plots").iterdir())
    kinds = ("distances", "over-k", "recall")
    expected = {f"{name}-{kind}.png" for name in ("default-2", "jieba-tutorial-1") for kind in kinds} | {"profiles.png"}
    assert {path.name for path in drawn} == expected
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_a_corpus_without_near_duplicates_or_strangers_can_be_drawn(files: Path) -> None:
    pages = corpus()[:2]
    (files / "pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pages))
    (files / "pairs.jsonl.gz").write_text(json.dumps(PAIRS[0]))
    result = run(files, "--plot", str(files / "plots"))
    assert result.exception is None, result.output
    assert len(list((files / "plots").iterdir())) == 3


def test_a_missing_extra_is_named_before_any_work(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    for flag, value, extra in (("--plot", "plots", "plots"), ("--lcs", "0.5", "lcs")):
        error = run(files, flag, value).exception
        assert isinstance(error, SettingsError)
        assert f"simhash-dedup[{extra}]" in str(error)


def test_a_place_that_cannot_be_written_is_named_before_any_work(files: Path) -> None:
    places = [("--json", str(files / "missing/out.json")), ("--plot", str(files / "pages.jsonl/plots"))]
    for flag, place in (*places, ("--plot", "/proc")):  # there nobody writes, not even root
        error = run(files, flag, place).exception
        assert isinstance(error, InputError)
        assert place in str(error)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"a": "original"}, "line 1: .*missing required field"),
        ({"a": "x", "b": "y", "jaccard": 0.9}, "none of 1 pairs has both its pages among those given"),
        ({"a": "original", "b": "copy", "jaccard": 7}, "line 1: Expected `float` <= 1"),
        ({"a": "original", "b": "copy", "jaccard": "high"}, r"line 1: Expected `float`, got `str` - at `\$.jaccard`"),
        ({"a": "original", "b": "copy", "jaccard": None}, "line 1: Expected `float`, got `null`"),
        ('{"a": "original", "b": "copy", "jaccard": NaN}', "line 1: JSON is malformed"),
        ({"a": "copy", "b": "copy", "jaccard": 1.0}, "line 1: a page is paired with itself: copy"),
        ("", "pairs.jsonl.gz: there is no pair in it"),
        ("not JSON", "line 1"),
    ],
)
def test_pairs_that_cannot_be_read_are_named(files: Path, line: object, message: str) -> None:
    (files / "pairs.jsonl.gz").write_text(line if isinstance(line, str) else json.dumps(line))
    error = run(files).exception
    assert isinstance(error, InputError)
    with pytest.raises(InputError, match=message):
        raise error


def test_a_pair_with_two_similarities_is_refused_and_one_said_twice_counts_once(files: Path) -> None:
    again = {"a": "changed", "b": "original", "jaccard": 0.95}  # the other way round
    for extra, message in ((again, None), (again | {"jaccard": 0.4}, "line 6: changed and original have jaccard 0.4")):
        lines = "".join(json.dumps(each) + "\n" for each in [*PAIRS, extra])
        (files / "pairs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        if message is None:
            assert rows(files)[0]["pairs_080"] == 3
        else:
            error = run(files).exception
            assert isinstance(error, InputError)
            assert f"{message}, but jaccard 0.95 further above" in str(error)


LABEL = {"a": "changed", "b": "original", "label": "different"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "labels.jsonl: there is no label in it"),
        ([LABEL | {"a": "elsewhere"}], "labels.jsonl: none of 1 labels has both its pages among those given"),
        ([LABEL | {"label": "same"}], "line 1: Invalid enum value 'same'"),
        ([LABEL | {"a": "original"}], "line 1: a page is paired with itself: original"),
        (
            [LABEL, {"a": "original", "b": "changed", "label": "duplicate"}],
            'line 2: original and changed have the label "duplicate", but the label "different" further above',
        ),
    ],
)
def test_labels_that_say_nothing_or_contradict_themselves_are_named(
    files: Path, lines: list[dict[str, str]], message: str
) -> None:
    labels = files / "labels.jsonl"
    labels.write_text("".join(json.dumps(line) + "\n" for line in lines))
    error = run(files, "--labels", str(labels)).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_pairs_and_labels_of_other_pages_are_counted_and_left_out(files: Path) -> None:
    labels = files / "labels.jsonl"
    labels.write_text("".join(json.dumps(LABEL | {"b": name}) + "\n" for name in ("original", "nowhere", "gone")))
    result = run(files, "--labels", str(labels), "--json", str(files / "out.json"))
    assert "1 listed pairs are of other pages: left out" in result.output
    assert "2 labels are of other pages: left out" in result.output
    corpus = json.loads((files / "out.json").read_text())["corpus"]
    assert {name: corpus[name] for name in corpus if name != "files"} == {
        "pages": 5,
        "pairs": 10,
        "listed_pairs": 4,
        "labelled_pairs": 1,
        "pairs_of_other_pages": 1,
        "labels_of_other_pages": 2,
    }


def test_pages_of_one_id_are_told_apart_by_their_numbers(files: Path) -> None:
    """As those of one URL, fetched again: where a list of pairs names the id, nobody knows which of them is meant."""
    with (files / "pages.jsonl").open("a") as file:
        file.write(json.dumps(page("copy", corpus()[2]["text"])) + "\n")
    error = run(files).exception
    assert isinstance(error, InputError)
    assert "pairs.jsonl.gz names copy, which is the id (or URL) of several pages" in str(error)
    computed = files / "computed.jsonl"
    given = ["evaluate", "--pages", str(files / "pages.jsonl"), "--processes", "1"]
    result = CliRunner().invoke(commands, [*given, "--pairs-out", str(computed)])
    assert "1 ids (or URLs) are of several pages" in result.output
    ends = {frozenset((pair["a"], pair["b"])) for pair in map(json.loads, computed.read_text().splitlines())}
    assert frozenset(("changed", "copy, page 6")) in ends
    assert "1 ids (or URLs)" in CliRunner().invoke(commands, [*given, "--pairs", str(computed)]).output


def test_a_rejected_page_stays_in_the_set_and_is_found_by_nobody(files: Path) -> None:
    lines = (files / "pages.jsonl").read_text().splitlines()
    lines[2] = json.dumps(page("changed", "") | {"html": "and html too"})
    (files / "pages.jsonl").write_text("\n".join(lines))
    everything = rows(files)[0]
    assert (everything["pages"], everything["pairs_080"], everything["recall_080"]) == (5, 3, 0.0)
    speed = json.loads((files / "out.json").read_text())["profiles"][0]["speed"]
    assert speed["rejected"] == 1
    assert speed["first_rejection"].startswith("page 3: ")
    assert "the first that is rejected: page 3: " in run(files).output


def test_one_file_is_not_two_results(files: Path) -> None:
    """The second would overwrite the first."""
    error = run(files, "--json", str(files / "out"), "--wrong-out", str(files / "." / "out")).exception
    assert isinstance(error, InputError)
    assert "is named for two results" in str(error)
    assert not (files / "out").exists()


def test_where_no_page_can_be_read_the_first_is_named(files: Path) -> None:
    lines = [json.dumps(each | {"html": "and html too", "text": "text"}) + "\n" for each in corpus()]
    (files / "pages.jsonl").write_text("".join(lines))
    error = run(files).exception
    assert isinstance(error, InputError)
    assert "every page is rejected; page 1: " in str(error)


def run_without_pairs(files: Path, *arguments: str) -> Result:
    given = ["evaluate", "--pages", str(files / "pages.jsonl"), "--processes", "1"]
    return CliRunner().invoke(commands, [*given, *arguments])


def test_pairs_that_are_computed_give_the_figures_of_the_same_pairs_listed(files: Path) -> None:
    outputs = ("--pairs-out", str(files / "pairs.out"), "--json", str(files / "computed.json"))
    said = run_without_pairs(files, *outputs)
    assert said.exception is None, said.output
    assert "proposal, of what was measured: profile default/" in said.output
    pairs = [json.loads(line) for line in (files / "pairs.out").read_text().splitlines()]
    alike = {"copy", "changed", "markup", "original"}
    assert {frozenset((pair["a"], pair["b"])) for pair in pairs} == {frozenset(two) for two in combinations(alike, 2)}
    grams = {name: token_grams(text["text"], DEFAULT) for name, text in zip(("o", "c"), corpus()[0:3:2], strict=True)}
    jaccard = len(grams["o"] & grams["c"]) / len(grams["o"] | grams["c"])
    assert {pair["jaccard"] for pair in pairs if "changed" in pair.values()} == {round(jaccard, 6)}
    (files / "pairs.jsonl.gz").write_bytes((files / "pairs.out").read_bytes())
    assert rows(files) == json.loads((files / "computed.json").read_text())["results"]
    assert isinstance(run(files, "--pairs-out", str(files / "again")).exception, SettingsError)


def test_what_is_found_falsely_or_missed_is_listed_once_for_all_copies(files: Path) -> None:
    listed = [PAIRS[0], {"a": "stranger", "b": "original", "jaccard": 0.85}]
    (files / "pairs.jsonl.gz").write_text("".join(json.dumps(each) + "\n" for each in listed))
    assert run(files, "--wrong-out", str(files / "wrong.jsonl")).exception is None
    wrong = [json.loads(line) for line in (files / "wrong.jsonl").read_text().splitlines()]
    assert [(each["kind"], each["a"], each["b"], each["jaccard"]) for each in wrong] == [
        ("missed", "original", "stranger", 0.85),
        ("false", "original", "changed", None),
    ]


def test_pages_of_which_no_two_are_alike_have_no_proposal(files: Path) -> None:
    (files / "pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in corpus()[2:4]))
    said = run_without_pairs(files)
    assert said.exception is None
    assert "no proposal" in said.output


def test_of_two_rules_that_find_the_same_the_one_without_false_pairs_is_proposed(files: Path) -> None:
    said = run_without_pairs(files, "--k", "0", "--profile", "default")
    assert "profile default/2, as it is, k 3" in said.output


def test_more_pairs_than_can_be_held_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MOST_PAIRS", 5)
    refused = run_without_pairs(files)
    assert isinstance(refused.exception, InputError)
    assert "more than 5 pairs" in str(refused.exception)
