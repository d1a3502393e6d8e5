"""The native kernel beside the NumPy path: every signature is the same, bit for bit."""

import io
import json
import pickle
import shutil
import unicodedata
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from simhash import native
from simhash.features import normalisation, segment
from simhash.reading.extract import extract_text
from simhash.signature.fingerprint import fingerprint
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import DEFAULT, DEFAULT_1, LOOSE, PROFILES, Profile, Weights, profile

SAMPLE = Path(__file__).parents[2] / "samples" / "pages.jsonl.zst"
LOW = replace(DEFAULT, min_features=1)
LOW_1 = replace(DEFAULT_1, min_features=1)
PIECE = segment.PIECE_CHARACTERS

marks = st.sampled_from(
    "\u0301\u0327\u0338\u3099\u05b0\u094d\u0e48\U0001d165\u1161\u11a8\u200d\ufe0f\U000e0100\u064e\u0654"
)
usual = st.sampled_from(
    "aB 1\n,.éÉß\u0130\u212b\ufb03\u1e9e\ufdfa漢字カが。\u3000ｶﾞ가ㄱᄀ각สวั\ud83d\ude00\u2028\x1c\x85"
    "\u00ad\u200f\u0627\u0623\u0629\u06cc\ufe70"
)
any_text = st.text(st.one_of(st.characters(codec=None), usual, marks), max_size=80)
words = st.lists(
    st.sampled_from(["one ", "Two, ", "漢字。 ", "かな", "สวัส ", "가나 ", "\u00a0\n", "\ufb03" * 9, "\ud800"])
)
texts = st.one_of(any_text, words.map("".join))


@pytest.fixture(scope="module", autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    """Without Rust there is no kernel to test; with it, a kernel that is missing is a failure."""
    reason = native.absence()
    if reason and shutil.which("cargo"):
        pytest.fail(f"cargo is here, but the kernel is not: {reason}; install again (pip install --editable .)")
    if reason:
        pytest.skip(f"no native kernel and no cargo to build it: {reason}")


def by_kernel(recipe: Profile, text: str) -> object:
    """The signature, certainly not by NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Profile, "signature_in_numpy")
        return recipe.signature(text, b"raw", "a title")


def agree(recipe: Profile, text: str) -> bool:
    """Whether kernel and NumPy give one signature."""
    return by_kernel(recipe, text) == recipe.signature_in_numpy(text, b"raw", "a title")


def sample() -> Iterator[str]:
    """The bundled pages' main texts."""
    with SAMPLE.open("rb") as packed:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8"):
            page = json.loads(line)
            yield extract_text(page["html"]) if "html" in page else page["text"]


@pytest.mark.slow
def test_every_page_of_the_sample_has_one_signature() -> None:
    pages = list(sample())
    assert len(pages) > 100
    for recipe in (DEFAULT, DEFAULT_1, LOOSE):
        assert [text[:80] for text in pages if not agree(recipe, text)] == []


@given(texts)
def test_any_text_has_one_signature(text: str) -> None:
    assert agree(LOW, text)
    assert agree(LOW_1, text)
    assert agree(DEFAULT, text)


@given(texts, st.integers(1, 40))
def test_a_text_of_many_pieces_has_one_signature(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", size)
        patch.setattr("simhash.features.schemes.PIECE_CHARACTERS", size)
        assert agree(LOW, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t\u3000",
        "a",
        "漢",
        "one two three four",
        "word, " * 40_000,
        "漢字かな。" * 40_000,
        "a" * (PIECE + 5) + " b",
        "漢" * (2 * PIECE + 5),
        ("x" + "\u0301" * 499) * (PIECE // 400) + "y",
        "\ufdfa" * PIECE,
        "\ufb03" * (PIECE - 1),
        ("x" + "\ufb03" * 30_000 + " ") * 3,
        " " * (PIECE + 5) + "x" + " " * PIECE + "y",
        "é " * PIECE,
    ],
    ids=lambda text: f"{text[:4]!a}-{len(text)}",
)
def test_empty_tiny_and_long_texts_have_one_signature(text: str) -> None:
    assert agree(LOW, text)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [LOW, LOW_1], ids=lambda recipe: recipe.label)
@pytest.mark.parametrize("spaced", [True, False])
def test_every_character_has_one_form(spaced: bool, recipe: Profile) -> None:
    """Digests are of the whole normalised text, so equal ones mean equal forms."""
    joiner = " " if spaced else ""
    for start in range(0, 0x110000, 0x1000):
        every = map(chr, range(start, start + 0x1000))
        assert agree(recipe, joiner.join(every)), f"U+{start:04X} and up"


def test_what_is_not_looked_at_for_characters_that_look_back_has_none() -> None:
    looking_back = set(normalisation.contextual(LOW.normalisation))
    for i in (*range(segment.IDEOGRAPHS, normalisation.KNOWN), *range(0xAC00, 0xD780)):
        first = unicodedata.normalize("NFKD", chr(i))[0]
        assert not unicodedata.combining(first), f"U+{i:04X}"
        assert ord(first) not in looking_back, f"U+{i:04X}"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [LOW, LOW_1], ids=lambda recipe: recipe.label)
