"""Profiles: recipes as data, and the signatures they give."""

import itertools
import json
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.resources import files

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simhash.errors import ProfileError
from simhash.features import hashes, normalisation, segment
from simhash.features.keywords import Keywords
from simhash.features.normalisation import normalise, without_surrogates
from simhash.features.schemes import CharacterGrams, ScriptRuns, Words
from simhash.features.shingles import MULTIPLIERS, TokenShingles, gram_hashes, tokens_of
from simhash.signature import counting
from simhash.signature.fingerprint import fingerprint
from simhash.signature.minhash import MinHashSketch
from simhash.signature.profiles import (
    DEFAULT,
    DEFAULT_1,
    PROFILES,
    SEGMENTED,
    UNNAMED_UNICODE,
    Profile,
    Signature,
    Weights,
    profile,
)

any_text = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from(
            "ab 1漢字我来到北京\U00020000カなสวัส가나\u0301,\ud800\ufe0f。"
            "\u00ad\u200d\u0627\u0623\u0629\u064e\u0640\ufe81"
        ),
    )
)
LOW = replace(DEFAULT, min_features=1)
LOW_1 = replace(DEFAULT_1, min_features=1)
LOW_SEGMENTED = replace(SEGMENTED, min_features=1)
ENGLISH = "the committee met on tuesday and decided to postpone the vote until the report is published " * 5
CHINESE = "委员会在星期二开会，决定把表决推迟到报告发表之后。" * 12


def naive_tokens(normalised: str) -> list[str]:
    """Verifier tokens by a loop over characters."""
    tokens: list[str] = []
    running = False
    for character in normalised:
        kind = int(segment.kinds_table()[ord(character)])
        if kind & (segment.LETTER | segment.UNSPACED):
            tokens = [*tokens[:-1], tokens[-1] + character] if running else [*tokens, character]
            running = True
        else:
            running = False
            if kind & (segment.HAN | segment.KANA | segment.HANGUL):
                tokens.append(character)
    return tokens


def naive_mix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD % 2**64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 % 2**64
    return value ^ value >> 33


def naive_hash(*values: int) -> int:
    """Hash of the n-gram of some tokens' hashes."""
    return naive_mix(sum(value * int(m) for value, m in zip(values, MULTIPLIERS, strict=False)) % 2**64)


def naive_gram_hash(tokens: list[str]) -> int:
    return naive_hash(*(xxhash.xxh3_64_intdigest(token.encode()) for token in tokens))


def naive_grams(tokens: list[str]) -> set[int]:
    n = min(5, len(tokens))
    return {naive_gram_hash(tokens[i : i + n]) for i in range(len(tokens) - n + 1)} if tokens else set()


def naive_segmented(text: str) -> tuple[int | None, int | None, int]:
    """The segmented recipe with every step spelled out, without its limit of 64 features."""
    features = [feature for part in ScriptRuns()(normalise(text)) for feature in part]
    gate = fingerprint({feature: min(count, 16.0) for feature, count in Counter(features).items()})
    grams = naive_grams(naive_tokens(normalise(text)))
    verifier = fingerprint({str(gram): 1.0 for gram in grams}, hashes.of_callable(int, 64))
    return (None, None, len(features)) if verifier is None else (gate, verifier, len(features))


def naive_pairs(tokens: list[str]) -> list[int]:
    """The default's features: words, and pairs of neighbours of unspaced scripts."""
    unspaced = segment.HAN | segment.KANA | segment.HANGUL | segment.UNSPACED
    flags = [bool(int(segment.kinds_table()[ord(token[0])]) & unspaced) for token in tokens]
    features = []
    for i, token in enumerate(tokens):
        if flags[i] and i + 1 < len(tokens) and flags[i + 1]:
            features.append(naive_gram_hash([token, tokens[i + 1]]))
        elif not (flags[i] and i and flags[i - 1]):
            features.append(naive_gram_hash([token]))
    return features


