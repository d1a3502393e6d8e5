"""Profiles: the full recipe from a page's text to its signature, as data, under a short name and a version.

An index stores the recipe of its profile; equal recipes give equal signatures, on any machine. Changing
anything in a recipe means a new version. Nothing here depends on anything but the arguments, and on the tables of
Unicode that Python brings, which decide forms and kinds of characters (3.11 and 3.14 differ in 4,670): their version is
part of a recipe. One that names none has that of Python 3.11, which made all fingerprints before it was named.

What the features of a text are is said in `features`, `keywords` and `shingles`; how they become bits in
`fingerprint`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash import native
from simhash.errors import ProfileError
from simhash.features.hashes import Hash, wide_enough
from simhash.features.keywords import Keywords
from simhash.features.normalisation import CASEFOLDED, Normalisation, normalised_parts
from simhash.features.schemes import CharacterGrams, PairHashes, ScriptRuns, TokenPairs, Words
from simhash.features.segment import pieces
from simhash.features.shingles import TOKEN_HASH, Tokens, TokenShingles, tokens_of
from simhash.reading.extracted import versioned
from simhash.signature.counting import GramMinima, GramSet, HashCounts, TextDigest
from simhash.signature.fingerprint import Weighing, bit_sums, fingerprint, from_sums, simhash
from simhash.signature.minhash import MinHashSketch

SHINGLE_VERIFIER_BITS = 64
UNNAMED_UNICODE = "14.0.0"
"""Of recipes that name no version of Unicode: Python 3.11's."""

Scheme = TokenPairs | ScriptRuns | Words | CharacterGrams | Keywords
Weighting = Literal["one", "count", "score"]
Rounding = Literal["none", "up", "down", "nearest"]
_Rounds = Callable[[Weighing], Weighing]
_ROUND: Mapping[Rounding, _Rounds] = {"none": np.asarray, "up": np.ceil, "down": np.floor, "nearest": np.rint}


ShortDigest = Literal["text", "title-and-tokens"]
_LATER: Mapping[str, object] = {"short_digest": "text", "fold": 1}
"""Parts of a recipe that the first ones did not have: not named at the value that they had all the same."""
TITLE_CHARACTERS = 1_000
"""So much of a title tells two short pages apart."""


class Signature(NamedTuple):
    """What a page is recognised by.

    Attributes:
        fingerprint: the gate's simhash, or None: too little for near matching, only the digest may match.
        verifier: the second fingerprint, its band keys behind it, or None where the profile has none or `fingerprint`
            is None.
        digest: "text:" and the xxh3_128 of the normalised text, or "raw:" and that of the raw bytes where the text is
            empty; 32 hexadecimal digits. Where there is no fingerprint, the recipe may take another one than of the
            text: see `Profile.short_digest`.
        features: how many features the text has, each as often as it occurs (keywords: once each).
    """

    fingerprint: int | None
    verifier: int | None
    digest: str
    features: int