def test_characters_that_do_not_look_back_fold_the_same_next_to_any_other(recipe: Profile) -> None:
    looking_back = set(normalisation.contextual(recipe.normalisation))
    known = [i for i in range(0x40000) if i not in looking_back and not 0xD800 <= i < 0xE000]
    assert {ord(c) for c in "éÉßﬃ가漢ｶ😀"} < set(known)
    assert {0x301, 0x3099, 0xFF9E, 0x1161, 0x11A8} < looking_back
    for apart in (1, 7, 4093):
        turned = known[apart:] + known[:apart]
        for start in range(0, len(known), 0x4000):
            pairs = zip(known[start : start + 0x4000], turned[start : start + 0x4000], strict=True)
            assert agree(recipe, "".join(chr(a) + chr(b) for a, b in pairs))


@given(
    text=words.map("".join),
    bits=st.sampled_from([8, 17, 32, 64]),
    zero_sum=st.integers(0, 1),
    weights=st.sampled_from([Weights("one"), Weights("count"), Weights("count", cap=3)]),
    sketch=st.builds(
        MinHashSketch,
        n=st.integers(1, 5),
        bins=st.sampled_from([64, 128, 1024]),
        bands=st.integers(0, 2),
        rows=st.integers(1, 4),
        fold=st.integers(1, 3),
    ),
)
def test_other_recipes_of_the_kind_have_one_signature(
    text: str, bits: int, zero_sum: int, weights: Weights, sketch: MinHashSketch
) -> None:
    recipe = replace(LOW, bits=bits, zero_sum=zero_sum, weights=weights, verifier=sketch, verifier_reach=9, reach=3)
    assert agree(recipe, text)


@pytest.mark.parametrize("name", [name for name in PROFILES if not profile(name).for_kernel])
def test_other_profiles_are_left_to_numpy(name: str) -> None:
    with pytest.raises(AttributeError, match="signature_in_numpy"):
        by_kernel(profile(name), "some text")


def test_a_used_profile_goes_to_another_process_as_before() -> None:
    assert by_kernel(DEFAULT, "text")
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT


def test_threads_share_a_kernel() -> None:
    pages = ["".join(f"word{i * j} 漢字 " for i in range(300)) for j in range(40)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: DEFAULT.signature(text, b""), pages))
    assert found == [DEFAULT.signature_in_numpy(text, b"") for text in pages]


@given(st.lists(st.sampled_from(["", "a", "word", "漢字", "é" * 40]) | st.text(max_size=9), max_size=300))
def test_words_added_up_natively_are_the_simhash_of_their_counts(some: list[str]) -> None:
    some = [word.encode("utf-8", "replace").decode() for word in some]
    added = import_module("simhash._native").Words(some)
    expected = fingerprint({word: float(count) for word, count in Counter(some).items()})
    assert added.simhash() == (expected or 0)


def test_with_the_kernel_there_is_no_reason_for_its_absence() -> None:
    assert native.absence() is None
    assert native.describe() == "native kernel"
