"""Tokens and their n-grams, hashed without ever joining a string: what the default's gate and verifier are made of.

A token is one character of Han, kana or Hangul, or one run of other letters and digits; combining marks separate.

Exact recipe, all arithmetic modulo 2**64, for tokens t_0 .. t_(n-1) of one n-gram (a text of fewer tokens than n is
one shorter n-gram):

    h_i    = xxh3_64(UTF-8 of t_i), seed 0
    n-gram = mix64(h_0 * MULTIPLIERS[0] + h_1 * MULTIPLIERS[1] + ... )

mix64 is the finaliser of MurmurHash3, which is one-to-one. Two different n-grams share a hash with probability
2**-64, h being random; the joined string through xxh3_64 would be no better, and costs a Python string a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simhash.errors import ProfileError
from simhash.features.hashes import named
from simhash.features.segment import HAN, HANGUL, KANA, LETTER, UNSPACED, Piece, kinds_table

TOKEN_HASH = named("xxh3_64")
_SINGLE = HAN | KANA | HANGUL
_RUN = LETTER | UNSPACED
_BMP = 0x10000
_ASCII = 0x80
_UNSPACED = HAN | KANA | HANGUL | UNSPACED
MULTIPLIERS = np.array(
    [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F5, 0x06C45D188009454F, 0xF88BB8A8724C81ED, 0x1B39896A51A8749B],
    dtype=np.uint64,
)
"""One odd number for each place in an n-gram."""
_MASK_64 = (1 << 64) - 1
_MIX_SHIFT = np.uint64(33)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)


@dataclass(frozen=True, slots=True)
class TokenShingles:
    """The set of n-grams of tokens."""

    n: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.n <= len(MULTIPLIERS):
            raise ProfileError(f"shingles have 1 to {len(MULTIPLIERS)} tokens, not {self.n}")


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalise each value as MurmurHash3 does; changes `values` and returns it."""
    values ^= values >> _MIX_SHIFT
    values *= _MIX_1
    values ^= values >> _MIX_SHIFT
    values *= _MIX_2
    values ^= values >> _MIX_SHIFT
    return values


def mix64_of(value: int) -> int:
    """The same of one number, of which the low 64 bits count."""
    value &= _MASK_64
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33


def gram_hashes(tokens: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Hash every n-gram of hashed tokens, in order: shape (max(1, len - n + 1),), or (0,) without tokens.

    >>> [hex(g) for g in gram_hashes(np.array([1, 2, 3], dtype=np.uint64), 2).tolist()]
    ['0xc4e432f6777e9d5a', '0x1be0d642b0063c52']
    """
    return mix64(np.correlate(tokens, MULTIPLIERS[: min(n, len(tokens))])) if len(tokens) else tokens


def distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sort and drop repetitions; np.unique would take a hash table for integers, ten times slower here."""
    ascending = np.sort(hashes)
    first = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a piece, in the text's order: their hashes, and whether their script puts no spaces between words.

    Shapes (n,) and (n,).
    """

    hashes: NDArray[np.uint64]
    unspaced: NDArray[np.bool_]


def tokens_of(piece: Piece) -> Tokens:
    """Hash the tokens of a piece. The first character of a token decides for its script."""
    if piece.text.isascii():
        return _tokens_of_runs(piece.text.encode().translate(_ascii_runs()))
    code_points, kinds, present = piece.code_points, piece.kinds, piece.present
    if not present & _UNSPACED:
        return _tokens_of_runs(_utf8_where((kinds & _RUN) != 0, code_points))
    begins = (kinds & _SINGLE) != 0
    if not present & _RUN:
        starts = begins.nonzero()[0]
        return Tokens(
            _hashes_of_singles(code_points.take(starts), kinds.take(starts)), np.ones(len(starts), dtype=bool)
        )
    running = (kinds & _RUN) != 0
    begins[0] |= running[0]
    begins[1:] |= running[1:] > running[:-1]
    starts = begins.nonzero()[0]
    first = kinds.take(starts)
    hashes = _hashes_of_singles(code_points.take(starts), first)
    hashes[running.take(starts)] = _hashes_of_runs(_utf8_where(running, code_points))
    return Tokens(hashes, (first & _UNSPACED) != 0)


def _tokens_of_runs(runs: bytes) -> Tokens:
    """Tokens of scripts with spaces between words: UTF-8 with white space between them."""
    hashes = _hashes_of_runs(runs)
    return Tokens(hashes, np.zeros(len(hashes), dtype=bool))


def _hashes_of_runs(runs: bytes) -> NDArray[np.uint64]:
    """Hash what stands between white space, in order. Splitting UTF-8 once beats slicing a string a token threefold."""
    tokens = runs.split()
    return np.fromiter(map(TOKEN_HASH.of_bytes, tokens), dtype=np.uint64, count=len(tokens))


def _utf8_where(kept: NDArray[np.bool_], code_points: NDArray[np.uint32]) -> bytes:
    """The characters that are kept, a space for every other one."""
    characters = code_points * kept
    if characters.max(initial=0) < _ASCII:
        return characters.astype(np.uint8).tobytes().replace(b"\0", b" ")
    return characters.tobytes().decode("utf-32-le").encode().replace(b"\0", b" ")


@cache
def _ascii_runs() -> bytes:
    """For `bytes.translate`: letters and digits as they are, a space for every other byte."""
    kinds = kinds_table()[:256]
    return bytes(code if code < 128 and kinds[code] & _RUN else ord(" ") for code in range(256))


def _hashes_of_singles(code_points: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash those of these characters, of these kinds, that are tokens by themselves; anything for the others."""
    hashes = _character_hashes().take(code_points, mode="clip")
    if code_points.max(initial=0) < _BMP:
        return hashes
    beyond = ((code_points >= _BMP) & ((kinds & _SINGLE) != 0)).nonzero()[0]
    hashes[beyond] = TOKEN_HASH.words([chr(character) for character in code_points[beyond].tolist()])
    return hashes


@cache
def _character_hashes() -> NDArray[np.uint64]:
    """Hash of every character below U+10000 that is a token by itself, shape (0x10000,): half a megabyte."""
    single = np.flatnonzero(kinds_table()[:_BMP] & _SINGLE)
    table = np.zeros(_BMP, dtype=np.uint64)
    table[single] = TOKEN_HASH.words([chr(character) for character in single.tolist()])
    return table
