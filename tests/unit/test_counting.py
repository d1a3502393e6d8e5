"""What adds up over the pieces of a text is what the whole text gives."""

from collections import Counter

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from simhash.features.shingles import distinct, gram_hashes
from simhash.signature import counting as tally
from simhash.signature.counting import GramSet, HashCounts, TextDigest

few_hashes = st.integers(0, 9) | st.integers(2**64 - 3, 2**64 - 1)
pieces_of_hashes = st.lists(st.lists(few_hashes, max_size=12), min_size=1, max_size=12)
limits = st.integers(0, 20)


@pytest.mark.slow
@given(pieces_of_hashes, limits, st.sampled_from([1, 8, 127, 128]))
def test_capped_counts_are_right_up_to_their_cap(pieces: list[list[int]], limit: int, cap: int) -> None:
    pieces = [piece * 30 for piece in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "MERGE_AT", limit)
        counts = HashCounts(cap)
        for piece in pieces:
            counts.add(np.array(piece, dtype=np.uint64))
    found = [pair for part in counts.counted() for pair in zip(*(each.tolist() for each in part), strict=True)]
    expected = Counter(hash_ for piece in pieces for hash_ in piece)
    assert [(hash_, min(number, cap)) for hash_, number in found] == sorted(
        (h, min(n, cap)) for h, n in expected.items()
    )
    assert counts.total == expected.total()


@given(pieces_of_hashes, limits)
def test_counts_over_pieces_are_the_counts_of_the_whole(pieces: list[list[int]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "MERGE_AT", limit)
        counts = HashCounts()
        for piece in pieces:
            counts.add(np.array(piece, dtype=np.uint64))
    found = [pair for part in counts.counted() for pair in zip(*(each.tolist() for each in part), strict=True)]
    expected = Counter(hash_ for piece in pieces for hash_ in piece)
    assert found == sorted(expected.items())
    assert counts.total == expected.total()


def test_what_is_merged_at_once_is_a_small_part_of_many_different_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MERGE_AT", 1000)
    random = np.random.default_rng(1)
    pieces = [random.integers(0, 2**64, 500, dtype=np.uint64) for _ in range(40)]
    counts = HashCounts()
    for piece in [*pieces, *pieces[::2]]:
        counts.add(piece)
    parts = counts.counted()
    assert len(parts) == tally.RANGES
    assert max(len(hashes) for hashes, _ in parts) < 2 * 20_000 / tally.RANGES
    assert np.concatenate([hashes for hashes, _ in parts]).tolist() == sorted(np.concatenate(pieces).tolist())
    assert sum(int(numbers.sum()) for _, numbers in parts) == counts.total == 30_000


@given(st.lists(st.lists(st.tuples(few_hashes, few_hashes), max_size=9), min_size=1, max_size=9), limits)
def test_wide_hashes_are_counted_as_rows(pieces: list[list[tuple[int, int]]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "MERGE_AT", limit)
        counts = HashCounts()
        for piece in pieces:
            counts.add(np.array(piece, dtype=np.uint64).reshape(-1, 2))
    found = [(tuple(row), n) for h, numbers in counts.counted() for row, n in zip(h.tolist(), numbers, strict=True)]
    assert dict(found) == Counter(row for piece in pieces for row in piece)
    assert len(found) == len(dict(found))


@given(pieces_of_hashes, limits, st.integers(1, 5))
def test_n_grams_reach_over_the_seams_of_pieces(pieces: list[list[int]], limit: int, n: int) -> None:
    grams = GramSet(n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "MERGE_AT", limit)
        for piece in pieces:
            grams.add(np.array(piece, dtype=np.uint64))
    whole = np.array([hash_ for piece in pieces for hash_ in piece], dtype=np.uint64)
    assert grams.hashes().tolist() == distinct(gram_hashes(whole, n)).tolist()


@given(st.lists(st.text(st.sampled_from("ab \n\u3000"), max_size=4)))
def test_the_digest_of_parts_is_that_of_the_text_with_its_white_space_collapsed(parts: list[str]) -> None:
    digest = TextDigest()
    for part in parts:
        digest.add(part)
    collapsed = " ".join("".join(parts).split())
    assert digest.hex() == (xxhash.xxh3_128_hexdigest(collapsed.encode()) if collapsed else None)