@cache
def naive_donor(bin_: int, attempt: int) -> int:
    """What decides whom a bin without a minimum asks for one."""
    return naive_mix((1024 * bin_ + attempt) * 0x9E3779B97F4A7C15 % 2**64)


def naive_minimum(bins: list[int | None], bin_: int, coarser: bool) -> int:
    """The minimum of a bin, or what it borrows: of any bin, or after 8 attempts of ever coarser ones."""
    if (own := bins[bin_]) is not None:
        return own
    if not coarser:
        asked = (bins[naive_donor(bin_, attempt) % len(bins)] for attempt in range(1, 1025))
        return next((minimum for minimum in asked if minimum is not None), 0)
    for attempt in itertools.count(1):
        width = min(8 ** ((attempt - 1) // 8), len(bins))
        first = naive_donor(bin_, attempt) % (len(bins) // width) * width
        if lent := [minimum for minimum in bins[first : first + width] if minimum is not None]:
            return min(lent)
    raise AssertionError


def naive_sketch(grams: set[int], bits: int, bands: int, fold: int) -> int:
    """One-permutation MinHash of so many bits, each of `fold` minima, and so many band keys of four minima."""
    size = next(2**i for i in range(32) if 2**i >= bits * fold)
    shift = 65 - size.bit_length()
    bins: list[int | None] = [None] * size
    for gram in grams:
        bin_, value = gram >> shift, gram & (1 << shift) - 1
        bins[bin_] = value if (least := bins[bin_]) is None else min(value, least)
    sketch = 0
    for b in range(bits):
        places = [(i * bits + b, (i * bits + b + i) % 32) for i in range(fold)]
        sketch = sketch << 1 | sum(naive_minimum(bins, s, fold > 1) >> place & 1 for s, place in places) % 2
    width = max(8, size // 32)
    groups = [min((v for v in bins[q : q + width] if v is not None), default=2**64 - 1) for q in range(0, size, width)]
    for band in range(bands):
        rows = groups[4 * band : 4 * band + 4]
        sketch = sketch << 32 | (naive_hash(*rows) >> 32 if min(rows) < 2**64 - 1 else 0)
    return sketch


def naive_folded(text: str) -> str:
    """`folded` by a loop over characters, what is dropped and what folds taken from the data."""
    dropped = {chr(i) for i in normalisation.points((*normalisation.DEFAULT_IGNORABLE, *normalisation.ARABIC_MARKS))}
    folded = ""
    for character in without_surrogates(text):
        form = unicodedata.normalize("NFKC", character)
        kept = [normalisation.ARABIC_LETTERS.get(c, c) for c in form if c not in dropped]
        folded += character if kept == list(form) else "".join(kept)
    return unicodedata.normalize("NFKC", folded).casefold()


def naive_default(text: str, version: int = 2) -> tuple[int | None, int | None, int]:
    """The default recipe with every step spelled out, without its limit of 10 features."""
    tokens = naive_tokens(naive_folded(text) if version == 2 else normalise(text))
    features = naive_pairs(tokens)
    if not features:
        return None, None, 0
    bag = {str(feature): min(count, 8.0) for feature, count in Counter(features).items()}
    gate = fingerprint(bag, hashes.of_callable(int, 64))
    sketch = naive_sketch(naive_grams(tokens), *((344, 6, 2) if version == 2 else (128, 3, 1)))
    return gate, sketch, len(features)


@pytest.mark.slow
@given(any_text)
def test_the_default_signature_is_the_naive_one(text: str) -> None:
    signature = LOW.signature(text, b"")
    assert (signature.fingerprint, signature.verifier, signature.features) == naive_default(text)
    first = LOW_1.signature(text, b"")
    assert (first.fingerprint, first.verifier, first.features) == naive_default(text, 1)


@given(any_text)
def test_the_segmented_signature_is_the_naive_one(text: str) -> None:
    signature = LOW_SEGMENTED.signature(text, b"")
    assert (signature.fingerprint, signature.verifier, signature.features) == naive_segmented(text)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, ENGLISH + CHINESE, "カタカナ と 漢字・ " * 20, "가나다 라마 " * 40])
def test_signatures_of_pages_are_the_naive_ones(text: str) -> None:
    default, segmented = LOW.signature(text, b""), LOW_SEGMENTED.signature(text, b"")
    assert (default.fingerprint, default.verifier, default.features) == naive_default(text)
    assert (segmented.fingerprint, segmented.verifier, segmented.features) == naive_segmented(text)


@given(any_text)
def test_the_verifiers_tokens_are_those_of_a_loop_over_the_characters(text: str) -> None:
    piece = segment.Piece(normalise(text))
    expected = [xxhash.xxh3_64_intdigest(token.encode()) for token in naive_tokens(piece.text)]
    assert tokens_of(piece).hashes.tolist() == expected


@given(st.lists(st.text("ab", min_size=1, max_size=2), max_size=12), st.integers(1, 5))
def test_the_hash_of_an_n_gram_is_as_specified(tokens: list[str], n: int) -> None:
    hashed = hashes.named("xxh3_64").words(tokens)
    length = min(n, len(tokens))
    expected = [naive_gram_hash(tokens[i : i + length]) for i in range(len(tokens) - length + 1)] if tokens else []
    assert gram_hashes(hashed, n).tolist() == expected


@given(
    st.lists(st.sampled_from(["one ", "two, ", "漢字。 ", "かな ", "สวัส ", "가나 "]), max_size=60),
    st.integers(6, 40),
)
def test_a_long_page_gives_the_same_in_pieces_of_any_size(parts: list[str], size: int) -> None:
    text = "".join(parts)
    whole = LOW.signature(text, b"raw"), LOW_SEGMENTED.signature(text, b"raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", size)
        patch.setattr("simhash.features.schemes.PIECE_CHARACTERS", size)
        assert (LOW.signature(text, b"raw"), LOW_SEGMENTED.signature(text, b"raw")) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
@given(text=any_text)
def test_every_profile_takes_any_text_and_gives_the_same_again(name: str, text: str) -> None:
    first = profile(name).signature(text, b"raw")
    assert profile(name).signature(text, b"raw") == first
    assert first.verifier is None or first.fingerprint is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_another_process_gives_the_same_signature(name: str) -> None:
    program = (
        "from simhash.signature.profiles import profile\n"
        f"s = profile({name!r}).signature({ENGLISH + CHINESE!r}, b'')\n"
        "print(s.fingerprint, s.verifier, s.digest, s.features)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    s = profile(name).signature(ENGLISH + CHINESE, b"")
    assert done.stdout.split() == [str(s.fingerprint), str(s.verifier), s.digest, str(s.features)]


def test_the_default_does_not_care_for_the_order_of_words() -> None:
    words = [*ENGLISH.split(), "北京", "and", "清华大学"]
    turned = " ".join(reversed(words))
    straight = " ".join(words)
    assert DEFAULT.signature(straight, b"").fingerprint == DEFAULT.signature(turned, b"").fingerprint
    assert DEFAULT.signature(straight, b"").verifier != DEFAULT.signature(turned, b"").verifier


@pytest.mark.parametrize(("low", "cap"), [(LOW, 8), (LOW_SEGMENTED, 16)])
def test_counts_are_capped(low: Profile, cap: int) -> None:
    few, many = (low.signature("banana " * n + "apple " * 17, b"").fingerprint for n in (cap, 400))
    assert few == many


@pytest.mark.parametrize(("recipe", "least"), [(DEFAULT, 10), (SEGMENTED, 64)])
@pytest.mark.parametrize("near", [False, True])
def test_below_the_least_number_of_different_features_there_is_only_the_digest(
    recipe: Profile, least: int, near: bool
) -> None:
    words = [f"word{n}" for n in range(least - 1 + near)]
    signature = recipe.signature(" ".join([*words, words[0]]), b"")
    assert signature.features == len(words) + 1
    assert (signature.fingerprint is not None) is near
    assert (signature.verifier is not None) is near
    assert signature.digest.startswith("text:")


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("text", ["", " \n\t\u3000", "\ufeff"[1:]])
def test_an_empty_text_is_known_by_its_raw_bytes_alone(name: str, text: str) -> None:
    assert profile(name).signature(text, b"abc") == Signature(None, None, "raw:" + xxhash.xxh3_128_hexdigest(b"abc"), 0)


@pytest.mark.parametrize("name", ["jieba-keywords", "jieba-tutorial"])
@pytest.mark.parametrize("text", ["的", "the of", "。。。"])
def test_a_text_without_keywords_has_no_fingerprint(name: str, text: str) -> None:
    assert profile(name).signature(text, b"").fingerprint is None


def test_a_text_without_tokens_for_the_verifier_has_no_fingerprint() -> None:
    grams = replace(LOW_SEGMENTED, features=CharacterGrams(2))
    assert grams.signature("!!! ??? ...", b"").fingerprint is None
    assert grams.signature("!!! a ???", b"").fingerprint is not None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Hello  World", " hello\nworld\t"),
        ("Ｆｕｌｌ，", "full,"),
        ("a\u00a0b", "a b"),
        ("x\ud800", "x\ufffd"),
    ],
)
def test_the_digest_is_of_the_normalised_text(a: str, b: str) -> None:
    for recipe in (LOW, LOW_1, DEFAULT_1):
        assert recipe.signature(a, b"1").digest == recipe.signature(b, b"2").digest


def test_the_digest_tells_texts_apart() -> None:
    for recipe in (LOW, LOW_1, DEFAULT, DEFAULT_1):
        assert recipe.signature("ab c", b"").digest != recipe.signature("a bc", b"").digest
    assert LOW.signature("a, b", b"").digest != LOW.signature("a b", b"").digest


@pytest.mark.parametrize("text", ["Hello, World!", "\u300a hello\nworld \u300b \U0001f600", "HELLO\u200b world\u2026"])
def test_a_short_page_is_known_by_its_tokens(text: str) -> None:
    assert DEFAULT.signature(text, b"1") == DEFAULT.signature("hello world", b"2")
    assert DEFAULT.signature(text, b"1").digest != DEFAULT.signature("hello world two", b"2").digest


def test_a_short_page_is_known_by_its_title_too() -> None:
    found = {DEFAULT.signature("Loading...", b"", title).digest for title in ("", "One site", "Another site")}
    assert len(found) == 3
    assert DEFAULT.signature("loading", b"", "ONE  site!").digest in found
    assert DEFAULT.signature("b", b"", "a").digest != DEFAULT.signature("a b", b"", "").digest
    assert DEFAULT.signature("b", b"", "a" * 999 + " x").digest == DEFAULT.signature("b", b"", "a" * 999 + " y").digest


def test_a_title_does_not_matter_to_a_longer_page_nor_to_older_recipes() -> None:
    assert DEFAULT.signature(ENGLISH, b"", "One") == DEFAULT.signature(ENGLISH, b"", "Another")
    assert DEFAULT_1.signature("Loading...", b"", "One") == DEFAULT_1.signature("Loading...", b"", "Another")


@pytest.mark.parametrize("text", ["\U0001f600", "...", "\u2014 \u00ad \u064b"])
def test_a_text_without_tokens_is_known_by_its_raw_bytes_alone(text: str) -> None:
    assert DEFAULT.signature(text, b"abc", "A title").digest == "raw:" + xxhash.xxh3_128_hexdigest(b"abc")


def test_the_digest_of_a_short_page_is_as_specified() -> None:
    hashed = [xxhash.xxh3_64_intdigest(token.encode()) for token in ("one", "site")]
    tokens = [xxhash.xxh3_64_intdigest(token.encode()) for token in ("loading", "漢", "字")]
    data = b"".join(value.to_bytes(8, "little") for value in (*hashed, 0, *tokens))
    assert DEFAULT.signature("Loading, 漢字", b"", "One site").digest == "text:" + xxhash.xxh3_128_hexdigest(data)


def test_the_tutorial_rounds_weights_up_where_rounding_down_leaves_nothing() -> None:
    tutorial = profile("jieba-tutorial")
    text = "我来到北京清华大学，学习计算机科学与技术，准备毕业以后到中国科学院继续深造。"
    scores = Keywords(top=10, cut_joined_by="|")(text)
    assert all(score < 2 for score in scores.values())
    assert not Weights("score", rounding="down").of(np.array([score for score in scores.values() if score < 1])).any()
    bag = {word: float(np.ceil(score)) for word, score in scores.items()}
    expected = fingerprint(bag, "string_128", 128)
    assert expected is not None
    assert tutorial.signature(text, b"").fingerprint == expected % 2**64


def test_html_goes_through_the_profiles_extractor(monkeypatch: pytest.MonkeyPatch) -> None:
    import simhash.reading.extract

    def extract(html: str, extractor: str) -> simhash.reading.extract.Extracted:
        return simhash.reading.extract.Extracted(f"{extractor} {html}", "a title")

    monkeypatch.setattr(simhash.reading.extract, "extract", extract)
    signature = DEFAULT.signature_of_html("<p>text", b"raw")
    assert signature == DEFAULT.signature("main-text <p>text", b"raw", "a title")


def test_a_bag_is_fingerprinted_with_the_profiles_hash_and_width() -> None:
    wide = replace(SEGMENTED, hash="sha1", bits=128, reach=12)
    assert wide.fingerprint_of_bag({"a": 1.5, "b": 2.0}) == fingerprint({"a": 1.5, "b": 2.0}, "sha1", 128)
    assert wide.fingerprint_of_bag({}) is None


@pytest.mark.parametrize("scheme", [ScriptRuns(), Words(), Words(2), CharacterGrams(4)])
@pytest.mark.parametrize("hash_", ["xxh3_64", "crc32", "md5", hashes.of_callable(len, 64)])
@pytest.mark.parametrize("weights", [Weights("one"), Weights("count"), Weights("count", cap=2)])
def test_schemes_hashes_and_weights_combine(scheme: Words, hash_: str, weights: Weights) -> None:
    bits = 32 if hash_ == "crc32" else 64
    made = Profile("made", 1, scheme, weights, hash=hash_, bits=bits)
    counts = Counter(feature for part in scheme(normalise(ENGLISH)) for feature in part)
    resolved = hashes.wide_enough(hash_, bits)
    # Features of one hash are one feature: with this callable, all words of one length.
    hashed: Counter[int] = Counter()
    for feature, count in counts.items():
        hashed[resolved(feature)] += count
    cap = 1 if weights.by == "one" else weights.cap or 10**9
    bag = {str(value): float(min(count, cap)) for value, count in hashed.items()}
    expected = fingerprint(bag, hashes.of_callable(int, 128), bits)
    assert made.signature(ENGLISH, b"").fingerprint == expected


@pytest.mark.parametrize("name", PROFILES)
def test_a_recipe_survives_json_and_tells_profiles_apart(name: str) -> None:
    recipe = profile(name).recipe()
    assert json.loads(json.dumps(recipe)) == recipe
    assert [other for other in PROFILES if profile(other).recipe() == recipe] == [name]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"bits": 32},
        {"hash": "xxh3_128", "features": Words()},
        {"features": Words()},
        {"features": Words(2)},
        {"weights": Weights("count", cap=17)},
        {"verifier": TokenShingles(4), "verifier_reach": 12},
        {"verifier": MinHashSketch(bands=2)},
        {"verifier_reach": 13},
        {"reach": 7},
        {"min_features": 11},
        {"normalisation": "nfkc-casefold"},
        {"normalisation": "none"},
        {"short_digest": "text"},
        {"extractor": "trafilatura"},
    ],
)
def test_any_change_shows_in_the_recipe(change: dict[str, object]) -> None:
    assert replace(DEFAULT, **change).recipe() != DEFAULT.recipe()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 7}, "8 to 256"),
        ({"bits": 257}, "8 to 256"),
        ({"hash": "crc32"}, "crc32 has 32 bits"),
        ({"hash": "fnv1a_64"}, "hashes of xxh3_64"),
        ({"hash": "nothing"}, "no hash is named"),
        ({"k": 15}, r"k \(15\) <= reach \(14\)"),
        ({"k": -1}, r"0 <= k \(-1\)"),
        ({"reach": 64}, "64"),
        ({"zero_sum": 2}, "0 or 1, not 2"),
        ({"min_features": 0}, "at least 1, not 0"),
        ({"verifier": None}, "a verifier needs a reach"),
        ({"verifier_reach": None}, "a verifier needs a reach"),
        ({"features": Keywords()}, "scores, not counts"),
        ({"weights": Weights("score")}, "only keywords have scores"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        replace(DEFAULT, **change)  # type: ignore[arg-type]


def test_weights_that_cannot_be_are_refused() -> None:
    with pytest.raises(ProfileError, match="cap must be at least 1"):
        Weights(cap=0)
    with pytest.raises(ProfileError, match="no such weights"):
        Weights("idf")  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match="1 to 5 tokens, not 0"):
        TokenShingles(0)


