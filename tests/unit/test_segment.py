"""Kinds of characters, their runs, and the words of Han."""

import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.features import segment
from simhash.features.segment import HAN, HANGUL, KANA, LETTER, MARK, UNSPACED, UNSPACED_MARK, Piece, require_jieba

mixed_text = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("aé1_ \n.,'\u0301\u0e01\u0e31 กา가힣漢字々〇㐀\U00020000カなー・\u1000\u102c\ufe0f"),
    ),
    max_size=40,
)
han_text = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        ("azß1٣Яγهक", LETTER),
        ("\u0301\u093e\u0652", MARK),
        ("가힣", HANGUL),
        ("漢々〇㐀\u9fff\U00020000\U00031350", HAN),
        ("かカー", KANA),
        ("กຂខက๑", UNSPACED),
        ("\u0e31\u102c\u17d2", UNSPACED_MARK),
        (" _.,。、『😀\ufe0f\U000e0100\x00\ud800\u4dc0", 0),
    ],
)
def test_each_character_has_its_kind(characters: str, kind: int) -> None:
    assert {segment.kinds_table()[ord(character)] for character in characters} == {kind}


def test_letters_and_digits_are_what_python_takes_for_them_outside_of_han() -> None:
    table = segment.kinds_table()
    letters = LETTER | HANGUL | HAN | KANA | UNSPACED
    wrong = [i for i in range(0x110000) if chr(i).isalnum() and not table[i] & letters]
    assert wrong == []
    marks = MARK | UNSPACED_MARK
    assert all(unicodedata.category(chr(i))[0] == "M" for i in range(0x110000) if table[i] & marks)
    without = {i for i in range(0xE0000) if unicodedata.category(chr(i))[0] == "M" and not table[i] & (marks | KANA)}
    assert without == {*range(0xFE00, 0xFE10)}, "variation selectors"


@given(mixed_text, st.sampled_from([(LETTER | HANGUL, MARK), (KANA, 0), (UNSPACED, UNSPACED_MARK), (HAN, 0)]))
def test_runs_are_those_of_a_loop_over_the_characters(text: str, kinds_and_marks: tuple[int, int]) -> None:
    kinds, marks = kinds_and_marks
    table = segment.kinds_table()
    expected = [""]
    for character in text:
        kind = int(table[ord(character)])
        if kind & kinds or (kind & marks and expected[-1]):
            expected[-1] += character
        elif expected[-1]:
            expected.append("")
    assert Piece(text).runs(kinds, marks) == [run for run in expected if run]


@given(mixed_text, st.integers(1, 12))
def test_pieces_are_the_text_cut_after_separators(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", size)
        cut = [piece.text for piece in segment.pieces(text)]
    assert "".join(cut) == text
    assert all(len(piece) <= size for piece in cut)
    table = segment.kinds_table()
    for piece in cut[:-1]:
        whole_run = len(piece) == size and all(table[ord(character)] for character in piece)
        assert whole_run or table[ord(piece[-1])] == 0


@pytest.mark.parametrize("cuts", segment.SAMPLE)
def test_jieba_cuts_the_sample_as_recorded(cuts: str) -> None:
    assert segment.jieba_cut(cuts.replace("/", "")) == cuts.split("/")


@given(st.lists(han_text, max_size=4))
def test_rjieba_cuts_any_han_as_jieba_does(runs: list[str]) -> None:
    fast = segment.rjieba_cut()
    assert fast is not None, "rjieba is not installed, or cuts the sample otherwise"
    text = " ".join(runs)
    assert fast(text) == segment.jieba_cut(text)


@given(mixed_text)
def test_each_run_of_han_is_cut_as_if_nothing_stood_around_it(text: str) -> None:
    runs = Piece(text).runs(HAN)
    assert Piece(text).han_words() == [word for run in runs for word in segment.han_words(run)]
    assert "".join(Piece(text).han_words()) == "".join(runs)


def test_han_that_jieba_does_not_know_are_words_by_themselves() -> None:
    assert segment.han_words("人々㐀\U00020000北京大学\u9ffa") == [
        "人",
        "々",
        "㐀",
        "\U00020000",
        "北京大学",
        "\u9ffa",
    ]


def test_a_run_of_han_without_end_is_cut_in_pieces() -> None:
    assert "".join(segment.han_words("爨" * 100_000)) == "爨" * 100_000


def test_rjieba_is_left_alone_where_it_cuts_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SAMPLE", ("我/来到/北京清华大学",))
    assert segment.rjieba_cut() is None


def test_jieba_works_where_rjieba_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    segment._cutter.cache_clear()
    try:
        assert segment.segmenter() == "jieba"
        assert segment.han_words("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    finally:
        segment._cutter.cache_clear()


@pytest.mark.slow
def test_jieba_is_silent_writes_no_cache_and_is_not_loaded_before_it_is_needed(tmp_path: Path) -> None:
    program = (
        "import sys, simhash.signature.profiles as p\n"
        "assert not {'jieba', 'rjieba'} & set(sys.modules)\n"
        "from simhash.features import segment\n"
        "assert segment.jieba_cut('我来到北京清华大学') == ['我', '来到', '北京', '清华大学']\n"
        "assert p.profile('jieba-keywords').signature('我来到北京清华大学', b'').features == 3\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_what_python_says_of_jiebas_patterns_is_not_shown() -> None:
    """From 3.12 on it warns of them when it compiles them."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SyntaxWarning)
        require_jieba()
        for place in ("jieba/posseg/__init__.py", "jieba/__init__.py", "mine/jiebas.py"):
            warnings.warn_explicit("invalid escape sequence", SyntaxWarning, f"/somewhere/{place}", 44)
    assert [each.filename for each in told] == ["/somewhere/mine/jiebas.py"]
