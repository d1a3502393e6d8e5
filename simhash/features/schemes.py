"""Features of a text, in the ways the literature describes. No hashing, no weights here.

Each scheme is a frozen dataclass (it is part of a profile's recipe) that turns a *normalised* text into a
list of features, each as often as it occurs. Keywords, which come with scores of their own, live in
`keywords`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from simhash.errors import ProfileError
from simhash.features.segment import (
    HAN,
    HANGUL,
    KANA,
    LETTER,
    MARK,
    PIECE_CHARACTERS,
    UNSPACED,
    UNSPACED_MARK,
    Piece,
    pieces,
)
from simhash.features.shingles import MULTIPLIERS, Tokens, mix64

JOINER = "\x1f"
"""Stands between the words of a super-token; no word can hold this control character."""


@dataclass(frozen=True, slots=True)
class ScriptRuns:
    """Words by a segmenter, chosen per run of a script and never by a guess at the document's language.

    Words (letters and digits, with combining marks) where the script puts spaces, Hangul included; jieba's
    words for Han; pairs of neighbouring characters for kana, Thai, Lao, Khmer and Myanmar (a run of one
    gives that one).
    """

    def of_piece(self, piece: Piece) -> list[str]:
        """Features of one piece; words first, so the order is not that of the text."""
        if piece.present & (HAN | KANA | UNSPACED):
            return [*piece.words, *piece.han_words(), *_bigrams(piece)]
        return piece.words

    def __call__(self, text: str) -> Iterator[list[str]]:
        """Features of a text, piece by piece."""
        return map(self.of_piece, pieces(text))


def _bigrams(piece: Piece) -> Iterator[str]:
    runs = chain(piece.runs(KANA), piece.runs(UNSPACED, UNSPACED_MARK))
    return chain.from_iterable(character_grams(run, 2) for run in runs)


def character_grams(text: str, n: int) -> list[str]:
    """All substrings of n characters; the text itself if it is shorter (nothing for an empty one)."""
    if len(text) <= n:
        return [text] if text else []
    return [text[i : i + n] for i in range(len(text) - n + 1)]


def windows(tokens: list[str], n: int) -> list[str]:
    """All runs of n tokens, joined to one feature; a single shorter one if there are fewer tokens."""
    if n == 1 or not tokens:
        return tokens
    return [JOINER.join(tokens[i : i + n]) for i in range(max(1, len(tokens) - n + 1))]


def _check_size(n: int, of: str) -> None:
    if n < 1:
        raise ProfileError(f"{of} need a size of at least 1, not {n}")


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """The default's features: words where the script puts spaces, pairs of neighbouring characters where it does not.

    Taken as hashes, of the verifier's own tokens (`shingles`), so that a text is read and hashed once. A token of a
    spaced script is a feature by itself; a token of Han, kana, Hangul, Thai, Lao, Khmer or Myanmar together with the
    next one, if that is of such a script too, whatever stood between; one without such a neighbour by itself. No
    segmenter: jieba's words as features found no more pairs (docs/quality.md).
    """


class PairHashes:
    """The hashes of a text's `TokenPairs`, over the seams of pieces."""

    def __init__(self) -> None:
        self._waiting = _NO_TOKENS
        self._led = False

    def add(self, tokens: Tokens) -> NDArray[np.uint64]:
        """Go on with these tokens: the features of those before, which are now known."""
        if not len(tokens.hashes):
            return tokens.hashes
        before, self._waiting = self._waiting, tokens
        return self._features(before, tokens) if len(before.hashes) else before.hashes

    def rest(self) -> NDArray[np.uint64]:
        """The features of the last tokens; nothing is added after."""
        return self._features(self._waiting, _END) if len(self._waiting.hashes) else self._waiting.hashes

    def _features(self, tokens: Tokens, following: Tokens) -> NDArray[np.uint64]:
        features = mix64(_pair_sums(tokens, following, self._led))
        self._led = bool(tokens.unspaced[-1])
        return features


_NO_TOKENS = Tokens(np.empty(0, dtype=np.uint64), np.empty(0, dtype=bool))
_END = Tokens(np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=bool))
"""A token of a spaced script: it makes no pair with the one before."""


def _pair_sums(tokens: Tokens, following: Tokens, led: bool) -> NDArray[np.uint64]:
    """One feature for each token, without those that only end a pair; before `mix64`.

    Args:
        tokens: one and more.
        following: what comes after them; its first token counts.
        led: whether the token before them is of an unspaced script.
    """
    features: NDArray[np.uint64] = tokens.hashes * MULTIPLIERS[0]
    here = tokens.unspaced
    if not here.any():
        return features
    paired = np.empty_like(here)  # with the next one
    np.logical_and(here[:-1], here[1:], out=paired[:-1])
    paired[-1] = here[-1] and following.unspaced[0]
    seconds = tokens.hashes[1:] * MULTIPLIERS[1]
    seconds *= paired[:-1]
    features[:-1] += seconds
    if paired[-1]:
        features[-1:] += following.hashes[:1] * MULTIPLIERS[1]
    # What follows a pair's first begins a pair itself, or is in that one already.
    kept = np.empty_like(here)
    kept[0] = paired[0] or not (led and here[0])
    np.greater_equal(paired[1:], paired[:-1], out=kept[1:])
    begun: NDArray[np.uint64] = features[kept]
    return begun


@dataclass(frozen=True, slots=True)
class Words:
    """Words in the text's order, or super-tokens: tuples of n neighbouring words.

    Han is cut by jieba; kana and the other scripts without spaces give single characters.
    """

    n: int = 1

    def __post_init__(self) -> None:
        _check_size(self.n, "super-tokens")

    def __call__(self, text: str) -> Iterator[list[str]]:
        """Features of a text, in one list: tuples reach over the seams of pieces."""
        yield windows(list(chain.from_iterable(map(words_in_order, pieces(text)))), self.n)


def words_in_order(piece: Piece) -> list[str]:
    """Words of a piece as they follow each other in the text."""
    if not piece.present & (HAN | KANA | UNSPACED):
        return piece.words
    kinds_with_marks = ((LETTER | HANGUL, MARK), (HAN, 0), (KANA, 0), (UNSPACED, UNSPACED_MARK))
    spans = ((start, end, kinds) for kinds, marks in kinds_with_marks for start, end in piece.spans(kinds | marks))
    runs = (_words_of_run(Piece(piece.text[start:end]), kinds) for start, end, kinds in sorted(spans))
    return list(chain.from_iterable(runs))


def _words_of_run(run: Piece, kinds: int) -> list[str]:
    if kinds == HAN:
        return run.han_words()
    return run.words if kinds & LETTER else list(run.text)


@dataclass(frozen=True, slots=True)
class CharacterGrams:
    """All n-grams of characters of the text, white space collapsed to single spaces."""

    n: int = 4

    def __post_init__(self) -> None:
        _check_size(self.n, "character n-grams")

    def __call__(self, text: str) -> Iterator[list[str]]:
        """Features of a text, in slices of PIECE_CHARACTERS n-grams."""
        text = " ".join(text.split())
        for start in range(0, max(1, len(text) - self.n + 1), PIECE_CHARACTERS):
            yield character_grams(text[start : start + PIECE_CHARACTERS + self.n - 1], self.n)
