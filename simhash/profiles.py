"""Profiles: the full recipe from a page's text to its signature, as data, under a short name and a version.

An index stores the recipe of its profile; equal recipes give equal signatures, on any machine. Changing
anything in a recipe means a new version. Nothing here depends on anything but the arguments.

What the features of a text are is said in `features`, `keywords` and `shingles`; how they become bits in
`fingerprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.errors import ProfileError
from simhash.features import FOLDED, CharacterGrams, Normalisation, ScriptRuns, Words, normalise
from simhash.fingerprint import fingerprint, simhash
from simhash.hashes import Hash, wide_enough
from simhash.keywords import Keywords
from simhash.segment import LETTER, PIECE_CHARACTERS, pieces
from simhash.shingles import TOKEN_HASH, TokenShingles, token_hashes

VERIFIER_BITS = 64

Scheme = ScriptRuns | Words | CharacterGrams | Keywords
Weighting = Literal["one", "count", "score"]
Rounding = Literal["none", "up", "nearest"]
_Rounds = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_ROUND: Mapping[Rounding, _Rounds] = {"none": np.asarray, "up": np.ceil, "nearest": np.rint}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a page is recognised by.

    Attributes:
        fingerprint: the gate's simhash, or None: too little for near matching, only the digest may match.
        verifier: the second simhash, or None where the profile has none or `fingerprint` is None.
        digest: "text:" and the xxh3_128 of the normalised text, or "raw:" and that of the raw bytes where the
            text is empty; 32 hexadecimal digits.
        features: how many features the text has, each as often as it occurs (keywords: once each).
    """

    fingerprint: int | None
    verifier: int | None
    digest: str
    features: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Weight of a feature: 1 ("one"), its count or its scheme's score (keywords); at most `cap`."""

    by: Weighting = "count"
    cap: int | None = None
    rounding: Rounding = "none"

    def __post_init__(self) -> None:
        if self.by not in ("one", "count", "score") or self.rounding not in _ROUND:
            raise ProfileError(f"no such weights: {self.by}, rounding {self.rounding}")
        if self.cap is not None and self.cap < 1:
            raise ProfileError(f"a cap must be at least 1, not {self.cap}")

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of features with these counts or scores; same shape."""
        if self.by == "one":
            return np.ones_like(values)
        weights = _ROUND[self.rounding](values)
        return weights if self.cap is None else np.minimum(weights, self.cap)


@dataclass(frozen=True)
class Profile:
    """A recipe.

    Two texts match when the gate's fingerprints differ in at most `reach` bits and the verifiers in at most
    `verifier_reach`; within `k` bits the index finds every match.

    Raises:
        ProfileError: the parts do not go together.
    """

    name: str
    version: int
    features: Scheme
    weights: Weights
    extractor: str = "resiliparse-main"
    normalisation: Normalisation = "nfkc-casefold"
    hash: str | Hash = "xxh3_64"
    bits: int = 64
    zero_sum: int = 0
    k: int = 3
    reach: int = 3
    verifier: TokenShingles | None = None
    verifier_reach: int | None = None
    min_features: int = 1
    _hash: Hash = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", wide_enough(self.hash, self.bits))
        for wrong, message in self._faults():
            if wrong:
                raise ProfileError(f"profile {self.name}: {message}")

    def _faults(self) -> Iterator[tuple[bool, str]]:
        unordered = not 0 <= self.k <= self.reach < self.bits
        yield unordered, f"needs 0 <= k ({self.k}) <= reach ({self.reach}) < bits ({self.bits})"
        yield self.zero_sum not in (0, 1), f"a zero sum gives 0 or 1, not {self.zero_sum}"
        yield self.min_features < 1, f"min_features is at least 1, not {self.min_features}"
        yield (self.verifier is None) != (self.verifier_reach is None), "a verifier needs a reach"
        scored = isinstance(self.features, Keywords)
        yield scored and self.weights.by == "count", "keywords have scores, not counts"
        yield not scored and self.weights.by == "score", "only keywords have scores"

    def signature(self, text: str, raw: bytes) -> Signature:
        """Signature of a page.

        Args:
            text: its main text, any string.
            raw: the page's bytes, used only where the normalised text is empty.
        """
        normal = normalise(text)
        digest = text_digest(normal) or f"raw:{xxhash.xxh3_128_hexdigest(raw)}"
        tally = self._tally(normal if self.normalisation == FOLDED else normalise(text, self.normalisation))
        weights = self.weights.of(tally.values)
        if tally.count < self.min_features or not weights.any():
            return Signature(None, None, digest, tally.count)
        gate = simhash(tally.hashes, weights, self.bits, self.zero_sum)
        verifier = self._verify(normal, tally.tokens)
        if verifier is None and self.verifier is not None:
            return Signature(None, None, digest, tally.count)
        return Signature(gate, verifier, digest, tally.count)

    def signature_of_html(self, html: str, raw: bytes) -> Signature:
        """Signature of a page from its markup, by this profile's extractor; raises PageError as that does."""
        from simhash.extract import extract_text

        return self.signature(extract_text(html, self.extractor), raw)

    def fingerprint_of_bag(self, bag: Mapping[str, float]) -> int | None:
        """Fingerprint of features that somebody else has weighted; None for an empty bag."""
        return fingerprint(bag, self._hash, self.bits, self.zero_sum)

    def recipe(self) -> dict[str, object]:
        """Everything that decides a signature, for JSON; equal recipes are the same profile."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return {name: _plain(value) for name, value in values.items()} | {"hash": self._hash.name}

    def _tally(self, text: str) -> _Tally:
        if isinstance(self.features, Keywords):
            scores = self.features(text)
            values = np.fromiter(scores.values(), dtype=np.float64, count=len(scores))
            return _Tally(self._hash.words(scores), values, len(scores), None)
        if isinstance(self.features, ScriptRuns) and self.verifier is not None:
            return self._tally_with_tokens(text, self.features)
        return _counted([self._hash.words(features) for features in self.features(text)], None)

    def _tally_with_tokens(self, text: str, scheme: ScriptRuns) -> _Tally:
        """Take a text apart once for both the gate and the verifier."""
        gate, tokens = [], []
        for piece in pieces(text):
            hashes = self._hash.words(scheme.of_piece(piece))
            gate.append(hashes)
            # In a piece of nothing but plain words both see the same tokens: hash them once.
            shared = self._hash.name == TOKEN_HASH.name and piece.present & ~LETTER == 0
            tokens.append(hashes if shared else token_hashes(piece))
        return _counted(gate, np.concatenate(tokens))

    def _verify(self, normal: str, tokens: NDArray[np.uint64] | None) -> int | None:
        if self.verifier is None:
            return None
        if tokens is None:
            tokens = np.concatenate([token_hashes(piece) for piece in pieces(normal)])
        grams = self.verifier.hashes(tokens)
        return simhash(grams, np.ones(len(grams)), VERIFIER_BITS) if len(grams) else None


@dataclass(frozen=True, slots=True)
class _Tally:
    """Distinct features of a text: hashes (n,) or (n, words), counts or scores (n,), total number; tokens."""

    hashes: NDArray[np.uint64]
    values: NDArray[np.float64]
    count: int
    tokens: NDArray[np.uint64] | None


def _counted(parts: list[NDArray[np.uint64]], tokens: NDArray[np.uint64] | None) -> _Tally:
    every = np.concatenate(parts)
    hashes, counts = np.unique(every, return_counts=True, axis=None if every.ndim == 1 else 0)
    return _Tally(hashes, counts.astype(np.float64), len(every), tokens)


def _plain(value: object) -> object:
    """A part of a recipe as JSON has it: an object with its class's name, a list for a tuple."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {"is": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return value


