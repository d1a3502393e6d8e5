"""The library's front door: what people import, what it refuses and how it says so, and what importing it takes."""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import simhash
from simhash import (
    Duplicate,
    MemoryIndex,
    Retention,
    Unique,
    distance,
    fingerprint,
    main_text,
    near,
    profile,
)
from simhash.errors import IndexMismatch, PageError, ProfileError, WidthError
from simhash.features import segment
from simhash.signature.profiles import DEFAULT
from tests.texts import added_by_threads, story
from worker import __main__ as command

TEXT = (
    "A crawler meets the same page again and again: under another address, in another frame, with another date at its "
    "foot. What is compared here is the text, by a fingerprint of 64 bits that changes little when the text does."
)
CHANGED = TEXT.replace("at its foot", "at its end")
OTHER = "Something else altogether: how to bake bread from rye, water and salt, in an oven of stone, for two hours."
BEYOND_BMP = "\ud800"


def test_every_public_name_is_there_and_said():
    for name in simhash.__all__:
        assert getattr(simhash, name).__doc__ or name == "PROFILES", name
    assert set(simhash.__all__) <= set(dir(simhash))
    with pytest.raises(AttributeError, match="no attribute 'fingerprints'"):
        _ = simhash.fingerprints


def test_a_fingerprint_is_the_profiles():
    assert fingerprint(TEXT) == DEFAULT.signature(TEXT, b"").fingerprint
    longer, segmented = story(1), profile("segmented")
    assert fingerprint(longer, segmented) == segmented.signature(longer, b"").fingerprint is not None


def test_a_short_text_has_a_fingerprint_and_one_without_words_has_none():
    assert DEFAULT.signature("two words", b"").fingerprint is None
    assert isinstance(fingerprint("two words"), int)
    assert fingerprint("") is fingerprint(" \n -- ") is None


