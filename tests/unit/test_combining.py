"""Runs of combining marks: those that are too long are found wherever they lie, others pass."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash import MemoryIndex
from simhash.errors import PageError
from simhash.features.normalisation import check_marks
from simhash.signature.profiles import DEFAULT


@given(st.text(alphabet="ab\u0301\u0323\u0f73 é", max_size=60), st.integers(1, 8))
def test_a_run_is_refused_when_it_is_longer_than_the_limit(text, most):
    """Held against a look at every character."""
    longest = run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) else 0
        longest = max(longest, run)
    if longest <= most:
        check_marks(text, most)
        return
    with pytest.raises(PageError, match="combining marks in a row") as caught:
        check_marks(text, most)
    assert caught.value.stage == "fingerprint"


@pytest.mark.parametrize("ask", [lambda text: DEFAULT.signature(text, b""), lambda text: MemoryIndex().add("a", text)])
def test_nobody_makes_a_signature_that_normalisation_would_take_minutes_for(ask):
    """Neither of a page's text nor as a caller of the library."""
    with pytest.raises(PageError, match="more than 500 combining marks in a row"):
        ask("a" + 70_000 * "\u0301\u0323")


@pytest.mark.parametrize(
    "text",
    [
        ("\u0301\u0316" * 250 + "\u00ad") * 200,  # what stands between the runs is dropped before they are put in order
        "x " + "\ud834\udd65\ud834\udd6d" * 50_000,  # marks as pairs of surrogates
    ],
    ids=["soft hyphens between", "surrogates"],
)
def test_a_run_is_seen_that_is_one_only_when_it_is_normalised(text):
    with pytest.raises(PageError, match="combining marks in a row"):
        DEFAULT.signature(text, b"")
    with pytest.raises(PageError, match="combining marks in a row"):
        DEFAULT.signature_in_numpy(text, b"")


def test_the_place_of_the_run_is_said():
    text = "é" + "a" * 9 + "\u0301" * 5 + "b"
    with pytest.raises(PageError, match="more than 3 combining marks in a row: 5 at character 10 of 16"):
        check_marks(text, 3)