MOST = (1 << 31) - 1
"""Of what is counted in a page."""


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
        if self.cap is not None and self.cap > MOST:
            raise ProfileError(f"a cap is at most {MOST:,}, not {self.cap:,}")

    @property
    def most(self) -> int | None:
        """The count from which on a feature weighs no more; None: there is none."""
        return 1 if self.by == "one" else self.cap

    def of(self, values: Weighing) -> Weighing:
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

    Attributes:
        min_features: a page with fewer different ones has no fingerprint, and matches on its digest alone.
        short_digest: what that digest is of: the normalised text, as other pages' digests are; or the page's title and
            its tokens (`digest_of_tokens`), so that "Loading..." of two sites is no copy, and an emoji more or less
            no difference. A text without tokens is then as an empty one: known by its raw bytes.

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
    verifier: MinHashSketch | TokenShingles | None = None
    verifier_reach: int | None = None
    min_features: int = 1
    short_digest: ShortDigest = "text"
    _hash: Hash = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", wide_enough(self.hash, self.bits))
        for wrong, message in self._faults():
            if wrong:
                raise ProfileError(f"profile {self.name}: {message}")

    def _faults(self) -> Iterator[tuple[bool, str]]:
        hashed = isinstance(self.features, TokenPairs) and (self._hash.name != TOKEN_HASH.name or self.bits > 64)
        yield hashed, f"token pairs are hashes of {TOKEN_HASH.name}, 64 bits at most"
        unordered = not 0 <= self.k <= self.reach < self.bits
        yield unordered, f"needs 0 <= k ({self.k}) <= reach ({self.reach}) < bits ({self.bits})"
        yield self.zero_sum not in (0, 1), f"a zero sum gives 0 or 1, not {self.zero_sum}"
        yield self.min_features < 1, f"min_features is at least 1, not {self.min_features}"
        yield self.min_features > MOST, f"min_features is at most {MOST:,}, not {self.min_features:,}"
        yield (self.verifier is None) != (self.verifier_reach is None), "a verifier needs a reach"
        near = self.verifier_reach
        beyond = near is not None and not 0 <= near < self.verifier_bits
        yield beyond, f"the verifier has {self.verifier_bits} bits: its reach is one of 0 to {self.verifier_bits - 1}"
        scored = isinstance(self.features, Keywords)
        yield scored and self.weights.by == "count", "keywords have scores, not counts"
        yield not scored and self.weights.by == "score", "only keywords have scores"

    @cached_property
    def label(self) -> str:
        """Name and version, as verdicts have it."""
        return f"{self.name}/{self.version}"

    def signature(self, text: str, raw: bytes, title: str = "") -> Signature:
        """Signature of a page.

        Args:
            text: its main text, any string.
            raw: the page's bytes, used only where the normalised text is empty.
            title: what its author calls it, any string; used only where the text is short.

        Raises:
            TypeError: `text` is bytes, None or anything else that is no text.
            PageError: it has so many combining marks in a row that normalisation would take minutes (`check_marks`).
        """
        if not isinstance(text, str):
            raise TypeError(_no_text(text))
        if self._kernel_recipe and (read := native.read(self._kernel_recipe, text)):
            return self._signature(read, text, raw, title)
        return self.signature_in_numpy(text, raw, title)

    def signature_in_numpy(self, text: str, raw: bytes, title: str = "") -> Signature:
        """The same without the native kernel, of any recipe."""
        return self._signature(self._read(text), text, raw, title)

    def _signature(self, read: native.Reading, text: str, raw: bytes, title: str) -> Signature:
        digest = read.digest
        if read.fingerprint is None and self.short_digest == "title-and-tokens":
            digest = digest_of_tokens(text, title, self.reading_normalisation)
        return Signature(read.fingerprint, read.verifier, _tagged(digest, raw), read.features)

    def _read(self, text: str) -> native.Reading:
        """What the native kernel would find, of any recipe."""
        reading = _Pass(self._streamed(), self._hash, self.verifier, self.weights.most)
        for part in normalised_parts(text, self.reading_normalisation):
            reading.add(part)
        tally = reading.tally() if self._streamed() else self._tally_of_whole(text)
        digest, verifier = reading.digest.hex(), reading.verifier()
        gate = self._gate(tally)
        if tally.distinct < self.min_features or gate is None or (self.verifier and verifier is None):
            return native.Reading(None, None, digest, tally.total)
        return native.Reading(gate, verifier, digest, tally.total)

    @property
    def reading_normalisation(self) -> Normalisation:
        """That of digest and verifier: a gate without normalisation has them of the folded text all the same."""
        return CASEFOLDED if self.normalisation == "none" else self.normalisation

    def signature_of_html(self, html: str, raw: bytes) -> Signature:
        """Signature of a page from its markup, by this profile's extractor; raises PageError as that does."""
        from simhash.reading.extract import extract  # parsers of HTML load only where there is HTML

        page = extract(html, self.extractor)
        return self.signature(page.text, raw, page.title)

    @property
    def for_kernel(self) -> bool:
        """Whether the native kernel, where it is in use, makes the signatures."""
        return self._kernel_recipe is not None

    @property
    def verifier_bits(self) -> int:
        """Width of the verifier proper."""
        return self.verifier.bins if isinstance(self.verifier, MinHashSketch) else SHINGLE_VERIFIER_BITS

    @property
    def bands(self) -> int:
        """Number of band keys behind the verifier."""
        return self.verifier.bands if isinstance(self.verifier, MinHashSketch) else 0

    @cached_property
    def verifier_width(self) -> int:
        """Width of the verifier with its band keys, as signatures have it."""
        return self.verifier.width if isinstance(self.verifier, MinHashSketch) else SHINGLE_VERIFIER_BITS

    def similarity(self, a: int | None, b: int | None) -> float | None:
        """Jaccard similarity of two texts, estimated from their verifiers; None: they are no MinHash sketches."""
        if a is None or b is None or not isinstance(self.verifier, MinHashSketch):
            return None
        return self.verifier.similarity(a, b)

    def hash_of(self, features: Collection[str]) -> NDArray[np.uint64]:
        """Hashes of features by name: shape (n,), or (n, words) above 64 bits. Token pairs have no such names."""
        return self._hash.words(features)

    def fingerprint_of_bag(self, bag: Mapping[str, float]) -> int | None:
        """Fingerprint of features that somebody else has weighted; None for an empty bag."""
        return fingerprint(bag, self._hash, self.bits, self.zero_sum)

    def recipe(self) -> dict[str, object]:
        """Everything that decides a signature, for JSON; equal recipes are the same profile."""
        values = _parts(self)
        unicode = unicodedata.unidata_version
        named = {} if unicode == UNNAMED_UNICODE else {"unicode": unicode}
        return values | {"extractor": versioned(self.extractor), "hash": self._hash.name} | named

    @cached_property
    def _kernel_recipe(self) -> native.KernelRecipe | None:
        """What the native kernel has to know of this profile, None for a recipe that it does not implement."""
        sketch, streamed = self.verifier, isinstance(self._streamed(), TokenPairs)
        if not (streamed and isinstance(sketch, MinHashSketch)):
            return None
        shape = (sketch.n, sketch.bins, sketch.bands, sketch.rows, sketch.fold)
        numbers = (self.bits, bool(self.zero_sum), self.weights.most, self.min_features, *shape)
        return native.KernelRecipe(self.normalisation, *numbers)

    def _streamed(self) -> TokenPairs | ScriptRuns | None:
        """The scheme, if its features can be taken part by part from the text that the verifier reads."""
        if isinstance(self.features, TokenPairs | ScriptRuns) and self.normalisation != "none":
            return self.features
        return None

    def _tally_of_whole(self, text: str) -> _Tally:
        body = "".join(normalised_parts(text, self.normalisation))
        if isinstance(self.features, Keywords):
            scores = self.features(body)
            values = np.fromiter(scores.values(), dtype=np.float64, count=len(scores))
            return _Tally([(self._hash.words(scores), values)], len(scores))
        if isinstance(self.features, TokenPairs):
            reading = _Pass(self.features, self._hash, None, self.weights.most)
            reading.add(body)
            return reading.tally()
        counts = HashCounts(self.weights.most)
        for features in self.features(body):
            counts.add(self._hash.words(features))
        return _Tally.of(counts)

    def _gate(self, tally: _Tally) -> int | None:
        if not tally.parts:
            return None
        if len(tally.parts) > 1:  # of counts alone: whole numbers, whose sums may be added up
            parts = ((hashes, values.astype(np.int64)) for hashes, values in tally.parts)
            sums = [bit_sums(hashes, self.weights.of(values), self.bits) for hashes, values in parts]
            return from_sums(np.sum(sums, axis=0), self.zero_sum)
        hashes, values = tally.parts[0]
        weights = self.weights.of(values)
        return simhash(hashes, weights, self.bits, self.zero_sum) if weights.any() else None


