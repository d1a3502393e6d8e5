"""The vectorised tables and the greedy decision against the relation and against judging one by one."""

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.index import Entry, Relation
from simhash.relation.tables import design
from tests.pages import banded, brute_force, crowd, flipped
from worker.batch import probing
from worker.batch.clusters import roots
from worker.batch.deciding import NONE, Greedy
from worker.batch.keeping import Every, Forest, OldestEntries, OldestProbe
from worker.batch.pairing import PAIRS
from worker.batch.signatures import of_columns, verifier_bytes

VERIFIER_BITS = 64
RELATIONS = [
    *(Relation(design(name), reach, 14, VERIFIER_BITS, bands) for name, reach, bands in (("4", 6, 0), ("6", 12, 3))),
    Relation(design("10"), 3, None),
    Relation(design("15"), 4, None),
    Relation(design("2-probed"), 6, 14, VERIFIER_BITS, 1),
    Relation(design("14"), 12, 20, VERIFIER_BITS, 2),
]


def columns(entries, relation):
    """Signatures of entries, all of which have a fingerprint."""
    gates = np.array([entry.fingerprint for entry in entries], np.uint64)
    if not verifier_bytes(relation):
        return of_columns(gates, None, relation)
    width = verifier_bytes(relation)
    rows = b"".join((entry.verifier or 0).to_bytes(width) for entry in entries)
    return of_columns(gates, np.frombuffer(rows, np.uint8).reshape(-1, width), relation)


def built(entries, relation):
    signatures = columns(entries, relation)
    return probing.build(relation, signatures, np.arange(len(signatures)))


def every(tables, probes):
    keeper = Every()
    tables.find(probes, keeper)
    return keeper.pairs


def found(entries, probes, relation):
    """All matches by the tables, as pairs (probe, entry)."""
    return every(built(entries, relation), columns(probes, relation))


def expected(entries, probes, relation):
    return {
        (i, j) for i, probe in enumerate(probes) for j, entry in enumerate(entries) if relation.matches(probe, entry)
    }


def pages(count, seed, relation):
    random = Random(seed)
    made = crowd(count, random, short_share=0.0)
    return banded(made, relation.bands, random)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: f"{r.design.name}-{r.reach}")
@pytest.mark.parametrize(("block", "crowded"), [(1 << 15, 256), (7, 2)])
def test_the_tables_find_what_the_relation_says(relation, block, crowded, monkeypatch):
    monkeypatch.setattr(probing, "PROBES", block)
    monkeypatch.setattr(probing, "CROWDED", crowded)
    monkeypatch.setattr(probing, "CANDIDATES", 5)
    everything = pages(240, 1, relation)
    entries, probes = everything[:120], everything[120:]
    wanted = expected(entries, probes, relation)
    assert len(wanted) > 20
    assert found(entries, probes, relation) == wanted


@given(st.integers(0, 1 << 32), st.integers(0, 12), st.sampled_from(RELATIONS))
def test_a_pair_at_any_distance_is_found_when_it_matches(seed, distance, relation):
    random = Random(seed)
    (entry,) = pages(1, seed, relation)
    probe = replace(entry, fingerprint=flipped(entry.fingerprint, 64, distance, random))
    assert found([entry], [probe], relation) == expected([entry], [probe], relation)
    if distance <= relation.design.k:
        assert found([entry], [probe], relation)


def test_the_same_pairs_as_brute_force_at_100_000_by_100_000():
    """Blocks of the popcount of everything against everything are too many for a suite: a sample of probes is."""
    random = np.random.default_rng(7)
    entries = random.integers(0, 1 << 64, 100_000, dtype=np.uint64)
    probes = random.integers(0, 1 << 64, 100_000, dtype=np.uint64)
    near = random.choice(100_000, 400, replace=False)
    masks = np.array([flipped(0, 64, int(n) % 5, Random(int(n))) for n in near], np.uint64)
    probes[near] = entries[near] ^ masks
    relation = Relation(design("6"), 3, None)
    tables = probing.build(relation, of_columns(entries, None, relation), np.arange(len(entries)))
    pairs = every(tables, of_columns(probes, None, relation))
    sample = np.union1d(near, np.arange(0, 100_000, 100))
    wanted = {(int(p), int(e)) for p in sample for e in np.flatnonzero(np.bitwise_count(probes[p] ^ entries) <= 3)}
    assert len(wanted) >= 300
    assert {pair for pair in pairs if pair[0] in set(sample.tolist())} == wanted


