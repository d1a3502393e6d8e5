"""Why two texts match, or do not: the same figures that decide, beside what they are made of, as plain data.

A fingerprint is made of hashes; what people can read are the features' names. They are taken here one by one, in
Python, for a pair of texts at a time; a test holds them to the fingerprints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simhash.features.hashes import utf8
from simhash.features.keywords import Keywords
from simhash.features.normalisation import normalised_parts
from simhash.features.schemes import TokenPairs
from simhash.features.segment import HAN, HANGUL, KANA, LETTER, UNSPACED, kinds_table
from simhash.features.shingles import MULTIPLIERS, TOKEN_HASH, mix64_of
from simhash.index.texts import entry_of, spec_for
from simhash.signature.fingerprint import bit_sums
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profiles import Profile

GRAM = 5
"""Tokens of an n-gram where the profile's verifier has none."""
LONGEST_DIFFERENCE = 4_000
"""Words of both texts, without what they begin and end with alike, whose differences are looked for one by one: finding
them takes up to quadratic time."""
_SINGLE = HAN | KANA | HANGUL
_RUN = LETTER | UNSPACED
_UNSPACED = _SINGLE | UNSPACED


class Weighed(NamedTuple):
    """A feature, and what it weighs in each of two texts."""

    name: str
    a: float
    b: float


class Difference(NamedTuple):
    """A stretch of two texts: in both ("same"), or in one or either instead of the other's."""

    kind: Literal["same", "other"]
    a: str
    b: str


@dataclass(frozen=True)
class Explanation:
    """Two texts, compared.

    Attributes:
        match: whether an index would call them duplicates.
        exact: they have the same normalised text.
        fingerprints: one of each; None: too little text.
        distance, reach: bits between the fingerprints, and how many there may be.
        verifier_distance, verifier_reach: the same of the second sketch; None: there is none.
        similarity: Jaccard similarity of the sets of token n-grams, exact.
        estimate: the same by the sketches, as a verdict tells it; None: there are none.
        containment: the share of each text's n-grams that the other has too.
        sums: component sums behind the fingerprints' bits, leftmost first, shape (bits,) each: a bit is 1 where its
            sum is above 0, and flips easily where it is near 0.
        features: all features of either text, those first whose weights differ most.
        differences: the texts' words in order, as stretches.
    """

    match: bool
    exact: bool
    fingerprints: tuple[int | None, int | None]
    distance: int | None
    reach: int
    verifier_distance: int | None
    verifier_reach: int | None
    similarity: float
    estimate: float | None
    containment: tuple[float, float]
    sums: tuple[Sequence[float], Sequence[float]]
    features: Sequence[Weighed]
    differences: Sequence[Difference]


def explain(a: str, b: str, profile: Profile) -> Explanation:
    """Compare two texts by a profile."""
    relation = spec_for(profile).relation
    entries = entry_of("a", a, profile), entry_of("b", b, profile)
    one, other = entries[0].fingerprint, entries[1].fingerprint
    known = one is not None and other is not None
    weights = named_weights(a, profile), named_weights(b, profile)
    grams = token_grams(a, profile), token_grams(b, profile)
    shared, either = len(grams[0] & grams[1]), len(grams[0] | grams[1])
    return Explanation(
        match=relation.matches(*entries),
        exact=entries[0].digest == entries[1].digest,
        fingerprints=(one, other),
        distance=(one ^ other).bit_count() if one is not None and other is not None else None,
        reach=profile.reach,
        verifier_distance=_verifier_distance(entries[0].verifier, entries[1].verifier, profile) if known else None,
        verifier_reach=profile.verifier_reach,
        similarity=shared / either if either else 1.0,
        estimate=profile.similarity(entries[0].verifier, entries[1].verifier),
        containment=(shared / max(1, len(grams[0])), shared / max(1, len(grams[1]))),
        sums=(_sums(weights[0], profile), _sums(weights[1], profile)),
        features=_compared(*weights),
        differences=list(differences(a.split(), b.split())),
    )


def _verifier_distance(a: int | None, b: int | None, profile: Profile) -> int | None:
    if a is None or b is None:
        return None
    return ((a ^ b) >> (BAND_BITS * profile.bands)).bit_count()


Feature = tuple[str, ...]
"""A feature's name in parts: one, or the two characters of a pair."""


