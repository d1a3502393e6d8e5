"""What a pair's explanation says is what decides: features by name give the fingerprints, n-grams the similarity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash import MemoryIndex, Unique, distance, fingerprint, profile
from simhash.explaining import Difference, differences, explain, feature_hashes, named_weights, token_grams
from simhash.signature.fingerprint import from_sums, simhash
from simhash.signature.profiles import DEFAULT, PROFILES
from tests.texts import STORIES, changed

MIXED = st.text(st.sampled_from("abc 12.,\n漢字仮名かなカナ한글ไทยаб\u0301\u200dé😀"), max_size=120)


@given(MIXED)
def test_the_defaults_features_by_name_give_its_fingerprint(text):
    weights = named_weights(text, DEFAULT)
    made = simhash(feature_hashes(weights, DEFAULT), np.array(list(weights.values())), 64) if weights else None
    assert made == fingerprint(text, DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_every_profiles_sums_give_its_fingerprint(name):
    text = STORIES[0] + "小明硕士毕业于中国科学院计算所,后在日本京都大学深造"
    told = explain(text, changed(text, 3), profile(name))
    for sums, expected in zip(told.sums, (text, changed(text, 3)), strict=True):
        assert from_sums(np.array(sums[::-1])) == fingerprint(expected, profile(name))


def test_an_explanation_says_what_an_index_says():
    index = MemoryIndex()
    index.add("a", STORIES[0])
    for words in (0, 1, 2, 5, 20, 60, 110):
        other = changed(STORIES[0], words, words)
        told = explain(STORIES[0], other, DEFAULT)
        fresh = MemoryIndex()
        fresh.add("a", STORIES[0])
        assert told.match != isinstance(fresh.add("b", other), Unique)
        assert told.distance == distance(fingerprint(STORIES[0]), fingerprint(other))
        assert told.exact == (words == 0)


def test_similarity_is_jaccards_of_the_n_grams():
    told = explain(STORIES[0], changed(STORIES[0], 1), DEFAULT)
    a, b = token_grams(STORIES[0], DEFAULT), token_grams(changed(STORIES[0], 1), DEFAULT)
    assert told.similarity == len(a & b) / len(a | b)
    assert 0.7 < told.similarity < 1
    assert told.containment == (len(a & b) / len(a), len(a & b) / len(b))


def test_texts_without_words_are_explained_too():
    told = explain("", "...", DEFAULT)
    assert (told.distance, told.fingerprints, told.features) == (None, (None, None), [])


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_differences_hold_both_texts_whole(a, b):
    found = list(differences(a, b))
    assert " ".join(each.a for each in found if each.a).split() == a
    assert " ".join(each.b for each in found if each.b).split() == b
    assert all(each.kind == "same" or each.a != each.b for each in found)


def test_differences_too_long_to_look_for_are_one():
    a, b = [f"a{n}" for n in range(9000)], [f"b{n}" for n in range(9000)]
    found = list(differences(["same", *a], ["same", *b]))
    assert found == [Difference("same", "same", "same"), Difference("other", " ".join(a), " ".join(b))]
