"""What retention and takedowns excuse, said once more row by row."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from worker.verifying.forgetting import OPEN, SLACK_MS, Forgetting, numbers_before
from worker.verifying.told import ToldTakedown
from worker.verifying.verdict_columns import OFFSET_BITS

AGE = 3600
"""Seconds that a page is kept, where pages age; in these an hour is 3,600,000 ms."""


def verdicts(count, seed):
    """Of three partitions in any order; some are unique, of some nobody knows when they were written."""
    random = Random(seed)
    unique = [random.random() < 0.6 for _ in range(count)]
    seqs = iter(random.sample(range(1, 5 * count), count))
    places = [random.randrange(3) << OFFSET_BITS | offset for offset in random.sample(range(9 * count), count)]
    moments = [random.choice([0, random.randrange(1, 3 * AGE) * 1000]) for _ in range(count)]
    return SimpleNamespace(
        seq=np.array([next(seqs) for _ in range(count)]),
        unique=np.array(unique),
        record=np.array(places),
        written_ms=np.array(moments),
        observation=np.array([random.getrandbits(64) for _ in range(count)], dtype=np.uint64),
    )


@pytest.mark.parametrize("named", [0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_the_number_before_a_page_is_that_of_the_next_unique_one_of_its_partition(seed, named):
    """Unless a duplicate names that one, and a page before it has a larger number."""
    told = verdicts(200, seed)
    duplicates = np.flatnonzero(~told.unique)[: int(200 * named)]
    told.seq[duplicates] = told.seq[told.unique][: len(duplicates)]
    found = numbers_before(told)
    unique = [(told.record[row] >> OFFSET_BITS, told.record[row], told.seq[row]) for row in np.flatnonzero(told.unique)]

    def passed_over(partition, place, seq):
        larger = any(p == partition and at < place and other > seq for p, at, other in unique)
        return larger and seq in told.seq[duplicates]

    passed = [each for each in unique if passed_over(*each)]
    assert bool(passed) == bool(named)
    for row, record in enumerate(told.record):
        behind = (each for each in unique if each[:2] >= (record >> OFFSET_BITS, record) and each not in passed)
        assert found[row] == min((seq for p, _, seq in behind if p == record >> OFFSET_BITS), default=OPEN)


@pytest.mark.parametrize("most", [None, 1, 50])
@pytest.mark.parametrize("age", [None, AGE])
def test_a_page_may_have_gone_by_its_age_or_by_the_number_of_those_behind_it(age, most):
    told = verdicts(200, seed=7)
    random = Random(1)
    former, page = (np.array([random.randrange(200) for _ in range(2000)]) for _ in range(2))
    before = np.array([random.randrange(1, 1000) for _ in range(200)])
    found = Forgetting.of(age, most, []).may_have_gone(told, former, page, before)

    def gone(a, b):
        then, now = told.written_ms[a], told.written_ms[b]
        by_age = age is not None and (not then or not now or now - then >= 1000 * age - SLACK_MS)
        return by_age or (most is not None and before[b] - told.seq[a] >= most)

    expected = [bool(gone(a, b)) for a, b in zip(former, page, strict=True)]
    assert found.tolist() == expected
    assert (len(set(expected)) == 2) == (age is not None or most is not None)


def test_the_edges_of_age_and_number_are_where_they_are_said_to_be():
    told = SimpleNamespace(seq=np.array([10, 99]), written_ms=np.array([5, 5 + 1000 * AGE - SLACK_MS]))
    rows = np.array([0]), np.array([1])
    before = np.array([0, 60])
    assert Forgetting.of(AGE, None, []).may_have_gone(told, *rows, before).tolist() == [True]
    assert Forgetting.of(AGE + 0.001, None, []).may_have_gone(told, *rows, before).tolist() == [False]
    assert Forgetting.of(None, 50, []).may_have_gone(told, *rows, before).tolist() == [True]
    assert Forgetting.of(None, 51, []).may_have_gone(told, *rows, before).tolist() == [False]


def test_a_page_may_be_gone_by_now():
    told = verdicts(100, seed=3)
    rows = np.arange(100)
    removed = [ToldTakedown(seq=1, observation=f"{told.observation[row]:016x}") for row in (4, 90)]
    assert np.flatnonzero(Forgetting.of(None, None, removed).may_be_gone(told, rows)).tolist() == [4, 90]
    assert Forgetting.of(AGE, None, []).may_be_gone(told, rows).all()
    newest = told.seq[told.unique].max()
    found = Forgetting.of(None, 200, removed).may_be_gone(told, rows)
    assert found.tolist() == [bool(told.seq[row] <= newest - 200 or row in (4, 90)) for row in rows]
    told.seq[told.unique.argmax()] = newest - 200
    assert Forgetting.of(None, 200, []).may_be_gone(told, np.array([told.unique.argmax()])).tolist() == [True]
    assert not len(Forgetting.of(None, 200, []).may_be_gone(told, np.arange(0)))
