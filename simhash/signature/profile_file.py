"""Profiles of one's own, from TOML files: a shipped profile, and what is to differ from it.

    base = "default"                    # what all the rest comes from
    k = 4
    reach = 8
    extractor = "trafilatura"

    [features]
    is = "keywords"                     # token-pairs, script-runs, words, character-grams, keywords
    method = "textrank"
    stop_words = "stop-words.txt"       # a file beside this one

    [weights]
    by = "score"

    [verifier]
    is = "none"                         # minhash, shingles, none

Every key, and what it may be, stands in docs/profiles.md. A profile's name is that of its file, unless it says another.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from simhash.errors import ProfileError
from simhash.features.keywords import Keywords, Method, read_stop_words, read_user_words
from simhash.features.normalisation import Normalisation
from simhash.features.schemes import CharacterGrams, ScriptRuns, TokenPairs, Words
from simhash.features.shingles import TokenShingles
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import PROFILES, Profile, Rounding, Scheme, Weighting, Weights
from simhash.signature.profiles import profile as shipped

SUFFIX = ".toml"
_SKETCH = MinHashSketch()
"""What a file's has where it does not say otherwise."""
Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,100}\Z")]


class _Strict(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing that is not known: a key with a slip in it must not be passed over."""


class _TokenPairs(_Strict, frozen=True, tag_field="is", tag="token-pairs"):
    pass


class _ScriptRuns(_Strict, frozen=True, tag_field="is", tag="script-runs"):
    pass


class _Words(_Strict, frozen=True, tag_field="is", tag="words"):
    n: int = 1


class _CharacterGrams(_Strict, frozen=True, tag_field="is", tag="character-grams"):
    n: int = 4


class _Keywords(_Strict, frozen=True, tag_field="is", tag="keywords"):
    method: Method = "tfidf"
    top: int | Literal["all"] = 20
    per_characters: int | None = None
    stop_words: str | None = None
    user_words: str | None = None
    cut_joined_by: str | None = None


class _Weights(_Strict, frozen=True):
    by: Weighting
    cap: int | None = None
    rounding: Rounding = "none"


class _MinHash(_Strict, frozen=True, tag_field="is", tag="minhash"):
    reach: int
    n: int = _SKETCH.n
    bins: int = _SKETCH.bins
    bands: int = _SKETCH.bands
    rows: int = _SKETCH.rows
    fold: int = _SKETCH.fold


class _Shingles(_Strict, frozen=True, tag_field="is", tag="shingles"):
    reach: int
    n: int = 5


class _NoVerifier(_Strict, frozen=True, tag_field="is", tag="none"):
    pass


class _ProfileFile(_Strict, frozen=True):
    base: str = "default"
    name: Name | UnsetType = UNSET
    version: int = 1
    extractor: str | UnsetType = UNSET
    normalisation: Normalisation | UnsetType = UNSET
    hash: str | UnsetType = UNSET
    bits: int | UnsetType = UNSET
    zero_sum: int | UnsetType = UNSET
    k: int | UnsetType = UNSET
    reach: int | UnsetType = UNSET
    min_features: int | UnsetType = UNSET
    features: _TokenPairs | _ScriptRuns | _Words | _CharacterGrams | _Keywords | UnsetType = UNSET
    weights: _Weights | UnsetType = UNSET
    verifier: _MinHash | _Shingles | _NoVerifier | UnsetType = UNSET


KEYS = tuple(_ProfileFile.__struct_fields__)
_AS_THEY_ARE = ("version", "extractor", "normalisation", "hash", "bits", "zero_sum", "k", "reach", "min_features")


def named_profile(name: str) -> Profile:
    """The profile of that name, or of that TOML file.

    Raises:
        ProfileError: there is none of that name, or the file says nothing that can be.
    """
    return read_profile(Path(name)) if name.endswith(SUFFIX) else shipped(name)


def read_profile(path: str | Path) -> Profile:
    """The profile of a TOML file; word lists are looked for beside it.

    Raises:
        ProfileError: the file cannot be read or says what no profile can be; the message names file and key.
    """
    path = Path(path)
    try:
        given = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _ProfileFile)
        return _profile(given, path)
    except OSError as error:
        raise ProfileError(f"{error.filename or path}: {error.strerror}") from error
    except (ValueError, ProfileError) as error:  # no TOML, no UTF-8, no such key, a path with a zero byte
        raise ProfileError(f"{path}: {error}") from error


def _profile(given: _ProfileFile, path: Path) -> Profile:
    name = path.stem if given.name is UNSET else given.name
    if name in PROFILES:
        raise ProfileError(f"{name} is the name of a profile that ships: give this one another by the key `name`")
    base = shipped(given.base)
    changes: dict[str, Any] = {key: value for key in _AS_THEY_ARE if (value := getattr(given, key)) is not UNSET}
    if given.features is not UNSET:
        changes["features"] = _scheme(given.features, path.parent)
    if weights := _weights(given, changes.get("features", base.features), base.weights):
        changes["weights"] = weights
    if given.verifier is not UNSET:
        changes |= _verifier(given.verifier)
    # A base's wide reach behind its verifier would let strangers in without one.
    if changes.get("verifier", base.verifier) is None and base.verifier is not None:
        changes.setdefault("reach", changes.get("k", base.k))
    return replace(base, name=name, **changes)


def _scheme(given: _TokenPairs | _ScriptRuns | _Words | _CharacterGrams | _Keywords, folder: Path) -> Scheme:
    match given:
        case _TokenPairs():
            return TokenPairs()
        case _ScriptRuns():
            return ScriptRuns()
        case _Words():
            return Words(given.n)
        case _CharacterGrams():
            return CharacterGrams(given.n)
        case _Keywords():
            return Keywords(
                given.method,
                None if given.top == "all" else given.top,
                given.per_characters,
                read_stop_words(folder / given.stop_words) if given.stop_words else (),
                read_user_words(folder / given.user_words) if given.user_words else (),
                given.cut_joined_by,
            )


def _weights(given: _ProfileFile, scheme: Scheme, inherited: Weights) -> Weights | None:
    """Weights that are given; else, where those of the base do not go with the features, the plain ones that do."""
    if given.weights is not UNSET:
        return Weights(given.weights.by, given.weights.cap, given.weights.rounding)
    if isinstance(scheme, Keywords) == (inherited.by == "score"):
        return None
    return Weights("score" if isinstance(scheme, Keywords) else "count")


def _verifier(given: _MinHash | _Shingles | _NoVerifier) -> Mapping[str, object]:
    match given:
        case _MinHash():
            sketch = MinHashSketch(given.n, given.bins, given.bands, given.rows, given.fold)
            return {"verifier": sketch, "verifier_reach": given.reach}
        case _Shingles():
            return {"verifier": TokenShingles(given.n), "verifier_reach": given.reach}
        case _NoVerifier():
            return {"verifier": None, "verifier_reach": None}
