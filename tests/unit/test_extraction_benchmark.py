"""What extraction is measured with: the overlap of texts, the forms of an article, hostile pages, damaged ones."""

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import peers
from benchmarks.extraction import labelled, pictures
from benchmarks.extraction.cli import main
from benchmarks.extraction.contenders import LIMIT, contenders
from benchmarks.extraction.forms import FORMS, plain
from benchmarks.extraction.framed import matches
from benchmarks.extraction.frames import FRAMES, Article, Surroundings
from benchmarks.extraction.overlap import Overlap, Score, overlap, score, score_segments
from benchmarks.hostile import FAMILIES, SIZES, cost
from benchmarks.mutations import MUTATIONS, as_bytes, mutated
from benchmarks.samples import read_pages
from simhash.errors import PageError
from simhash.reading import main_text
from simhash.reading.charset import decode
from simhash.reading.extract import extract_text
from simhash.signature.profiles import DEFAULT

PARAGRAPHS = [
    "The committee met on Tuesday morning and decided to postpone the vote on the new bridge until the spring.",
    "Residents of both banks had asked for a longer hearing; their letters filled three folders on the table.",
    "The engineer explained once more, with a model made of wood, why the piers must stand in the water.",
]
ARTICLE = Article("A bridge is put off", PARAGRAPHS)
OTHER = Article(
    "Of apples", ["Apples keep best in a dark cellar, each wrapped in paper, and none touching another one."] * 9
)
AROUND = Surroundings([OTHER])
WORDS = st.lists(st.sampled_from("abc"), max_size=12)


@given(true=WORDS, extracted=WORDS)
def test_the_overlap_is_that_of_runs_of_four_words_counted_one_by_one(true: list[str], extracted: list[str]) -> None:
    def runs(words: list[str]) -> list[str]:
        return [" ".join(words[i : i + 4]) for i in range(max(1, len(words) - 3))] if words else []

    left, found, extra = runs(true), 0, 0
    for run in runs(extracted):
        if run in left:
            left.remove(run)
            found += 1
        else:
            extra += 1
    assert overlap(" ".join(true), " ".join(extracted)) == Overlap(found, extra, len(left))


def test_a_han_character_is_a_word() -> None:
    assert overlap("委员会开会", "委员会开").found == 1
    assert overlap("委员会开会", "委员会开").missed == 1


def test_a_page_without_extracted_text_counts_for_recall_alone() -> None:
    assert score([("a b c d", "a b c d"), ("a b c d", "")]) == Score(1.0, 0.5)
    assert score([("a b c d", "")]).f1 == 0


def test_segments_are_found_across_line_breaks() -> None:
    found = score_segments([(["one two", "gone"], ["menu", "three"], "zero one\n two three")])
    assert found == Score(0.5, 0.5)


@pytest.mark.parametrize("make", [*FRAMES, *FORMS], ids=lambda make: make.__name__)
def test_a_frame_holds_the_article_and_more(make) -> None:  # type: ignore[no-untyped-def]
    html = make(ARTICLE, AROUND)
    assert all(text in html for text in (ARTICLE.title, *PARAGRAPHS))
    assert "resi" in extract_text(html, "resiliparse-all").lower()


def test_plain_text_has_the_articles_signature() -> None:
    assert DEFAULT.signature(plain(ARTICLE), b"").verifier == DEFAULT.signature(ARTICLE.text, b"").verifier


def test_pairs_of_one_article_and_of_two_are_told_apart() -> None:
    same = [ARTICLE.text] * (len(FRAMES) + 1)
    other = [OTHER.text] * len(FRAMES) + [ARTICLE.text]
    found = matches([same, other])
    assert (found.frames, found.of_frames) == (12, 12)
    assert (found.forms, found.of_forms) == (4, 8)
    assert found.false == len(same)


def test_every_family_makes_a_page_of_any_size_and_no_two_are_alike() -> None:
    small = [family(2_000) for family in FAMILIES.values()]
    assert len(FAMILIES) >= 160
    assert len(set(small)) == len(FAMILIES)
    assert all(0 < len(page) < 30_000 for page in small)
    assert [len(FAMILIES["sentences"](size)) for size in SIZES] == pytest.approx(SIZES, rel=0.01)