def test_distance_and_nearness_need_no_width():
    assert distance(0b1011, 0b0010) == 2
    assert near(0b1011, 0b0010)
    assert not near(0b1111, 0b0000)
    assert near(0b1111, 0b0000, k=4)
    assert distance(fingerprint(TEXT), fingerprint(CHANGED)) < distance(fingerprint(TEXT), fingerprint(OTHER))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fingerprint(TEXT.encode()), "a text is a str, not bytes: decode them first"),
        (lambda: fingerprint(None), "a text is a str, not None"),
        (lambda: fingerprint(12), "a text is a str, not int"),
        (lambda: DEFAULT.signature(b"", b""), "a text is a str, not bytes"),
        (lambda: profile("segmented").signature(None, b""), "a text is a str, not None"),
        (lambda: distance(None, 1), "None is no fingerprint: a text without words has none"),
        (lambda: near(1, TEXT), r"a fingerprint is an int, not str; a text's is `simhash.fingerprint\(text\)`"),
        (lambda: MemoryIndex().add("https://a.example/", TEXT.encode()), "a text is a str, not bytes"),
        (lambda: MemoryIndex().add("https://a.example/", None), "a text is a str, not None"),
        (lambda: MemoryIndex().add(b"https://a.example/", TEXT), "a URL is a str, not bytes"),
        (lambda: main_text(None), "a page is str or bytes, not None"),
        (lambda: fingerprint(TEXT, "default"), "a profile is a Profile, not 'default': .*profile"),
        (lambda: main_text(TEXT, profile=None), "a profile is a Profile, not None"),
        (lambda: MemoryIndex(profile="default"), "a profile is a Profile, not 'default'"),
    ],
)
def test_what_is_no_text_or_profile_is_refused_with_a_sentence(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("given", [-1, 1.5, "3", "1d"])
@pytest.mark.parametrize("name", ["max_documents", "max_age_ms"])
def test_what_nothing_can_be_kept_by_is_refused(name, given):
    with pytest.raises(ValueError, match=f"{name} is a whole number from 0 on, or None: not {given!r}"):
        Retention(**{name: given})


def test_a_fingerprint_too_wide_and_a_page_without_a_name_are_refused():
    with pytest.raises(WidthError):
        distance(1 << 64, 1)
    with pytest.raises(ValueError, match="needs a URL"):
        MemoryIndex().add(" ", TEXT)
    with pytest.raises(ValueError, match=r"no lone surrogates.*http://x/"):
        MemoryIndex().add("http://x/\ud800", "a text")


def test_an_index_takes_three_lines():
    index = MemoryIndex()
    assert index.add("https://a.example/", TEXT) == Unique(1)
    found = index.add("https://b.example/", CHANGED)
    assert isinstance(found, Duplicate)
    assert (found.match.url, found.distance) == (
        "https://a.example/",
        distance(fingerprint(TEXT), fingerprint(CHANGED)),
    )
    assert index.add("https://c.example/", OTHER) == Unique(2)
    assert index.documents() == 2


def test_a_page_that_is_handed_in_again_gets_its_first_answer():
    index = MemoryIndex()
    pages = [("https://a.example/", TEXT), ("https://b.example/", CHANGED), ("https://c.example/", OTHER)]
    first = index.add_many(pages)
    assert index.add_many(pages) == first
    assert index.documents() == 2


def test_an_index_of_another_profile_takes_that_profiles_texts_only():
    index = MemoryIndex(profile=profile("segmented"))
    assert index.spec.profile == profile("segmented").recipe()
    assert index.add("https://a.example/", TEXT) == Unique(1)
    index.profile = replace(DEFAULT, reach=5)
    with pytest.raises(IndexMismatch, match="made for another profile"):
        index.add("https://a.example/", TEXT)


def test_an_index_of_ones_own_forgets_what_it_is_told_to():
    index = MemoryIndex(retention=Retention(max_documents=1))
    index.add_many([("a", TEXT), ("b", OTHER)])
    assert index.add("c", TEXT) == Unique(3)


def test_of_a_text_that_many_threads_add_at_once_one_is_unique():
    texts = [story(seed, 40) for seed in range(1200)]
    answers = added_by_threads(index := MemoryIndex(), texts)
    assert all(sum(isinstance(answer, Unique) for answer in each) == 1 for each in answers)
    assert index.documents() == len(texts)


def test_any_text_can_be_added():
    assert MemoryIndex().add("a", BEYOND_BMP + TEXT) == Unique(1)


def test_the_main_text_of_a_page_is_its_article():
    page = f"<html><body><nav><a href=/>Home</a></nav><main><p>{TEXT}</p><p>{OTHER}</p></main></body></html>"
    assert TEXT in main_text(page)
    assert main_text(page.encode("utf-16")) == main_text(page)
    assert main_text("<p>caf\u00e9</p>".encode("latin-1"), "latin-1") == "café"
    with pytest.raises(PageError):
        main_text(bytes(range(256)) * 50)


def run(code, *paths):
    """A Python that sees these folders first."""
    setup = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    root = str(Path(simhash.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{setup}{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_importing_it_loads_neither_numpy_nor_redis_nor_jieba():
    told = run("import simhash; print(sorted({'numpy', 'redis', 'jieba', 'kafka', 'msgspec'} & set(sys.modules)))")
    assert told.stdout == "[]\n", told.stderr


@pytest.mark.slow
def test_a_fingerprint_and_an_index_in_memory_load_no_server_and_no_dictionary():
    wanted = "{'redis', 'jieba', 'kafka', 'click', 'resiliparse', 'pydantic'}"
    told = run(
        "from simhash import MemoryIndex, fingerprint\n"
        f"MemoryIndex().add('a', 'b'); fingerprint('a b'); print(sorted({wanted} & set(sys.modules)))"
    )
    assert told.stdout == "[]\n", told.stderr


def test_the_other_package_of_that_name_is_told_of_at_import(tmp_path):
    (tmp_path / "simhash-2.1.2.dist-info").mkdir()
    told = run("import simhash", tmp_path)
    assert told.returncode == 0
    assert "another package called `simhash` (1e0ng's) is installed" in told.stderr
    assert "pip uninstall simhash" in told.stderr
    assert run("import simhash").stderr == ""


def test_a_segmenter_that_is_not_installed_is_named_with_the_extra(monkeypatch):
    monkeypatch.setattr(segment, "find_spec", lambda name: None)
    with pytest.raises(ProfileError, match=r"pip install 'simhash-dedup\[jieba\]'"):
        segment.new_tokenizer()


def test_the_command_says_that_only_the_library_is_installed(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert "pip install 'simhash-dedup[worker]'" in capsys.readouterr().err


def test_the_command_says_that_the_other_package_lies_over_ours(tmp_path):
    (tmp_path / "simhash").mkdir()
    (tmp_path / "simhash" / "__init__.py").write_text("class Simhash: pass\n")
    told = run("from worker.__main__ import main; main()", tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.count("\n") == 1
    assert "pip uninstall simhash" in told.stderr


def test_the_other_packages_names_are_answered_by_ours():
    with warnings.catch_warnings(), pytest.raises(ImportError, match="1e0ng's package of the same name"):
        from simhash import Simhash  # noqa: F401