def named_weights(text: str, profile: Profile) -> dict[Feature, float]:
    """The features of a text by name, with their weights in the fingerprint."""
    body = "".join(normalised_parts(text, profile.normalisation))
    scheme = profile.features
    if isinstance(scheme, Keywords):
        values: dict[Feature, float] = {(name,): score for name, score in scheme(body).items()}
    elif isinstance(scheme, TokenPairs):
        values = dict(Counter(token_pairs(body)))
    else:
        values = dict(Counter((name,) for name in chain.from_iterable(scheme(body))))
    weights = profile.weights.of(np.array(list(values.values()), dtype=np.float64))
    return dict(zip(values, weights.tolist(), strict=True))


def feature_hashes(features: Iterable[Feature], profile: Profile) -> NDArray[np.uint64]:
    """Their hashes, as the fingerprint takes them: shape (n,), or (n, words)."""
    features = list(features)
    if isinstance(profile.features, TokenPairs):
        return np.array([_pair_hash(feature) for feature in features], dtype=np.uint64)
    return profile.hash_of([feature[0] for feature in features])


def _pair_hash(feature: Feature) -> int:
    parts = zip(feature, MULTIPLIERS.tolist(), strict=False)
    return mix64_of(sum(TOKEN_HASH.of_bytes(utf8(token)) * multiplier for token, multiplier in parts))


def _sums(weights: dict[Feature, float], profile: Profile) -> Sequence[float]:
    if not weights:
        return [0.0] * profile.bits
    sums = bit_sums(feature_hashes(weights, profile), np.array(list(weights.values())), profile.bits)
    return [float(each) for each in sums[::-1]]


def _compared(a: dict[Feature, float], b: dict[Feature, float]) -> list[Weighed]:
    found = [Weighed("".join(name), a.get(name, 0.0), b.get(name, 0.0)) for name in a | b]
    return sorted(found, key=lambda each: (-abs(each.a - each.b), -max(each.a, each.b), each.name))


def tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The tokens of a normalised text (see `simhash.features.shingles`), and whether their script has no spaces."""
    kinds = kinds_table()
    run = ""
    for character in text:
        kind = int(kinds[ord(character)])
        if kind & _RUN:
            run += character
            continue
        if run:
            yield run, bool(kinds[ord(run[0])] & _UNSPACED)
            run = ""
        if kind & _SINGLE:
            yield character, True
    if run:
        yield run, bool(kinds[ord(run[0])] & _UNSPACED)


def token_pairs(text: str) -> Iterator[Feature]:
    """The features of `TokenPairs` in order: words, and pairs of tokens of scripts without spaces."""
    all_tokens = [*tokens(text), ("", False)]
    led = False
    for (token, unspaced), (following, unspaced_too) in pairwise(all_tokens):
        paired = unspaced and unspaced_too
        if paired:
            yield token, following
        elif not (led and unspaced):
            yield (token,)
        led = paired


def token_grams(text: str, profile: Profile) -> set[tuple[str, ...]]:
    """The set of n-grams of a text's tokens; of a text of fewer tokens the one shorter n-gram."""
    n = getattr(profile.verifier, "n", GRAM)
    found = [token for token, _ in tokens("".join(normalised_parts(text, profile.reading_normalisation)))]
    if not found:
        return set()
    return {tuple(found[start : start + n]) for start in range(max(1, len(found) - n + 1))}


def differences(a: Sequence[str], b: Sequence[str]) -> Iterator[Difference]:
    """What two lists of words have in common, and what not, in order.

    Where more than `LONGEST_DIFFERENCE` words lie between what they begin and end with alike, that is one difference.
    """
    shorter = min(len(a), len(b))
    begin = next((place for place in range(shorter) if a[place] != b[place]), shorter)
    rest = shorter - begin
    end = next((place for place in range(rest) if a[-1 - place] != b[-1 - place]), rest)
    if begin:
        yield _same(a[:begin])
    yield from _inner(a[begin : len(a) - end], b[begin : len(b) - end])
    if end:
        yield _same(a[len(a) - end :])


def _inner(a: Sequence[str], b: Sequence[str]) -> Iterator[Difference]:
    if not a and not b:
        return
    if len(a) + len(b) > LONGEST_DIFFERENCE:
        yield Difference("other", " ".join(a), " ".join(b))
        return
    for tag, *place in SequenceMatcher(None, a, b).get_opcodes():
        one, other = a[place[0] : place[1]], b[place[2] : place[3]]
        yield _same(one) if tag == "equal" else Difference("other", " ".join(one), " ".join(other))


def _same(words: Sequence[str]) -> Difference:
    return Difference("same", " ".join(words), " ".join(words))
