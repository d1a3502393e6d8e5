"""Figures of small corpora that are known by hand, and the search of all pairs held against brute force."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.evaluation import (
    FoundPairs,
    MatchRule,
    Search,
    SignatureTable,
    Truth,
    by_reading,
    common_share,
    duplicates_by_reading,
    figures_by_language,
    histograms,
    longest_common_substring,
    make_truth,
    recall_by_length,
    search,
)
from simhash.evaluation.search import BLOCK_PAIRS
from simhash.evaluation.truth import PairClass
from simhash.index import Relation
from simhash.relation.tables import design
from simhash.signature.profiles import Signature
from tests.pages import crowd, flipped

IDS = ["a", "b", "c", "d", "e"]


def found(*pairs: tuple[int, int]) -> FoundPairs:
    """These pairs of the five pages, at distance 0."""
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return FoundPairs(places[:, 0], places[:, 1], np.zeros(len(places), dtype=np.int64), np.arange(len(IDS)))


def signature(fingerprint: int | None, verifier: int | None = None, digest: str = "", features: int = 0) -> Signature:
    """A signature whose digest is its own unless one is given."""
    return Signature(fingerprint, verifier, digest or f"text:{fingerprint}", features)


def readings(truth: Truth, digests: list[str] = IDS) -> dict[tuple[int, int], PairClass]:
    """What every pair is, but for those that nobody knows."""
    pairs = list(combinations(range(len(digests)), 2))
    first, second = np.array(pairs).T
    found = zip(pairs, map(PairClass, truth.known(digests).readings_of(first, second).tolist()), strict=True)
    return {pair: reading for pair, reading in found if reading != PairClass.NEGATIVE or pair in truth.jaccard}


def test_jaccard_decides_between_near_duplicate_grey_and_stranger() -> None:
    pairs = {("a", "b"): 0.8, ("a", "c"): 0.7999, ("a", "d"): 0.5, ("a", "e"): 0.4999, ("b", "c"): 1.0}
    assert readings(make_truth(IDS, pairs)) == {
        (0, 1): PairClass.POSITIVE,
        (0, 2): PairClass.GREY,
        (0, 3): PairClass.GREY,
        (0, 4): PairClass.NEGATIVE,
        (1, 2): PairClass.EXACT,
    }


def test_pages_of_one_digest_are_exact_copies_listed_or_not() -> None:
    truth = make_truth(IDS, {("a", "b"): 0.9})
    assert readings(truth, ["x", "x", "y", "y", "y"]) == dict.fromkeys(
        [(0, 1), (2, 3), (2, 4), (3, 4)], PairClass.EXACT
    )


def test_a_label_overrides_the_jaccard_similarity() -> None:
    pairs = {("a", "b"): 0.95, ("c", "d"): 0.6}
    labels = {("b", "a"): False, ("d", "c"): True, ("a", "e"): True}
    assert readings(make_truth(IDS, pairs, labels)) == {
        (0, 1): PairClass.NEGATIVE,
        (2, 3): PairClass.POSITIVE,
        (0, 4): PairClass.POSITIVE,
    }


def test_a_pair_of_pages_that_are_not_in_the_set_is_left_out_and_counted() -> None:
    truth = make_truth(IDS, {("a", "z"): 0.9, ("b", "a"): 0.9}, {("y", "z"): True})
    assert (truth.unknown_pairs, truth.unknown_labels, dict(truth.jaccard)) == (1, 1, {(0, 1): 0.9})


def test_the_reading_of_a_pair_that_is_not_known_is_negative() -> None:
    known = make_truth(IDS, {("a", "e"): 0.9}).known(IDS)
    first, second = np.array([0, 0, 3]), np.array([4, 1, 4])
    assert known.readings_of(first, second).tolist() == [PairClass.POSITIVE, PairClass.NEGATIVE, PairClass.NEGATIVE]
    assert make_truth(IDS, {}).known(IDS).readings_of(first, second).tolist() == [PairClass.NEGATIVE] * 3


def test_figures_of_five_pages_are_those_counted_by_hand() -> None:
    """Positives ab .95, ac .85, bc .82; grey ad .6; of them found ab, bc, ad; and be, which is false."""
    pairs = {("a", "b"): 0.95, ("a", "c"): 0.85, ("b", "c"): 0.82, ("a", "d"): 0.6}
    known = make_truth(IDS, pairs).known(IDS)
    figures = figures_by_language(found((0, 1), (1, 2), (0, 3), (1, 4)), known, ["en"] * 5)["ALL"]
    assert (figures.pairs_080, figures.found_080, figures.recall_080) == (3, 2, pytest.approx(2 / 3))
    assert (figures.pairs_090, figures.recall_090) == (1, 1.0)
    assert (figures.false_pairs, figures.precision) == (1, pytest.approx(2 / 3))
    assert (figures.grey_pairs, figures.grey_found) == (1, 1)
    assert [(band.low, band.pairs, band.found) for band in figures.bands] == [
        (0.8, 1, 1),
        (0.85, 1, 0),
        (0.9, 0, 0),
        (0.95, 1, 1),
    ]


def test_pages_called_duplicate_are_counted_by_what_their_oldest_match_is() -> None:
    """a; b of a; c of a, not of b, which is stored nowhere; d like c alone: unique; e of d."""
    pairs = {("a", "b"): 0.95, ("a", "c"): 0.6, ("b", "c"): 0.9, ("c", "d"): 0.9}
    known = make_truth(IDS, pairs).known(IDS)
    counted = duplicates_by_reading(found((0, 1), (0, 2), (1, 2), (2, 3), (3, 4)), known)
    assert dict(zip(PairClass, counted.tolist(), strict=True)) == {
        PairClass.NEGATIVE: 1,
        PairClass.GREY: 1,
        PairClass.POSITIVE: 1,
        PairClass.EXACT: 0,
    }
    assert duplicates_by_reading(found(), known).tolist() == [0, 0, 0, 0]


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_pages_called_duplicate_are_those_of_an_index(seed: int, size: int) -> None:
    """Against pages judged one by one."""
    random = Random(seed)
    pages = [signature(each.fingerprint, digest=each.digest) for each in crowd(size, random)]
    pages += random.sample(pages, size // 2)
    table = SignatureTable.of(pages, bits=64, verifier_bits=64, bands=0)
    searched = search(table, [MatchRule(4)]).found[0]
    stored: list[int] = []
    expected: Counter[PairClass] = Counter()
    known = make_truth([str(i) for i in range(len(pages))], {}).known([page.digest for page in pages])
    matching = set(searched.page_pairs())
    for page in range(len(pages)):
        match = next((other for other in stored if (other, page) in matching), None)
        if match is None:
            stored.append(page)
        else:
            expected[PairClass(int(known.readings_of(np.array([match]), np.array([page]))[0]))] += 1
    counted = duplicates_by_reading(searched, known)
    assert dict(zip(PairClass, counted.tolist(), strict=True)) == {reading: expected[reading] for reading in PairClass}


def test_exact_copies_are_in_no_figure_but_their_own() -> None:
    known = make_truth(IDS, {("a", "b"): 1.0, ("a", "c"): 0.9}).known(["1", "2", "3", "4", "4"])
    figures = figures_by_language(found((0, 1)), known, ["en"] * 5)["ALL"]
    assert (figures.pairs_exact, figures.recall_exact) == (2, 0.5)
    assert (figures.pairs_080, figures.recall_080, figures.false_pairs, figures.precision) == (1, 0.0, 0, None)


def test_a_found_pair_that_is_not_listed_is_false() -> None:
    figures = figures_by_language(found((3, 4)), make_truth(IDS, {}).known(IDS), ["en"] * 5)["ALL"]
    assert (figures.false_pairs, figures.precision, figures.recall_080) == (1, 0.0, None)


def test_languages_add_up_and_pairs_of_two_languages_stand_apart() -> None:
    pairs = {("a", "b"): 0.9, ("c", "d"): 0.9, ("b", "c"): 0.9}
    known = make_truth(IDS, pairs).known(IDS)
    figures = figures_by_language(found((0, 1), (1, 2), (0, 4)), known, ["en", "en", "zh", "zh", "zh"])
    counted = {name: (f.pages, f.pairs_080, f.recall_080, f.false_pairs) for name, f in figures.items()}
    assert counted == {
        "ALL": (5, 3, pytest.approx(2 / 3), 1),
        "en": (2, 1, 1.0, 0),
        "zh": (3, 1, 0.0, 0),
        "mixed": (0, 1, 1.0, 1),
    }


def test_recall_by_length_goes_by_the_shorter_page() -> None:
    known = make_truth(IDS, {("a", "b"): 0.9, ("c", "d"): 0.9}).known(IDS)
    bands = recall_by_length(found((0, 1)), known, [31, 500, 64, 64, 9])
    assert {(band.low, band.high): (band.pairs, band.found) for band in bands if band.pairs} == {
        (10, 32): (1, 1),
        (64, 128): (1, 0),
    }


def test_a_stranger_within_k_is_a_false_pair_and_one_beyond_is_not() -> None:
    signatures = [signature(0b0), signature(0b111), signature(0b1111)]
    table = SignatureTable.of(signatures, bits=64, verifier_bits=64, bands=0)
    known = make_truth(IDS[:3], {}).known([s.digest for s in signatures])
    for k, false_pairs in ((0, 0), (1, 1), (2, 1), (3, 2), (4, 3)):
        everything = search(table, [MatchRule(k)]).found[0]
        assert figures_by_language(everything, known, ["en"] * 3)["ALL"].false_pairs == false_pairs


def test_pages_without_a_fingerprint_match_on_their_digest_only() -> None:
    signatures = [signature(None, None, "x"), signature(0, None, "x"), signature(None, None, "x"), signature(None)]
    table = SignatureTable.of(signatures, bits=64, verifier_bits=64, bands=0)
    matched = search(table, [MatchRule(63)]).found[0]
    assert matched.page_pairs() == [(0, 2)]


def test_a_page_without_a_verifier_matches_nothing_where_the_verifier_is_asked() -> None:
    table = SignatureTable.of([signature(0, None), signature(1, 0)], bits=64, verifier_bits=64, bands=0)
    asked, not_asked = search(table, [MatchRule(3, verifier_reach=64), MatchRule(3)]).found
    assert (len(asked), len(not_asked)) == (0, 1)


def test_histograms_count_every_pair_of_fingerprints_once() -> None:
    signatures = [signature(0), signature(0b1), signature(0b11), signature(None)]
    table = SignatureTable.of(signatures, bits=64, verifier_bits=64, bands=0)
    known = make_truth(IDS[:4], {("a", "b"): 0.9, ("a", "d"): 0.9}).known([s.digest for s in signatures])
    gate = histograms(table, known, search(table, [])).gate
    assert {(reading.name, at): gate[reading][at] for reading in PairClass for at in np.flatnonzero(gate[reading])} == {
        ("POSITIVE", 1): 1,
        ("NEGATIVE", 1): 1,
        ("NEGATIVE", 2): 1,
    }


RELATIONS = [
    (Relation(design("6"), 12, 20, 64, 1), 1),
    (Relation(design("10"), 6, 14, 64, 0), 0),
    (Relation(design("2-probed"), 6, 14, 64, 0), 0),
    (Relation(design("4c1", 128), 5, None, 64, 0), 0),
    (Relation(design("4c1", 16), 3, None, 64, 0), 0),
]


@pytest.mark.slow
@given(st.sampled_from(RELATIONS), st.integers(0, 10_000))
def test_all_pairs_at_once_are_those_of_brute_force(chosen: tuple[Relation, int], seed: int) -> None:
    (relation, bands), random = chosen, Random(seed)
    entries = [
        replace(each, verifier=_with_keys(each.verifier, bands, random))
        for each in crowd(40, random, relation.design.bits)
    ]
    signatures = [Signature(e.fingerprint, e.verifier, e.digest, 9) for e in entries]
    table = SignatureTable.of(signatures, relation.design.bits, relation.verifier_bits, bands)
    expected = {(i, j) for i, j in combinations(range(len(entries)), 2) if relation.matches(entries[i], entries[j])}
    matched = search(table, [MatchRule.of(relation)]).found[0]
    assert matched.page_pairs() == sorted(expected)


def _with_keys(verifier: int | None, bands: int, random: Random) -> int | None:
    for _ in range(bands if verifier is not None else 0):
        verifier = (verifier or 0) << 32 | random.randrange(3)
    return verifier


def test_sets_larger_than_a_block_are_searched_to_the_last_pair() -> None:
    random = Random(7)
    count = int(BLOCK_PAIRS**0.5) * 2
    values = [random.getrandbits(64) for _ in range(count - 1)]
    values.append(flipped(values[0], 64, 2, random))
    table = SignatureTable.of([signature(value) for value in values], 64, 64, 0)
    searched: Search = search(table, [MatchRule(5)])
    assert searched.found[0].page_pairs() == [(0, count - 1)]
    assert searched.gate.sum() == count * (count - 1) // 2


LANGUAGES = st.lists(st.sampled_from(["en", "zh", "ja"]), min_size=14, max_size=14)
SIGNATURES = st.lists(
    st.builds(
        signature,
        st.sampled_from([None, 0, 1, 0b11, 0xFF]),
        st.sampled_from([None, 0, 1 << 63, 0xFFFF]),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([5, 50]),
    ),
    min_size=14,
    max_size=14,
)
LISTED = st.dictionaries(
    st.sampled_from(list(combinations(range(14), 2))), st.sampled_from([0.4, 0.6, 0.85, 0.95, 1.0]), max_size=30
)
LABELS = st.dictionaries(st.sampled_from(list(combinations(range(14), 2))), st.booleans(), max_size=12)


def reading_of(pair: tuple[int, int], truth: Truth, pages: list[Signature]) -> PairClass:
    """What a pair is, by the words of `truth`."""
    a, b = pair
    label, jaccard = truth.labels.get(pair), truth.jaccard.get(pair, 0.0)
    if label is False:
        return PairClass.NEGATIVE
    if pages[a].digest == pages[b].digest or jaccard == 1:
        return PairClass.EXACT
    if label or jaccard >= 0.8:
        return PairClass.POSITIVE
    return PairClass.GREY if jaccard >= 0.5 else PairClass.NEGATIVE


def matches(a: Signature, b: Signature, rule: MatchRule) -> bool:
    """Whether two pages match, every pair compared."""
    if a.fingerprint is None or b.fingerprint is None:
        return a.fingerprint is b.fingerprint and a.digest == b.digest
    if (a.fingerprint ^ b.fingerprint).bit_count() > rule.reach:
        return False
    if rule.verifier_reach is None:
        return True
    if a.verifier is None or b.verifier is None:
        return False
    return (a.verifier ^ b.verifier).bit_count() <= rule.verifier_reach


@pytest.mark.slow
@given(SIGNATURES, LANGUAGES, LISTED, LABELS, st.sampled_from([MatchRule(1), MatchRule(2, 1), MatchRule(63, 64)]))
def test_copies_count_as_if_every_pair_of_pages_were_looked_at(
    pages: list[Signature],
    languages: list[str],
    listed: dict[tuple[int, int], float],
    labels: dict[tuple[int, int], bool],
    rule: MatchRule,
) -> None:
    truth = Truth(len(pages), listed, labels)
    known = truth.known([page.digest for page in pages])
    table = SignatureTable.of(pages, bits=64, verifier_bits=64, bands=0)
    searched = search(table, [rule])
    figures = figures_by_language(searched.found[0], known, languages)
    pairs = list(combinations(range(len(pages)), 2))
    reading = {pair: reading_of(pair, truth, pages) for pair in pairs}
    hits = {pair for pair in pairs if matches(pages[pair[0]], pages[pair[1]], rule)}
    assert searched.found[0].page_pairs() == sorted(hits)
    language = {(a, b): languages[a] if languages[a] == languages[b] else "mixed" for a, b in pairs}
    for name, each in figures.items():
        among = [pair for pair in pairs if name in ("ALL", language[pair])]
        counted = Counter((reading[pair], pair in hits) for pair in among)
        for of, total, found in (
            (PairClass.POSITIVE, each.pairs_080, each.found_080),
            (PairClass.GREY, each.grey_pairs, each.grey_found),
            (PairClass.EXACT, each.pairs_exact, round((each.recall_exact or 0) * each.pairs_exact)),
        ):
            assert (total, found) == (counted[of, True] + counted[of, False], counted[of, True])
        assert each.false_pairs == counted[PairClass.NEGATIVE, True]
    assert figures["ALL"].pairs_080 == sum(each.pairs_080 for name, each in figures.items() if name != "ALL")
    near = [pair for pair in pairs if None not in (pages[pair[0]].fingerprint, pages[pair[1]].fingerprint)]
    apart = Counter(
        (reading[a, b], ((pages[a].fingerprint or 0) ^ (pages[b].fingerprint or 0)).bit_count()) for a, b in near
    )
    gate = histograms(table, known, searched).gate
    assert {(PairClass(of), int(at)): gate[of, at] for of, at in zip(*np.nonzero(gate), strict=True)} == dict(apart)
    step = searched.found[0].distance % 3
    row = by_reading(searched.found[0], known, step, 3)
    assert row.sum(axis=1).tolist() == [sum(reading[pair] == of for pair in hits) for of in PairClass]


def test_twenty_thousand_copies_are_one_row_and_two_hundred_million_pairs() -> None:
    count = 20_000
    pages = [signature(0xABC, 5, "x")] * (count // 2) + [signature(None, None, "y")] * (count // 2)
    pages[7] = signature(0xABD, 5, "z")
    table = SignatureTable.of(pages, bits=64, verifier_bits=64, bands=0)
    known = make_truth([str(number) for number in range(count)], {("7", "8"): 0.9}).known([p.digest for p in pages])
    searched = search(table, [MatchRule(3, 14)])
    assert (len(table.near), len(searched.found[0]), len(known.first)) == (3, 3, 1)
    figures = figures_by_language(searched.found[0], known, ["en"] * count)["ALL"]
    of_x, of_y = count // 2 - 1, count // 2
    assert figures.pairs_exact == of_x * (of_x - 1) // 2 + of_y * (of_y - 1) // 2
    assert (figures.recall_exact, figures.recall_080, figures.false_pairs) == (1.0, 1.0, of_x - 1)
    gate = histograms(table, known, searched).gate
    assert (gate[PairClass.EXACT, 0], gate[PairClass.NEGATIVE, 1]) == (of_x * (of_x - 1) // 2, of_x - 1)


def test_the_longest_common_substring_of_published_and_hand_made_pairs() -> None:
    assert longest_common_substring("ABABC", "BABCA") == len("BABC")
    assert longest_common_substring("xabcde", "yabcdz") == len("abcd")
    assert longest_common_substring("abc", "xyz") == 0
    assert longest_common_substring("", "abc") == 0
    assert longest_common_substring("重复网页检测", "网页检测算法") == len("网页检测")
    assert common_share("One  two\nthree", "xx one two three yy") == 1.0


@given(st.text("abc上", max_size=30), st.text("abc上", max_size=30))
def test_the_longest_common_substring_is_that_of_brute_force(a: str, b: str) -> None:
    runs = {a[i:j] for i in range(len(a)) for j in range(i + 1, len(a) + 1)}
    assert longest_common_substring(a, b) == max((len(run) for run in runs if run in b), default=0)