def text_digest(normal: str) -> str | None:
    """Digest of a normalised text, white space collapsed and stripped; None where nothing is left."""
    state = xxhash.xxh3_128()
    empty = True
    for part in _collapsed(normal):
        state.update(part.encode())
        empty = False
    return None if empty else f"text:{state.hexdigest()}"


def _collapsed(text: str) -> Iterator[str]:
    """The text with each run of white space as one space, none at the ends; in parts, to bound memory."""
    started = spaced = False
    for start in range(0, len(text), PIECE_CHARACTERS):
        part = text[start : start + PIECE_CHARACTERS]
        words = " ".join(part.split())
        if words:
            yield " " + words if started and (spaced or part[0].isspace()) else words
            started, spaced = True, part[-1].isspace()
        else:
            spaced = True


DEFAULT = Profile(
    name="default",
    version=1,
    features=ScriptRuns(),
    weights=Weights("count", cap=16),
    reach=6,
    verifier=TokenShingles(5),
    verifier_reach=14,
    min_features=64,
)
"""What ships: see design and quality notes for the figures that chose it."""

JIEBA_KEYWORDS = Profile(
    name="jieba-keywords",
    version=1,
    features=Keywords("tfidf", top=20),
    weights=Weights("score"),
    normalisation="none",
)
"""The usual tutorial's way: jieba's 20 best TF-IDF keywords with their scores, Hamming distance at most 3."""

TUTORIAL = Profile(
    name="jieba-tutorial",
    version=1,
    features=Keywords("tfidf", top=10, cut_joined_by="|"),
    weights=Weights("score", rounding="up"),
    normalisation="none",
    hash="string_128",
)
"""After the published Python tutorial: cut and joined by "|", top 10, low 64 bits of the 128-bit string hash.

Weights are rounded up to whole numbers: rounded down, most are 0 and with them the fingerprint of every
short text.
"""

_BY_NAME = {profile.name: profile for profile in (DEFAULT, JIEBA_KEYWORDS, TUTORIAL)}
PROFILES = tuple(_BY_NAME)


def profile(name: str) -> Profile:
    """Return the profile of that name; raises ProfileError if there is none."""
    if name not in _BY_NAME:
        raise ProfileError(f"no profile is named {name!r}; there are {', '.join(PROFILES)}")
    return _BY_NAME[name]