@dataclass(frozen=True, slots=True)
class _Tally:
    """Distinct features: hashes (n,) or (n, words) and counts or scores (n,), in parts; and the total number."""

    parts: Sequence[tuple[NDArray[np.uint64], Weighing]]
    total: int

    @classmethod
    def of(cls, counts: HashCounts) -> _Tally:
        """The tally of what was counted."""
        return cls(counts.counted(), counts.total)

    @property
    def distinct(self) -> int:
        """How many different features there are."""
        return sum(len(hashes) for hashes, _ in self.parts)


class _Pass:
    """One pass over the parts of a normalised text: digest, verifier and, with a scheme, the gate."""

    def __init__(
        self,
        scheme: TokenPairs | ScriptRuns | None,
        hash_: Hash,
        verifier: MinHashSketch | TokenShingles | None,
        cap: int | None,
    ) -> None:
        self.digest = TextDigest()
        self._runs = scheme if isinstance(scheme, ScriptRuns) else None
        self._pairs = PairHashes() if isinstance(scheme, TokenPairs) else None
        self._hash = hash_
        self._counts = HashCounts(cap)
        self._minima = GramMinima(verifier) if isinstance(verifier, MinHashSketch) else None
        self._grams = GramSet(verifier.n) if isinstance(verifier, TokenShingles) else None

    def add(self, part: str) -> None:
        """Go on with this part."""
        self.digest.add(part)
        for piece in pieces(part):
            if self._runs:
                self._counts.add(self._hash.words(self._runs.of_piece(piece)))
            if self._pairs or self._minima or self._grams:
                self._take(tokens_of(piece))

    def _take(self, tokens: Tokens) -> None:
        if self._pairs:
            self._counts.add(self._pairs.add(tokens))
        if self._minima:
            self._minima.add(tokens.hashes)
        if self._grams:
            self._grams.add(tokens.hashes)

    def tally(self) -> _Tally:
        """The gate's features; once, at the end."""
        if self._pairs:
            self._counts.add(self._pairs.rest())
        return _Tally.of(self._counts)

    def verifier(self) -> int | None:
        """The verifier, None without one or without tokens."""
        if self._minima:
            return self._minima.sketch()
        grams = self._grams.hashes() if self._grams else None
        if grams is None or not len(grams):
            return None
        return simhash(grams, np.ones(len(grams)), SHINGLE_VERIFIER_BITS)


def _no_text(value: object) -> str:
    said = ": decode them first, or let `simhash.main_text` read a page's bytes" if isinstance(value, bytes) else ""
    return f"a text is a str, not {'None' if value is None else type(value).__name__}{said}"


