"""Runs of records, against what they promise."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from worker.records.passing import runs


@given(st.lists(st.binary(max_size=9)), st.integers(1, 20), st.none() | st.integers(1, 5))
def test_runs_hold_all_in_order_and_no_more_than_may_be_in_one(items, most_bytes, most):
    found = list(runs(items, len, most_bytes, most))
    assert [item for run in found for item in run] == items
    for run in found:
        assert run
        assert len(run) <= (most or len(items))
        assert sum(map(len, run)) <= most_bytes or len(run) == 1
    for run, behind in pairwise(found):
        assert len(run) == most or sum(map(len, [*run, behind[0]])) > most_bytes, "as few runs as may be"
