"""Texts of moderate length in one pass of NumPy: the signature is that of the parts, with the kernel and without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.samples import read_pages
from simhash import folding, one_pass, segment
from simhash.extract import extract_text
from simhash.features import normalise
from simhash.profiles import DEFAULT, Profile, Signature
from simhash.segment import Piece
from simhash.shingles import tokens_of
from tests.numpy_only import IN_NUMPY

OFTEN = st.sampled_from("aB 1\n\t,.\x1c\u3000éßÉﬁ™…№℃\u00a8漢字カがｶ가สวัΣς😀\u0301\u0130\U00020000\U000e0041\ud800")
texts = st.text(st.one_of(OFTEN, st.characters(codec=None)), max_size=60)


def by_parts(recipe: Profile, text: str) -> Signature:
    """As a long text is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_pass, "read", lambda recipe, text: None)
        return recipe.signature_in_numpy(text, b"raw")


@given(texts, st.integers(1, 60))
def test_a_text_in_one_pass_has_the_signature_of_its_parts(text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "PIECE_CHARACTERS", limit)
        patch.setattr("simhash.features.PIECE_CHARACTERS", limit)
        assert IN_NUMPY.signature(text, b"raw") == by_parts(DEFAULT, text)


def test_the_pages_of_the_sample_are_read_in_one_pass_and_have_the_signatures_of_their_parts() -> None:
    pages = [extract_text(page["html"]) if "html" in page else page["text"] for page in read_pages()]
    taken = [text for text in pages if folding.fold(text, segment.PIECE_CHARACTERS)]
    assert len(taken) > 0.95 * len(pages)
    assert [text[:80] for text in taken if IN_NUMPY.signature(text, b"raw") != by_parts(DEFAULT, text)] == []


@given(texts)
def test_a_folded_text_is_the_normalised_one(text: str) -> None:
    folded = folding.fold(text, len(text) * 3)
    if folded:
        normalised = normalise(text)
        assert folded.collapsed == " ".join(normalised.split()).encode()
        assert folded.tokens.hashes.tolist() == tokens_of(Piece(normalised)).hashes.tolist()


@pytest.mark.parametrize("text", ["e\u0301", "か\u3099", "\u1100\u1161", "¨", "\ud800", "\U000f0000", "½"])
def test_a_character_that_folds_with_its_neighbours_or_to_several_is_left_to_the_parts(text: str) -> None:
    assert folding.fold(text, 100) is None


@pytest.mark.parametrize(("text", "most"), [("abc", 2), ("字字字", 2), ("ßß", 3)])
def test_a_text_that_is_or_becomes_longer_than_a_piece_is_left_to_the_parts(text: str, most: int) -> None:
    assert folding.fold(text, most) is None
    assert folding.fold(text, 4) is not None
