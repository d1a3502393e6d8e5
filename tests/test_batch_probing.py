"""The vectorised tables and the greedy decision against the relation and against judging one by one."""

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.index import Entry, Relation
from simhash.tables import design
from tests.pages import banded, brute_force, crowd, flipped
from worker.batch import probing
from worker.batch.deciding import NONE, survivors
from worker.batch.signatures import of_columns, verifier_bytes
from worker.batch.tasks import PAIRS

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


def found(entries, probes, relation):
    """All matches by the tables, as pairs (probe, entry) with their distance."""
    tables = probing.build(relation, columns(entries, relation))
    pairs = [pair for block in tables.matches(columns(probes, relation)) for pair in zip(*block, strict=True)]
    assert len(pairs) == len({(probe, entry) for probe, entry, _ in pairs}), "a pair was found twice"
    return {(int(probe), int(entry)): int(distance) for probe, entry, distance in pairs}


def expected(entries, probes, relation):
    return {
        (i, j): (probe.fingerprint ^ entry.fingerprint).bit_count()
        for i, probe in enumerate(probes)
        for j, entry in enumerate(entries)
        if relation.matches(probe, entry)
    }


def pages(count, seed, relation):
    random = Random(seed)
    made = crowd(count, random, short_share=0.0)
    return banded(made, relation.bands, random)


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
    tables = probing.build(relation, of_columns(entries, None, relation))
    pairs = {
        (int(p), int(e))
        for block in tables.matches(of_columns(probes, None, relation))
        for p, e, _ in zip(*block, strict=True)
    }
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
    tables = probing.build(relation, of_columns(sides[0], None, relation))
    seen = list(tables.matches(of_columns(sides[1], None, relation)))
    pairs = {(int(p), int(e)) for block in seen for p, e, _ in zip(*block, strict=True)}
    hot = np.bitwise_count(sides[1][: count // 5, None] ^ sides[0][None, : count // 5]) <= 3
    assert pairs >= {(i, i) for i in range(100)}
    assert {pair for pair in pairs if max(pair) < count // 5} == set(
        zip(*map(np.ndarray.tolist, np.nonzero(hot)), strict=True)
    )


def greedy(entries: list[Entry], relation):
    """Answers from pairs, as `brute_force` writes them."""
    matches = sorted((later, earlier, d) for (later, earlier), d in found(entries, entries, relation).items())
    rows = [row for row in matches if row[1] < row[0]]
    tables = [
        pa.table(list(map(list, zip(*rows[at : at + 5], strict=True))), schema=PAIRS) for at in range(0, len(rows), 5)
    ]
    kept = survivors(np.ones(len(entries), bool), tables)
    numbers, answers = {}, []
    for page, match in enumerate(kept.match.tolist()):
        if match == NONE:
            numbers[page] = len(numbers) + 1
        answers.append(("unique", numbers[page]) if match == NONE else ("duplicate", numbers[match]))
    return answers


@pytest.mark.parametrize("relation", RELATIONS[:3], ids=lambda r: r.design.name)
def test_the_greedy_choice_is_that_of_judging_one_by_one(relation):
    for seed in range(5):
        entries = pages(80, seed, relation)
        assert greedy(entries, relation) == brute_force(entries, relation)


def test_in_a_chain_the_ends_survive():
    relation = Relation(design("4"), 3, None)
    base = Entry(bytes(16), None, 0, None, "text:", "http://a/")
    chain = [replace(base, fingerprint=value) for value in (0b000000, 0b000111, 0b111111)]
    assert greedy(chain, relation) == [("unique", 1), ("duplicate", 1), ("unique", 2)]
    assert greedy(chain[1:] + chain[:1], relation) == [("unique", 1), ("duplicate", 1), ("duplicate", 1)]
