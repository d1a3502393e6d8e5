"""Normalisation and the feature schemes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import ProfileError
from simhash.features import segment
from simhash.features.normalisation import normalise, normalised_parts
from simhash.features.schemes import CharacterGrams, ScriptRuns, Words

any_text = st.text(st.characters(codec=None))


def of(scheme: ScriptRuns | Words | CharacterGrams, text: str) -> list[str]:
    return [feature for features in scheme(normalise(text)) for feature in features]


@given(st.text())
def test_normalising_is_nfkc_then_case_folding(text: str) -> None:
    assert normalise(text) == unicodedata.normalize("NFKC", text).casefold()


@pytest.mark.slow
def test_characters_replaced_beforehand_leave_nfkc_as_it_is() -> None:
    for character in map(chr, range(0x110000)):
        if not "\ud800" <= character <= "\udfff":
            # Before a combining mark and after a letter: where composition could see a difference.
            text = f"a{character}\u0301\uff0c\u00a0"
            assert normalise(text) == unicodedata.normalize("NFKC", text).casefold()


@given(any_text)
def test_a_normalised_text_can_be_encoded(text: str) -> None:
    normalise(text).encode()
    normalise(text, "none").encode()


@given(st.lists(st.text(max_size=4).map(lambda word: f"{word} "), max_size=20), st.integers(5, 30))
def test_a_text_normalised_in_parts_is_the_normalised_text(words: list[str], size: int) -> None:
    text = "".join(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simhash.features.normalisation.PIECE_CHARACTERS", size)
        parts = list(normalised_parts(text))
    assert "".join(parts) == normalise(text)


def test_a_text_without_spaces_is_cut_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simhash.features.normalisation.PIECE_CHARACTERS", 3)
    assert list(normalised_parts("ABCDEFG")) == ["abc", "def", "g"]
    assert list(normalised_parts("")) == [""]


def test_lone_surrogates_become_replacement_characters_and_pairs_what_they_mean() -> None:
    assert normalise("a\ud800b\udfff") == "a\ufffdb\ufffd"
    assert normalise("\ud83d\ude00") == "😀"
    assert normalise("Ａ\ud800", "none") == "Ａ\ufffd"


def test_features_are_chosen_for_each_run_of_a_script() -> None:
    text = "Hello, WORLD 42! 我来到北京清华大学。ひらがな カタ ラ 안녕하세요 สวัสดี x1"
    spaced = ["hello", "world", "42", "안녕하세요", "x1"]
    han = ["我", "来到", "北京", "清华大学"]
    pairs = ["ひら", "らが", "がな", "カタ", "ラ", "สว", "วั", "ัส", "สด", "ดี"]
    assert sorted(of(ScriptRuns(), text)) == sorted([*spaced, *han, *pairs])


def test_scripts_without_a_space_between_them_are_told_apart() -> None:
    assert of(ScriptRuns(), "iPhone手机123号") == ["iphone", "123", "手机", "号"]


def test_combining_marks_stay_in_their_word() -> None:
    assert of(ScriptRuns(), "हिन्दी की किताब") == ["हिन्दी", "की", "किताब"]
    assert of(ScriptRuns(), "\u0301\u0302 e\u0323x") == [unicodedata.normalize("NFKC", "e\u0323x")]


@given(st.lists(st.sampled_from(["word ", "漢字 ", "かな ", "สวัส ", "x1 "]), max_size=60), st.integers(6, 40))
def test_a_long_text_has_the_features_of_its_pieces(parts: list[str], size: int) -> None:
    text = "".join(parts)
    whole = sorted(of(ScriptRuns(), text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", size)
        assert sorted(of(ScriptRuns(), text)) == whole


def test_words_keep_the_order_of_the_text() -> None:
    text = "One 我来到北京 two สวัส かな 3"
    assert of(Words(), text) == ["one", "我", "来到", "北京", "two", "ส", "ว", "ั", "ส", "か", "な", "3"]


def test_super_tokens_are_tuples_of_neighbouring_words() -> None:
    assert of(Words(3), "a b c d") == ["a\x1fb\x1fc", "b\x1fc\x1fd"]
    assert of(Words(3), "a b") == ["a\x1fb"]
    assert of(Words(3), " ") == []


def test_super_tokens_reach_over_the_seams_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a bc d ef g"
    whole = of(Words(2), text)
    monkeypatch.setattr(segment, "PIECE_CHARACTERS", 3)
    assert of(Words(2), text) == whole


def test_character_grams_slide_over_the_text_with_its_white_space_collapsed() -> None:
    assert of(CharacterGrams(3), "ab \n cd") == ["ab ", "b c", " cd"]
    assert of(CharacterGrams(3), "ab") == ["ab"]
    assert of(CharacterGrams(3), " ") == []


@given(st.text(max_size=30), st.integers(1, 5), st.integers(1, 7))
def test_character_grams_do_not_depend_on_their_slices(text: str, n: int, size: int) -> None:
    whole = of(CharacterGrams(n), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simhash.features.normalisation.PIECE_CHARACTERS", size)
        assert of(CharacterGrams(n), text) == whole


@given(any_text)
def test_every_scheme_takes_any_text(text: str) -> None:
    for scheme in (ScriptRuns(), Words(), Words(2), CharacterGrams(1), CharacterGrams(5)):
        assert all(of(scheme, text))


@pytest.mark.parametrize("scheme", [Words, CharacterGrams])
def test_sizes_below_one_are_refused(scheme: type[Words] | type[CharacterGrams]) -> None:
    with pytest.raises(ProfileError, match="at least 1, not 0"):
        scheme(0)