def test_a_hot_prefix_costs_bounded_memory_and_finds_all():
    """A fifth of both sides share their first 24 bits: every table that leads with them holds one crowded bucket."""
    random = np.random.default_rng(3)
    count = 20_000
    sides = [random.integers(0, 1 << 64, count, dtype=np.uint64) for _ in range(2)]
    for side in sides:
        side[: count // 5] &= np.uint64((1 << 40) - 1)
    sides[1][:100] = sides[0][:100] ^ np.uint64(0b101)
    sides[1][100 : count // 10] = sides[1][100]
    relation = Relation(design("6"), 3, None)
    tables = probing.build(relation, of_columns(sides[0], None, relation), np.arange(count))
    pairs = every(tables, of_columns(sides[1], None, relation))
    hot = np.bitwise_count(sides[1][: count // 5, None] ^ sides[0][None, : count // 5]) <= 3
    assert pairs >= {(i, i) for i in range(100)}
    assert {pair for pair in pairs if max(pair) < count // 5} == set(
        zip(*map(np.ndarray.tolist, np.nonzero(hot)), strict=True)
    )


def pairs_of(tables, probes, later, most):
    """What a task lists of these probes, as it writes it."""
    keeper = OldestEntries(np.searchsorted(tables.numbers, later), most)
    tables.find(probes, keeper)
    own, other, more = keeper.taken()
    return list(zip(later[own].tolist(), tables.numbers[other].tolist(), [0] * len(own), more.tolist(), strict=True))


def chosen(signatures, relation, most):
    """The greedy choice, and how many rounds it took."""
    choice, rounds = Greedy(np.ones(len(signatures), bool)), 0
    while choice.undecided.any():
        rounds += 1
        candidates, later = np.flatnonzero(choice.candidates), np.flatnonzero(choice.undecided)
        tables = probing.build(relation, signatures.take(candidates), candidates)
        rows = pairs_of(tables, signatures.take(later), later, most)
        written = [list(map(list, zip(*rows[at : at + 5], strict=True))) for at in range(0, len(rows), 5)]
        choice.settle([pa.table(part, schema=PAIRS) for part in written])
    return choice.match, rounds


def greedy(entries: list[Entry], relation, most=16):
    """Answers from pairs, as `brute_force` writes them."""
    match, _ = chosen(columns(entries, relation), relation, most)
    numbers, answers = {}, []
    for page, other in enumerate(match.tolist()):
        if other == NONE:
            numbers[page] = len(numbers) + 1
        answers.append(("unique", numbers[page]) if other == NONE else ("duplicate", numbers[other]))
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS[:3], ids=lambda r: r.design.name)
@pytest.mark.parametrize("most", [1, 2, 16])
def test_the_greedy_choice_is_that_of_judging_one_by_one(relation, most):
    for seed in range(5):
        entries = pages(80, seed, relation)
        assert greedy(entries, relation, most) == brute_force(entries, relation)


@pytest.mark.parametrize("most", [1, 16])
def test_in_a_chain_the_ends_survive(most):
    relation = Relation(design("4"), 3, None)
    base = Entry(bytes(16), None, 0, None, "text:", "http://a/")
    chain = [replace(base, fingerprint=value) for value in (0b000000, 0b000111, 0b111111)]
    assert greedy(chain, relation, most) == [("unique", 1), ("duplicate", 1), ("unique", 2)]
    assert greedy(chain[1:] + chain[:1], relation, most) == [("unique", 1), ("duplicate", 1), ("duplicate", 1)]


def test_who_matches_more_than_are_listed_is_asked_again():
    """The only survivor that the last one matches is the newest of all that it matches."""
    relation = Relation(design("4"), 3, None)
    first, last = 0, 0b111111
    between = [0b000111 ^ (1 << bit) for bit in range(3, 6)]  # 3 or 4 bits from the first, within 3 of the last
    dead = [value for value in (0b000111, 0b001011, 0b010011, 0b100011, 0b001110) if value.bit_count() == 3]
    values = np.array([first, *dead, between[0] | 0b100000, last], np.uint64)
    match, rounds = chosen(of_columns(values, None, relation), relation, 2)
    expected = []
    for place, value in enumerate(values):
        before = [n for n in range(place) if expected[n] == NONE and np.bitwise_count(values[n] ^ value) <= 3]
        expected.append(before[0] if before else NONE)
    assert match.tolist() == expected
    assert rounds > 1


# A trap: each matches each -------------------------------------------------------------------------------------------

TRAPPED = 2_500


@pytest.fixture(scope="module")
def trap():
    """Pages of nearly one fingerprint and verifier, each its own: 3 million pairs."""
    random = np.random.default_rng(5)
    relation = Relation(design("10"), 6, 14, VERIFIER_BITS, 1)
    gates = np.uint64(1) << random.integers(0, 64, TRAPPED, np.uint64) ^ np.uint64(0xABCDEF << 20)
    verifiers = np.zeros((TRAPPED, verifier_bytes(relation)), np.uint8)
    verifiers[:, 0] = random.integers(0, 256, TRAPPED)
    verifiers[:, -1] = 1
    return relation, of_columns(gates, verifiers, relation)


class Counting:
    """A keeper that counts what it is given, how many pairs it is asked about, and how many at a time."""

    def __init__(self, keeper):
        self.keeper, self.added, self.asked, self.largest = keeper, 0, 0, 0

    def __getattr__(self, name):
        return getattr(self.keeper, name)

    def wanted(self, probes, entries):
        self.asked, self.largest = self.asked + len(probes), max(self.largest, len(probes))
        return self.keeper.wanted(probes, entries)

    def add(self, probes, entries):
        self.added += len(probes)
        self.keeper.add(probes, entries)


@pytest.mark.slow
def test_of_a_trap_a_few_pairs_are_kept_and_compared(trap):
    relation, signatures = trap
    assert len(signatures.first_of_each()) > 0.5 * TRAPPED
    tables = probing.build(relation, signatures, np.arange(TRAPPED))
    for keeper in (
        OldestEntries(np.arange(TRAPPED), 16),
        OldestProbe(TRAPPED),
        Forest(*[np.arange(TRAPPED)] * 2, TRAPPED),
    ):
        counting = Counting(keeper)
        tables.find(signatures, counting)
        assert counting.largest <= probing.CANDIDATES
        assert counting.added <= TRAPPED * probing.TILE, "of 6 million, most of them in several tables"
    match, rounds = chosen(signatures, relation, 16)
    assert match.tolist() == [NONE, *[0] * (TRAPPED - 1)]
    assert rounds == 1


def test_a_crowd_under_many_keys_of_a_bucket_is_compared_key_by_key():
    """Pairs of a bucket that share no whole key do not meet in that table: they are never compared in it."""
    random = np.random.default_rng(6)
    relation = Relation(design("10"), 12, 14, VERIFIER_BITS, 0)
    gates = np.uint64(0xABCDEF << 20) ^ np.uint64(1) << random.integers(0, 64, TRAPPED, np.uint64)
    signatures = of_columns(gates, np.zeros((TRAPPED, verifier_bytes(relation)), np.uint8), relation)
    tables = probing.build(relation, signatures, np.arange(TRAPPED))
    assert max(table.bucket_bits for table in tables.tables) < min(table.key.width for table in tables.tables)
    counting = Counting(Forest(*[np.arange(TRAPPED)] * 2, TRAPPED))
    tables.find(signatures, counting)
    assert counting.asked < TRAPPED**2 // 10, "in ten tables"
    assert len(set(roots(TRAPPED, [counting.taken()]).tolist())) < TRAPPED // 10


@pytest.mark.parametrize("relation", RELATIONS[:3], ids=lambda r: r.design.name)
def test_keepers_keep_what_they_say(relation, monkeypatch):
    monkeypatch.setattr(probing, "CROWDED", 2)
    monkeypatch.setattr(probing, "TILE", 3)
    monkeypatch.setattr(probing, "NARROW", 1)
    monkeypatch.setattr(probing, "CANDIDATES", 9)
    monkeypatch.setattr(probing, "PROBES", 50)
    everything = pages(240, 3, relation)
    entries, probes = everything[:120], everything[120:]
    pairs = expected(entries, probes, relation)
    tables = built(entries, relation)
    oldest = OldestProbe(len(entries))
    first = {entry: min(p for p, e in pairs if e == entry) for _, entry in pairs}
    for wanted in (first, {}, first):
        tables.find(columns(probes, relation), oldest)
        assert dict(zip(*[column.tolist() for column in oldest.taken()][::-1], strict=True)) == wanted
        if not wanted:
            oldest.forget()
    forest = Forest(np.arange(120, 240), np.arange(120), 240)
    tables.find(columns(probes, relation), forest)
    ends = np.array(sorted((p + 120, e) for p, e in pairs)).T
    assert roots(240, [forest.taken()]).tolist() == roots(240, [tuple(ends)]).tolist()