def test_a_hostile_page_is_read_or_refused_and_its_cost_told() -> None:
    assert cost("resiliparse-main", "sentences in paragraphs", 5_000).refused == ""
    assert "markup limit" in cost("resiliparse-main", "<div> never closed", 500_000).refused


def test_each_mutation_changes_pages_and_the_same_numbers_give_the_same() -> None:
    page = read_pages()[0]["html"]
    for mutation in MUTATIONS:
        assert sum(mutation(page, Random(seed)) != page for seed in range(20)) >= 10, mutation
    assert mutated(page, Random(7)) == mutated(page, Random(7))
    assert as_bytes(page, Random(7)) == as_bytes(page, Random(7))


def test_damaged_pages_have_one_signature_whoever_makes_it() -> None:
    pages = [page["html"] for page in read_pages() if len(page["html"]) < 12_000]
    read = 0
    for seed in range(120):
        random = Random(seed)
        page = as_bytes(mutated(random.choice(pages), random), random)
        try:
            text = extract_text(decode(page).text, DEFAULT.extractor)
        except PageError:
            continue
        read += 1
        assert DEFAULT.signature(text, page) == DEFAULT.signature_in_numpy(text, page), f"seed {seed}"
    assert read > 60


def test_damaged_and_hostile_pages_have_one_main_text_whoever_reads_them() -> None:
    pages = [page["html"] for page in read_pages() if len(page["html"]) < 12_000]
    damaged = (mutated(pages[seed % len(pages)], Random(seed)) for seed in range(150))
    for page in (*damaged, *(family(3_000) for family in FAMILIES.values())):
        shown = page.replace("\0", "").encode()
        assert main_text.read(shown) == main_text.read_in_python(shown), shown[:200]


def test_no_hostile_page_is_refused() -> None:
    assert [name for name in FAMILIES if cost("main-text", name, 20_000).refused] == []


def test_contenders_go_over_all_pages_and_the_limit_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "environment", _no_peers)
    monkeypatch.setattr(peers, "crates", _no_peers)
    said: list[str] = []
    pages = [make(ARTICLE, AROUND) for make in FRAMES]
    with contenders(pages, said.append) as found:
        passes = {name: go() for name, go in found.items()}
    assert sum("no network" in line for line in said) == 2
    assert all(len(each.texts) == len(pages) for each in passes.values())
    assert passes[LIMIT].texts == [""] * len(pages)
    assert PARAGRAPHS[0] in passes["resiliparse-main"].texts[0]


def _no_peers(progress: object) -> Path:
    raise peers.PeerError("no network")


def test_the_command_scores_test_pages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "environment", _no_peers)
    monkeypatch.setattr(peers, "crates", _no_peers)
    rows = [{"html": FRAMES[0](ARTICLE, AROUND), "main": ARTICLE.text, "set": which} for which in ("test", "train")]
    path = tmp_path / "marked.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert len(labelled.Labelled.read(path).rows) == 1
    done = CliRunner().invoke(main, ["--labelled", str(path), "--only", "labelled", "--rounds", "1"])
    assert done.exit_code == 0, done.output
    assert "### marked: 1 pages" in done.output
    scores = dict(line.split(" | ")[:2] for line in done.output.splitlines() if line.startswith("| "))
    assert float(scores["| resiliparse-main"]) > 0.9
    assert scores[f"| {LIMIT}"] == ""


def test_segments_score_pages_without_a_whole_text() -> None:
    rows = [{"html": "", "with": ["a b"], "without": ["c"]}]
    assert labelled.Labelled("x", rows).score(["a b"]) == Score(1.0, 1.0)


def test_the_text_that_a_picture_marks_ends_no_script() -> None:
    page = pictures.marked("<p>x</p>", "a </script> b\n“c”")
    assert page.count("</script>") == 1
    assert '"a<\\/script>b\\u201cc\\u201d"' in page


def test_pictures_need_a_browser_and_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(pictures.main, [str(tmp_path)])
    assert done.exit_code == 1
    assert "apt-get install chromium" in done.output