def digest_of_tokens(text: str, title: str = "", how: Normalisation = "folded") -> str | None:
    """xxh3_128 of the hashed tokens of a title and a text, 8 bytes each, little-endian, with 8 bytes of 0 between them.

    Only TITLE_CHARACTERS of the title count. None where the text has no tokens.
    """
    state = xxhash.xxh3_128()
    for part in _token_bytes(title[:TITLE_CHARACTERS], how):
        state.update(part)
    state.update(bytes(8))
    found = 0
    for part in _token_bytes(text, how):
        state.update(part)
        found += len(part)
    return state.hexdigest() if found else None


def _token_bytes(text: str, how: Normalisation) -> Iterator[bytes]:
    for part in normalised_parts(text, how):
        for piece in pieces(part):
            yield tokens_of(piece).hashes.astype("<u8").tobytes()


def _tagged(digest: str | None, raw: bytes) -> str:
    return f"raw:{xxhash.xxh3_128_hexdigest(raw)}" if digest is None else f"text:{digest}"


def _parts(value: Any) -> dict[str, object]:
    """What a recipe, or a part of one, names."""
    values = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    return {name: _plain(part) for name, part in values.items() if _LATER.get(name) != part}


def _plain(value: object) -> object:
    """A part of a recipe as JSON has it: an object with its class's name, a list for a tuple."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {"is": type(value).__name__} | _parts(value)
    return value


DEFAULT = Profile(
    name="default",
    version=2,
    features=TokenPairs(),
    weights=Weights("count", cap=8),
    extractor="main-text",
    normalisation="folded",
    reach=14,
    verifier=MinHashSketch(n=5, bins=344, bands=6, rows=4, fold=2),
    verifier_reach=76,
    min_features=10,
    short_digest="title-and-tokens",
)
"""What ships. A wide gate is a sieve; the MinHash verifier decides, and the bands find what the prefixes miss. The
figures that chose it, and what was tried beside it, stand in docs/quality.md."""

LOOSE = replace(
    DEFAULT,
    name="loose",
    version=1,
    reach=16,
    verifier=MinHashSketch(n=5, bins=256, bands=8, rows=3, fold=1),
    verifier_reach=52,
)
"""For those who want pages of Jaccard similarity .6 and more; a page then meets more others, and half of what is called
duplicate of a near one has less than .8 in common (docs/quality.md)."""

LEAN = replace(
    DEFAULT,
    name="lean",
    version=1,
    verifier=MinHashSketch(n=5, bins=128, bands=4, rows=4, fold=2),
    verifier_reach=29,
)
"""For those who must save: a third of the sketch and two bands fewer, 219 bytes a document where the default takes 273
(planned for a million, URLs of 77 bytes), for half a hundredth of the near-duplicates."""

DEFAULT_1 = replace(
    DEFAULT,
    version=1,
    extractor="resiliparse-main",
    reach=12,
    normalisation=CASEFOLDED,
    verifier=MinHashSketch(n=5, bins=128, bands=3, rows=4, fold=1),
    verifier_reach=20,
    short_digest="text",
)
"""The default of indexes that are older than default/2."""

SEGMENTED = Profile(
    name="segmented",
    version=1,
    features=ScriptRuns(),
    weights=Weights("count", cap=16),
    reach=6,
    verifier=TokenShingles(5),
    verifier_reach=14,
    min_features=64,
)
"""Words by jieba, and a second simhash as verifier: two fingerprints of 64 bits and nothing else."""

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

In one thing it is not to the letter: weights are rounded up to whole numbers, and the recipe rounds them down
(`rounding = "down"`), which makes most of them 0, and with them the fingerprint of every short text.
"""

_SHIPPED = (DEFAULT, LOOSE, LEAN, SEGMENTED, JIEBA_KEYWORDS, TUTORIAL)
_BY_LABEL = {each.label: each for each in (*_SHIPPED, DEFAULT_1)}
_BY_NAME = {each.name: each for each in _SHIPPED} | _BY_LABEL
PROFILES = (*(each.name for each in _SHIPPED), DEFAULT_1.label)
"""Names of all that ship: a name means the newest version, older ones are named with theirs."""


def checked(profile: Profile) -> Profile:
    """The same.

    Raises:
        TypeError: it is none: perhaps its name.
    """
    if not isinstance(profile, Profile):
        raise TypeError(f"a profile is a Profile, not {profile!r:.40}: `simhash.profile(name)` gives that of a name")
    return profile


def profile(name: str) -> Profile:
    """Return the profile of that name, or "name/version"; raises ProfileError if there is none."""
    if name not in _BY_NAME:
        raise ProfileError(f"no profile is named {name!r}; there are {', '.join(PROFILES)}")
    return _BY_NAME[name]
