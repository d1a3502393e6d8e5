"""Profiles of one's own from TOML files: what they say is what comes out, and what cannot be is refused by name."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simhash.errors import ProfileError
from simhash.features.keywords import Keywords, UserWord
from simhash.features.schemes import CharacterGrams, ScriptRuns, Words
from simhash.features.shingles import TokenShingles
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profile_file import KEYS, read_profile
from simhash.signature.profiles import DEFAULT, SEGMENTED, Profile, Weights, profile
from worker.errors import SettingsError
from worker.index.configured import configured_design, configured_profile
from worker.settings import load

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "profiles").glob("*.toml"))
TEXT = "搜索引擎在互联网上抓取网页时，会遇到大量内容近似重复的页面，它们的海明距离很小。 It comes again. " * 5


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_the_default_under_its_own_name(tmp_path: Path) -> None:
    assert read_profile(written(tmp_path, "")) == replace(DEFAULT, name="mine", version=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k = 5\nreach = 9", replace(DEFAULT, k=5, reach=9)),
        ('base = "segmented"\nextractor = "trafilatura"', replace(SEGMENTED, extractor="trafilatura")),
        ('base = "segmented"\nhash = "sha1"\nbits = 128', replace(SEGMENTED, hash="sha1", bits=128)),
        ('[features]\nis = "script-runs"', replace(DEFAULT, features=ScriptRuns())),
        ('[features]\nis = "words"\nn = 2', replace(DEFAULT, features=Words(2))),
        ('[features]\nis = "character-grams"', replace(DEFAULT, features=CharacterGrams(4))),
        ("zero_sum = 1\nmin_features = 3\nversion = 7", replace(DEFAULT, zero_sum=1, min_features=3, version=7)),
        ('[weights]\nby = "one"', replace(DEFAULT, weights=Weights("one"))),
        (
            '[features]\nis = "keywords"\nmethod = "textrank"\ntop = "all"',
            replace(DEFAULT, features=Keywords("textrank", None), weights=Weights("score")),
        ),
        (
            'base = "jieba-keywords"\n[features]\nis = "words"',
            replace(profile("jieba-keywords"), features=Words(), weights=Weights("count")),
        ),
        (
            '[weights]\nby = "score"\nrounding = "up"\ncap = 9\n[features]\nis = "keywords"\nper_characters = 12',
            replace(DEFAULT, features=Keywords(per_characters=12), weights=Weights("score", 9, "up")),
        ),
        (
            '[verifier]\nis = "minhash"\nreach = 18\nbands = 2',
            replace(DEFAULT, verifier=MinHashSketch(bands=2), verifier_reach=18),
        ),
        (
            '[verifier]\nis = "shingles"\nn = 3\nreach = 12',
            replace(DEFAULT, verifier=TokenShingles(3), verifier_reach=12),
        ),
        ('[verifier]\nis = "none"', replace(DEFAULT, verifier=None, verifier_reach=None, reach=3)),
        ('reach = 6\n[verifier]\nis = "none"', replace(DEFAULT, verifier=None, verifier_reach=None, reach=6)),
    ],
)
def test_what_a_file_says_is_what_differs(tmp_path: Path, text: str, expected: Profile) -> None:
    assert read_profile(written(tmp_path, text)) == replace(
        expected, name="mine", version=7 if "version" in text else 1
    )


@pytest.mark.slow
def test_word_lists_stand_beside_the_file(tmp_path: Path) -> None:
    written(tmp_path, "The\n的\n", "stop.txt")
    written(tmp_path, "海明距离 20 n\n", "words.txt")
    path = written(tmp_path, '[features]\nis = "keywords"\nstop_words = "stop.txt"\nuser_words = "words.txt"')
    expected = Keywords(stop_words=("the", "的"), user_words=(UserWord("海明距离", 20, "n"),))
    assert read_profile(path).features == expected
    assert "海明距离" in expected("两个指纹的海明距离很小")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k = ", "Invalid value"),
        ("reech = 4", "unknown field `reech`"),
        ("[features]\nis = 'words'\nsize = 2", r"unknown field `size` - at `\$.features`"),
        ("[features]\nis = 'wordz'", "Invalid value 'wordz'"),
        ("k = '3'", r"Expected `int`, got `str` - at `\$.k`"),
        ("[weights]\nby = 'tf'", r"Invalid enum value 'tf' - at `\$.weights.by`"),
        ("k = 15", r"k \(15\) <= reach \(14\)"),
        ('[verifier]\nis = "minhash"\nreach = -1', "its reach is one of 0 to 343"),
        ('[verifier]\nis = "minhash"\nreach = 344', "its reach is one of 0 to 343"),
        ('[verifier]\nis = "minhash"\nreach = 18\nbands = -1', "0 bands or more, not -1"),
        ("min_features = 100000000000000000000000", "(min_features is at most|expected `int`)"),
        ('[weights]\nby = "count"\ncap = 10000000000', "a cap is at most"),
        ("bits = 128", "hash xxh3_64 has 64 bits, the fingerprint wants 128"),
        ("base = 'segmented'\nhash = 'crc32'", "crc32 has 32 bits"),
        ("base = 'nothing'", "no profile is named 'nothing'"),
        ("name = 'default'", "default is the name of a profile that ships"),
        ("[features]\nis = 'keywords'\nstop_words = 'gone.txt'", "gone.txt: No such file"),
    ],
)
def test_what_cannot_be_is_refused_naming_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=f"profile: .*({re.escape(str(path))}.*)?{message}"):
        configured_profile(load({"profile": str(path)}))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"gone\.toml: No such file"):
        read_profile(tmp_path / "gone.toml")


def test_an_extractor_is_asked_for_before_any_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, 'extractor = "trafilatura"')
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(SettingsError, match=r"pip install 'simhash-dedup\[trafilatura\]'"):
        configured_profile(load({"profile": str(path)}))


@pytest.mark.parametrize("k", range(8))
@pytest.mark.parametrize("documents", [1_000_000, 50_000_000])
def test_auto_gives_every_k_tables_that_find_all_within_it(tmp_path: Path, k: int, documents: int) -> None:
    mine = read_profile(written(tmp_path, f"k = {k}"))
    found = configured_design(load({"documents": documents}), mine)
    assert found.k >= k
    assert len(found.tables) <= 28


def test_tables_that_do_not_reach_k_are_refused_naming_some_that_do(tmp_path: Path) -> None:
    mine = read_profile(written(tmp_path, "k = 5"))
    with pytest.raises(SettingsError, match=r"10 guarantees 3 bits, profile mine needs 5: 2\(4c2\) does"):
        configured_design(load({"design": "10"}), mine)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_work_and_travel_to_other_processes(path: Path) -> None:
    made = read_profile(path)
    signature = made.signature(TEXT, b"")
    assert signature.fingerprint is not None
    assert pickle.loads(pickle.dumps(made)).signature(TEXT, b"") == signature
    assert json.loads(json.dumps(made.recipe())) == made.recipe()


def test_every_key_and_example_stands_in_the_docs() -> None:
    text = (DOCS / "profiles.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in text and f"`[{key}]`" not in text] == []
    assert [path.name for path in EXAMPLES if f"(profiles/{path.name})" not in text] == []


@pytest.mark.slow
def test_a_file_run_judges_by_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, 'min_features = 1\n[features]\nis = "keywords"\ntop = 5\n[verifier]\nis = "none"')
    pages = "".join(json.dumps({"url": f"http://x/{n}", "text": TEXT + "。" * n}) + "\n" for n in range(2))
    written(tmp_path, pages, "pages.jsonl")
    command = [sys.executable, "-m", "worker", "file", "pages.jsonl", "--out", "-", "--profile", str(path)]
    command += ["--quiet", "--page-deadline", "120s"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": ":".join(["", *sys.path])}, capture_output=True)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(v["verdict"], v["profile"], v["features"]) for v in verdicts] == [
        ("unique", "mine/1", 5),
        ("duplicate", "mine/1", 5),
    ], done.stderr
