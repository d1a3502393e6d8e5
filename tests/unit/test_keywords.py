"""jieba's keywords: scores, numbers, stop words and user words."""

import logging
import re
from pathlib import Path

import jieba
import jieba.analyse
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simhash.errors import ProfileError
from simhash.features.keywords import Keywords, UserWord, break_long_runs, read_stop_words, read_user_words

jieba.setLogLevel(logging.CRITICAL)

TEXT = "小明硕士毕业于中国科学院计算所，后在日本京都大学深造。The quick brown fox and the dog study 计算机科学。"


@pytest.mark.slow
def test_keywords_are_jiebas_own() -> None:
    assert list(Keywords(top=5)(TEXT).items()) == jieba.analyse.extract_tags(TEXT, topK=5, withWeight=True)
    assert list(Keywords("textrank", top=5)(TEXT).items()) == jieba.analyse.textrank(TEXT, topK=5, withWeight=True)


@settings(max_examples=30)
@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("我来到北京清华大学 abc，。")), max_size=60))
def test_keywords_of_any_text_are_jiebas_own(text: str) -> None:
    expected = jieba.analyse.extract_tags(text, topK=None, withWeight=True)
    assert list(Keywords(top=None)(text).items()) == expected
    Keywords("textrank")(text)


@pytest.mark.parametrize("text", ["", " ", "的", "the and of", "。，！", "a b c"])
def test_a_text_without_keywords_gives_none(text: str) -> None:
    assert Keywords()(text) == {}
    assert Keywords("textrank")(text) == {}


@pytest.mark.parametrize(("characters", "expected"), [(10, 3), (30, 3), (31, 4), (100, 10)])
def test_the_number_of_keywords_grows_with_the_text(characters: int, expected: int) -> None:
    assert Keywords(top=3, per_characters=10).wanted("字" * characters) == expected
    assert Keywords(top=3).wanted("字" * characters) == 3
    assert Keywords(top=None, per_characters=10).wanted("字" * characters) is None


@pytest.mark.slow
def test_stop_words_are_left_out_for_this_recipe_only() -> None:
    assert "中国科学院" in Keywords()(TEXT)
    assert "中国科学院" not in Keywords(stop_words=("中国科学院",))(TEXT)
    assert "毕业" not in Keywords("textrank", stop_words=("毕业",))(TEXT)
    assert "中国科学院" in Keywords()(TEXT)
    assert "中国科学院" not in jieba.analyse.default_tfidf.stop_words


@pytest.mark.slow
def test_user_words_are_kept_whole_for_this_recipe_only() -> None:
    text = "云计算所用的京都大学深造班很贵"
    words = (UserWord("深造班"), UserWord("云计算", 50_000, "n"))
    known = Keywords(user_words=words)(text)
    assert {"深造班", "云计算"} <= set(known)
    assert "云计算" in Keywords("textrank", user_words=words)("云计算平台和数据库系统")
    assert "云计算" not in Keywords("textrank")("云计算平台和数据库系统")
    assert "深造班" not in Keywords()(text)
    assert "深造班" not in jieba.analyse.extract_tags(text)


def test_cutting_first_and_joining_changes_what_is_cut() -> None:
    joined = "|".join(jieba.cut(TEXT))
    expected = jieba.analyse.extract_tags(joined, topK=10, withWeight=True)
    assert list(Keywords(top=10, cut_joined_by="|")(TEXT).items()) == expected


@pytest.mark.slow
@given(st.lists(st.sampled_from(["爨" * 200, "龑a", "b" * 3000, "。", " "]), max_size=12).map("".join))
@example("b" * 3000 + "爨" * 400 + "b" * 3000)
def test_runs_without_end_are_broken_before_jieba_sees_them(text: str) -> None:
    broken = break_long_runs(text)
    assert broken.replace("\n", "") == text
    assert not re.search("[\u4e00-\u9fd5]{257}|[\u4e00-\u9fd5a-z]{4097}", broken)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["爨龑靐齉爩麤鱻" * 2_000, "a" * 100_000])
def test_keywords_are_taken_from_broken_runs(text: str) -> None:
    scores = Keywords(top=None)(text)
    assert scores == Keywords(top=None)(break_long_runs(text))
    assert max(map(len, scores)) <= 4096


def test_a_stop_word_file_is_read_sorted_and_folded(tmp_path: Path) -> None:
    path = tmp_path / "stop.txt"
    path.write_text("\ufeffthe\nThe\n\n 的 \n", encoding="utf-8")
    assert read_stop_words(path) == ("the", "的")


@pytest.mark.slow
def test_a_user_dictionary_is_read_as_jieba_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "user.txt"
    path.write_text("创新办 3 i\n云计算 5\n凱特琳 nz\n台 中\n\n", encoding="utf-8")
    expected = (
        UserWord("创新办", 3, "i"),
        UserWord("云计算", 5),
        UserWord("凱特琳", None, "nz"),
        UserWord("台 中"),
    )
    assert read_user_words(path) == expected
    theirs = jieba.Tokenizer()
    with path.open("rb") as file:
        theirs.load_userdict(file)
    assert all(entry.word in theirs.FREQ for entry in expected)


def test_recipes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ProfileError, match="top must be at least 1"):
        Keywords(top=0)
    with pytest.raises(ProfileError, match="per_characters must be at least 1"):
        Keywords(per_characters=0)
    with pytest.raises(ProfileError, match="tfidf or textrank"):
        Keywords("bm25")  # type: ignore[arg-type]
    for word, frequency in (("", None), ("词", 0)):
        with pytest.raises(ProfileError, match="no user word"):
            UserWord(word, frequency)