@pytest.mark.parametrize(
    "change", [{"bins": 100}, {"bins": 4}, {"n": 6}, {"rows": 0}, {"bands": 9}, {"bins": 64}, {"fold": 0}]
)
def test_a_sketch_that_cannot_be_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ProfileError):
        MinHashSketch(**change)


def sketch_of(grams: NDArray[np.uint64], sketch: MinHashSketch) -> int | None:
    minima = sketch.no_minima()
    sketch.lower(minima, grams)
    return sketch.of_minima(minima)


@given(st.integers(0, 40), st.integers(1, 200))
def test_the_verifiers_distance_follows_the_jaccard_similarity(seed: int, shared: int) -> None:
    """A bit differs with probability (1 - J ** 2) / 2; five standard deviations are allowed for."""
    random = np.random.default_rng(seed)
    a, b, both = (random.integers(0, 2**64, size, dtype=np.uint64) for size in (300, 300, 20 * shared))
    sketch = MinHashSketch()
    one, other = (sketch_of(np.concatenate((both, x)), sketch) for x in (a, b))
    assert one is not None
    assert other is not None
    apart = ((one ^ other) >> 32 * sketch.bands).bit_count()
    expected = 344 * (1 - (len(both) / (len(both) + 600)) ** 2) / 2
    assert abs(apart - expected) < 5 * 344**0.5 / 2 + 1


