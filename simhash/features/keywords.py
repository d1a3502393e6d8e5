"""jieba's keywords with their scores: TF-IDF and TextRank, with one's own stop words and user dictionary.

jieba's global tokenizer and extractors are left alone: what one profile adds, another must not see. All
recipes without user words share one tokenizer; each set of user words gets its own (100 MB).
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simhash.errors import ProfileError
from simhash.features.segment import HAN_RUN_CHARACTERS, new_tokenizer, require_jieba, shared_tokenizer

if TYPE_CHECKING:
    import jieba
    from jieba.analyse import TFIDF, TextRank

Method = Literal["tfidf", "textrank"]

_BLOCK_CHARACTERS = 4096
# jieba takes time quadratic in a run of unknown Han, and 150 bytes for each character of an unbroken block.
_LONG_HAN = re.compile(f"[\u4e00-\u9fd5]{{{HAN_RUN_CHARACTERS}}}")
_LONG_BLOCK = re.compile(f"[\u4e00-\u9fd5a-zA-Z0-9+#&._%\\-]{{{_BLOCK_CHARACTERS}}}")
_USER_LINE = re.compile(r"(?P<word>.+?)(?: (?P<frequency>[0-9]+))?(?: (?P<tag>[a-z]+))?")


@dataclass(frozen=True, slots=True)
class UserWord:
    """A word for jieba's dictionary: with no frequency jieba picks one that keeps the word in one piece."""

    word: str
    frequency: int | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        if not self.word or self.frequency == 0:
            # Frequency 0 means "split always", which jieba keeps in a table shared by all tokenizers.
            raise ProfileError(f"no user word: {self.word!r} with frequency {self.frequency}")


@dataclass(frozen=True, slots=True)
class Keywords:
    """The highest-scoring words of a text; equal scores in the order of first occurrence.

    Attributes:
        top: how many; None for all.
        per_characters: grow with the text: one keyword for so many characters, but no fewer than `top`.
        stop_words: words never taken (lower case), besides jieba's 30 English ones.
        cut_joined_by: cut the text first and join the words by this, as a published tutorial does.
    """

    method: Method = "tfidf"
    top: int | None = 20
    per_characters: int | None = None
    stop_words: tuple[str, ...] = ()
    user_words: tuple[UserWord, ...] = ()
    cut_joined_by: str | None = None

    def __post_init__(self) -> None:
        if self.method not in ("tfidf", "textrank"):
            raise ProfileError(f"keywords come by tfidf or textrank, not by {self.method!r}")
        for name, value in (("top", self.top), ("per_characters", self.per_characters)):
            if value is not None and value < 1:
                raise ProfileError(f"keywords: {name} must be at least 1, not {value}")

    def wanted(self, text: str) -> int | None:
        """Number of keywords to take from a text; None for all."""
        if self.top is None or self.per_characters is None:
            return self.top
        return max(self.top, -(-len(text) // self.per_characters))

    def __call__(self, text: str) -> dict[str, float]:
        """Keywords of a text and their scores, best first; empty where nothing qualifies."""
        text = break_long_runs(text)
        wanted = self.wanted(text)
        if self.cut_joined_by is not None:
            text = self.cut_joined_by.join(_tokenizer(self.user_words).cut(text))
        extractor = _extractor(self.method, self.stop_words, self.user_words)
        return dict(extractor.extract_tags(text, topK=wanted, withWeight=True))


def break_long_runs(text: str) -> str:
    """Put a line's end into runs longer than jieba can take in time linear in the text."""
    for too_long in (_LONG_HAN, _LONG_BLOCK):
        text = too_long.sub(r"\g<0>\n", text)
    return text


@lru_cache(maxsize=4)
def _tokenizer(user_words: tuple[UserWord, ...]) -> jieba.Tokenizer:
    if not user_words:
        return shared_tokenizer()
    tokenizer = new_tokenizer()
    for entry in user_words:
        tokenizer.add_word(entry.word, entry.frequency, entry.tag)
    return tokenizer


@lru_cache(maxsize=16)
def _extractor(method: Method, stop_words: tuple[str, ...], user_words: tuple[UserWord, ...]) -> TFIDF | TextRank:
    require_jieba()
    from jieba import analyse, posseg

    tokenizer = _tokenizer(user_words)
    # A shallow copy shares the table of document frequencies (30 MB), which nobody changes.
    extractor = copy.copy(analyse.default_tfidf if method == "tfidf" else analyse.default_textrank)
    extractor.stop_words = extractor.STOP_WORDS | set(stop_words)
    extractor.tokenizer = tokenizer if method == "tfidf" else posseg.POSTokenizer(tokenizer)
    return extractor


def read_stop_words(path: Path) -> tuple[str, ...]:
    """Read stop words: UTF-8, one a line; lower case, sorted, so that equal lists are equal recipes."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return tuple(sorted({line.strip().lower() for line in lines} - {""}))


def read_user_words(path: Path) -> tuple[UserWord, ...]:
    """Read a user dictionary of jieba's: UTF-8, a line of word, frequency and tag, the last two optional."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    return tuple(_user_word(line) for line in lines if line)


def _user_word(line: str) -> UserWord:
    parts = _USER_LINE.fullmatch(line)
    if parts is None:
        raise ProfileError(f"no line of a user dictionary: {line!r}")
    frequency = parts["frequency"]
    return UserWord(parts["word"], None if frequency is None else int(frequency), parts["tag"])
