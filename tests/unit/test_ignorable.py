"""What the normalisation `folded` drops, and which letters it takes for one another."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.features.normalisation import (
    ARABIC_LETTERS,
    ARABIC_MARKS,
    DEFAULT_IGNORABLE,
    TATWEEL,
    normalise,
    points,
    replacements,
)

ARABIC_BLOCKS = (range(0x600, 0x700), range(0x750, 0x780), range(0x870, 0x900))
SILENT = [chr(i) for i in points((*DEFAULT_IGNORABLE, *ARABIC_MARKS))]
texts = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("e\u0301\u0627\u0653\u06d5\u0654 漢\ufe81\uff76\uff9e"))
)


def folded(text: str) -> str:
    return normalise(text, "folded")


@given(texts, st.lists(st.tuples(st.integers(0, 99), st.sampled_from(SILENT)), max_size=9))
def test_silent_characters_anywhere_change_nothing(text: str, strewn: list[tuple[int, str]]) -> None:
    characters = list(text)
    for place, character in strewn:
        characters.insert(place % (len(characters) + 1), character)
    assert folded("".join(characters)) == folded(text)


@given(texts)
def test_nothing_else_is_dropped_and_other_letters_stay(text: str) -> None:
    kept = "".join(c for c in text if c not in replacements())
    assert folded(kept) == unicodedata.normalize("NFKC", kept).casefold()


def test_nothing_silent_is_left_of_any_character() -> None:
    left = set(SILENT) | set(ARABIC_LETTERS)
    every = "".join(chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000)
    assert left.isdisjoint(folded(every))


def test_one_character_and_the_several_that_mean_it_fold_alike() -> None:
    for i in (*range(0x600, 0x900), *range(0xFB50, 0xFF00)):
        for form in ("NFD", "NFC", "NFKD", "NFKC"):
            assert folded(unicodedata.normalize(form, chr(i))) == folded(chr(i)), f"U+{i:04X} {form}"


def test_the_default_ignorable_ones_are_those_of_the_properties_that_they_derive_from() -> None:
    """UAX #44: Cf, variation selectors and a list of others, but neither annotations nor signs that span others."""
    told = set(points(DEFAULT_IGNORABLE))
    assert len(told) == 4174
    formatting = {i for i in range(0x110000) if unicodedata.category(chr(i)) == "Cf"}
    shown = {"ARABIC", "SYRIAC", "KAITHI", "INTERLINEAR", "EGYPTIAN"}
    assert {unicodedata.name(chr(i)).split()[0] for i in formatting - told} == shown
    assert 0x061C in told
    selectors = {i for i in range(0x110000) if "VARIATION SELECTOR" in unicodedata.name(chr(i), "")}
    assert selectors <= told
    others = {unicodedata.name(chr(i)) for i in told - formatting - selectors if unicodedata.category(chr(i)) != "Cn"}
    assert others == {
        "COMBINING GRAPHEME JOINER",
        "HANGUL CHOSEONG FILLER",
        "HANGUL JUNGSEONG FILLER",
        "KHMER VOWEL INHERENT AQ",
        "KHMER VOWEL INHERENT AA",
        "HANGUL FILLER",
        "HALFWIDTH HANGUL FILLER",
    }


def test_the_arabic_marks_are_all_nonspacing_ones_of_its_blocks_and_tatweel() -> None:
    marks = {i for block in ARABIC_BLOCKS for i in block if unicodedata.category(chr(i)) == "Mn"}
    assert set(points(ARABIC_MARKS)) == marks | {TATWEEL}
    assert unicodedata.name(chr(TATWEEL)) == "ARABIC TATWEEL"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("co\u00adoper\u00adate", "cooperate"),
        ("zero\u200bwidth \ufeff", "zerowidth "),
        ("\u202babc\u202c\u200f", "abc"),
        ("\u0645\u064f\u062f\u064e\u0631\u0651\u0650\u0633\u064e\u0629", "\u0645\u062f\u0631\u0633\u0647"),
        ("\u0645\u062d\u0640\u0640\u0645\u062f", "\u0645\u062d\u0645\u062f"),
        (
            "\u0623\u062d\u0645\u062f \u0625\u0644\u0649 \u0622\u062e\u0631",
            "\u0627\u062d\u0645\u062f \u0627\u0644\u064a \u0627\u062e\u0631",
        ),
        ("\u06a9\u062a\u0627\u0628 \u06cc\u06a9", "\u0643\u062a\u0627\u0628 \u064a\u0643"),
        ("\ufefb", "\u0644\u0627"),
    ],
)
def test_spellings_that_say_the_same_are_one(a: str, b: str) -> None:
    assert folded(a) == b