@pytest.mark.parametrize("size", [8, 30, 100, 1000, 20_000])
def test_the_similarity_of_short_and_long_pages_has_no_bias(size: int) -> None:
    """Of sets with eight of ten in common: the mean of 200 estimates, and how far they scatter."""
    random, sketch = np.random.default_rng(size), MinHashSketch()
    told = []
    for _ in range(200):
        grams = random.integers(0, 2**64, size + size // 4, dtype=np.uint64)
        half = size // 8
        one, other = (sketch_of(np.delete(grams, part), sketch) for part in (np.s_[:half], np.s_[half : 2 * half]))
        assert one is not None
        assert other is not None
        told.append(sketch.similarity(one, other))
    jaccard = (size + size // 4 - 2 * (size // 8)) / (size + size // 4)
    assert abs(np.mean(told) - jaccard) < 0.01
    assert np.std(told) < (0.035 if size >= 30 else 0.06)


@pytest.mark.parametrize("name", ["best", "default/3", "default/", "segmented/0"])
def test_a_profile_without_that_name_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match=rf"'{name}'.*default, loose, lean, segmented, jieba-keywords.*default/1"):
        profile(name)


def test_a_name_means_the_newest_version_and_a_version_may_be_named() -> None:
    assert (profile("default"), profile("default/2"), profile("default/1")) == (DEFAULT, DEFAULT, DEFAULT_1)
    assert profile("segmented/1") == SEGMENTED
    assert [DEFAULT.label, DEFAULT_1.label] == ["default/2", "default/1"]


def test_the_tables_of_unicode_are_part_of_a_recipe_but_for_those_that_made_all_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simhash.signature.profiles.unicodedata.unidata_version", UNNAMED_UNICODE)
    before = DEFAULT.recipe()
    assert "unicode" not in before
    monkeypatch.setattr("simhash.signature.profiles.unicodedata.unidata_version", "16.0.0")
    assert DEFAULT.recipe() == before | {"unicode": "16.0.0"}


def test_a_recipe_names_the_version_of_an_extractor_that_is_learned() -> None:
    learned = json.loads(files("simhash.reading").joinpath("main_text.json").read_text(encoding="utf-8"))
    assert DEFAULT.recipe()["extractor"] == f"main-text/{learned['version']}"
    assert DEFAULT_1.recipe()["extractor"] == "resiliparse-main"


def test_an_index_of_the_first_default_still_finds_its_recipe_and_its_signatures() -> None:
    """As they were when that was the newest, on a Python with the Unicode of that day."""
    recipe = DEFAULT_1.recipe()
    assert recipe.pop("unicode", UNNAMED_UNICODE) == unicodedata.unidata_version
    assert recipe == {
        "name": "default",
        "version": 1,
        "features": {"is": "TokenPairs"},
        "weights": {"is": "Weights", "by": "count", "cap": 8, "rounding": "none"},
        "extractor": "resiliparse-main",
        "normalisation": "nfkc-casefold",
        "hash": "xxh3_64",
        "bits": 64,
        "zero_sum": 0,
        "k": 3,
        "reach": 12,
        "verifier": {"is": "MinHashSketch", "n": 5, "bins": 128, "bands": 3, "rows": 4},
        "verifier_reach": 20,
        "min_features": 10,
    }
    text = (
        "The committee met on Tuesday and decided to postpone the vote until the report is published. "
        "委员会在星期二开会，决定把表决推迟到报告发表之后。"
    )
    assert DEFAULT_1.signature(text, b"") == Signature(
        3756614534735841939,
        6113881039640667222204176189504833904182331239177659676971870635643,
        "text:1555a75073ef39abc97fafe37bbf3219",
        38,
    )
    assert DEFAULT_1.signature("Loading…", b"").digest == "text:a58ad72cafd64f58699d36db3af5578c"


MANY_WORDS = " ".join(f"word{number * 7919 % 3001}" for number in range(6000))


@pytest.mark.parametrize("name", ["default", "default/1", "lean", "loose", "segmented"])
def test_a_page_of_more_features_than_are_merged_at_once_has_the_same_signature(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = profile(name).signature(MANY_WORDS, b"")
    assert profile(name).signature_in_numpy(MANY_WORDS, b"") == expected
    monkeypatch.setattr(counting, "MERGE_AT", 100)
    assert profile(name).signature_in_numpy(MANY_WORDS, b"") == expected


@pytest.mark.parametrize("of", [DEFAULT, SEGMENTED], ids=lambda of: of.name)
def test_text_that_folding_leaves_as_it_is_needs_no_folding(of: Profile) -> None:
    unfolded = replace(of, normalisation="none")
    assert unfolded.signature(MANY_WORDS, b"") == of.signature(MANY_WORDS, b"")
    assert unfolded.signature(MANY_WORDS.upper(), b"").fingerprint != of.signature(MANY_WORDS, b"").fingerprint
