"""Profiles: recipes as data, and the signatures they give."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from simhash import hashes, segment
from simhash.errors import ProfileError
from simhash.features import CharacterGrams, ScriptRuns, Words, normalise
from simhash.fingerprint import fingerprint
from simhash.keywords import Keywords
from simhash.profiles import DEFAULT, PROFILES, Profile, Signature, Weights, profile
from simhash.shingles import TokenShingles, gram_hashes, token_hashes

any_text = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("ab 1漢字我来到北京\U00020000カなสวัส가나\u0301,\ud800\ufe0f。"),
    )
)
LOW = replace(DEFAULT, min_features=1)
ENGLISH = "the committee met on tuesday and decided to postpone the vote until the report is published " * 5
CHINESE = "委员会在星期二开会，决定把表决推迟到报告发表之后。" * 12


def naive_tokens(text: str) -> list[str]:
    """Verifier tokens by a loop over characters."""
    tokens: list[str] = []
    running = False
    for character in normalise(text):
        kind = int(segment.kinds_table()[ord(character)])
        if kind & (segment.LETTER | segment.UNSPACED):
            tokens = [*tokens[:-1], tokens[-1] + character] if running else [*tokens, character]
            running = True
        else:
            running = False
            if kind & (segment.HAN | segment.KANA | segment.HANGUL):
                tokens.append(character)
    return tokens


def naive_gram_hash(tokens: list[str]) -> int:
    value = 0
    for token in tokens:
        value = (value * 0x9E3779B97F4A7C15 + xxhash.xxh3_64_intdigest(token.encode())) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def naive_signature(text: str) -> tuple[int | None, int | None, int]:
    """The default's recipe with every step spelled out, without its limit of 64 features."""
    features = [feature for part in ScriptRuns()(normalise(text)) for feature in part]
    gate = fingerprint({feature: min(count, 16.0) for feature, count in Counter(features).items()})
    tokens = naive_tokens(text)
    n = min(5, len(tokens))
    grams = {naive_gram_hash(tokens[i : i + n]) for i in range(len(tokens) - n + 1)} if tokens else set()
    by_number = hashes.of_callable(int, 64)
    verifier = fingerprint({str(gram): 1.0 for gram in grams}, by_number)
    return (None, None, len(features)) if verifier is None else (gate, verifier, len(features))


@given(any_text)
def test_the_default_signature_is_the_naive_one(text: str) -> None:
    signature = LOW.signature(text, b"")
    assert (signature.fingerprint, signature.verifier, signature.features) == naive_signature(text)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, ENGLISH + CHINESE, "カタカナ と 漢字 " * 20, "가나다 라마 " * 40])
def test_the_default_signature_of_pages_is_the_naive_one(text: str) -> None:
    signature = DEFAULT.signature(text, b"")
    assert (signature.fingerprint, signature.verifier, signature.features) == naive_signature(text)
    assert signature.fingerprint is not None


@given(any_text)
def test_the_verifiers_tokens_are_those_of_a_loop_over_the_characters(text: str) -> None:
    piece = segment.Piece(normalise(text))
    expected = [xxhash.xxh3_64_intdigest(token.encode()) for token in naive_tokens(text)]
    assert token_hashes(piece).tolist() == expected


@given(st.lists(st.text("ab", min_size=1, max_size=2), max_size=12), st.integers(1, 6))
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
    whole = LOW.signature(text, b"raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", size)
        patch.setattr("simhash.features.PIECE_CHARACTERS", size)
        assert LOW.signature(text, b"raw") == whole


@pytest.mark.parametrize("name", PROFILES)
@given(text=any_text)
def test_every_profile_takes_any_text_and_gives_the_same_again(name: str, text: str) -> None:
    first = profile(name).signature(text, b"raw")
    assert profile(name).signature(text, b"raw") == first
    assert first.verifier is None or first.fingerprint is not None


@pytest.mark.parametrize("name", PROFILES)
def test_another_process_gives_the_same_signature(name: str) -> None:
    program = (
        "from simhash.profiles import profile\n"
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
    words = [*ENGLISH.split(), "北京", "清华大学"]
    turned = " ".join(reversed(words))
    straight = " ".join(words)
    assert DEFAULT.signature(straight, b"").fingerprint == DEFAULT.signature(turned, b"").fingerprint
    assert DEFAULT.signature(straight, b"").verifier != DEFAULT.signature(turned, b"").verifier


def test_counts_are_capped_at_16() -> None:
    few, many = (LOW.signature("banana " * n + "apple " * 17, b"").fingerprint for n in (16, 400))
    assert few == many
    assert few == fingerprint({"banana": 1.0, "apple": 1.0})


@pytest.mark.parametrize(("features", "near"), [(63, False), (64, True)])
def test_below_64_features_there_is_only_the_digest(features: int, near: bool) -> None:
    signature = DEFAULT.signature("word " * features, b"")
    assert signature.features == features
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
    grams = replace(LOW, features=CharacterGrams(2))
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
    assert DEFAULT.signature(a, b"1").digest == DEFAULT.signature(b, b"2").digest


def test_the_digest_tells_texts_apart() -> None:
    assert DEFAULT.signature("ab c", b"").digest != DEFAULT.signature("a bc", b"").digest


def test_the_tutorial_rounds_weights_up_where_rounding_down_leaves_nothing() -> None:
    tutorial = profile("jieba-tutorial")
    text = "我来到北京清华大学，学习计算机科学与技术，准备毕业以后到中国科学院继续深造。"
    scores = Keywords(top=10, cut_joined_by="|")(text)
    assert all(score < 2 for score in scores.values())
    bag = {word: float(np.ceil(score)) for word, score in scores.items()}
    expected = fingerprint(bag, "string_128", 128)
    assert expected is not None
    assert tutorial.signature(text, b"").fingerprint == expected % 2**64


def test_html_goes_through_the_profiles_extractor(monkeypatch: pytest.MonkeyPatch) -> None:
    import simhash.extract

    monkeypatch.setattr(simhash.extract, "extract_text", lambda html, extractor: f"{extractor} {html}")
    signature = DEFAULT.signature_of_html("<p>text", b"raw")
    assert signature == DEFAULT.signature("resiliparse-main <p>text", b"raw")


def test_a_bag_is_fingerprinted_with_the_profiles_hash_and_width() -> None:
    wide = replace(DEFAULT, hash="sha1", bits=128, reach=12)
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
        {"version": 2},
        {"bits": 32},
        {"hash": "xxh3_128"},
        {"features": Words()},
        {"features": Words(2)},
        {"weights": Weights("count", cap=17)},
        {"verifier": TokenShingles(4)},
        {"verifier_reach": 13},
        {"reach": 7},
        {"min_features": 63},
        {"normalisation": "none"},
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
        ({"hash": "nothing"}, "no hash is named"),
        ({"k": 7}, r"k \(7\) <= reach \(6\)"),
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
    with pytest.raises(ProfileError, match="at least 1, not 0"):
        TokenShingles(0)


def test_a_profile_without_that_name_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"'best'.*default, jieba-keywords"):
        profile("best")
