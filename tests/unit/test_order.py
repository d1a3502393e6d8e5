"""The rows of a rebuild, in the order of their numbers."""

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from simhash.index.rows import RecordRow
from worker.rebuilding import order

ROWS = st.builds(
    lambda seq, inserted_ms, observation: RecordRow(
        seq, inserted_ms, None, None, f"text:{seq:032x}", f"{observation:016x}", f"http://a/{seq}", None, None
    ),
    st.integers(1, 20),
    st.integers(0, 5),
    st.integers(0, 3),
)


@given(rows=st.lists(ROWS, max_size=40), run_rows=st.integers(1, 10))
def test_rows_come_in_the_order_of_their_numbers_each_time_they_are_asked_for(rows, run_rows):
    most, order.RUN_ROWS = order.RUN_ROWS, run_rows
    try:
        with order.Sorted() as taken:
            for row in rows:
                taken.add(row)
            expected = sorted(rows, key=lambda row: (row.seq, row.inserted_ms, row.observation))
            assert next(taken.rows(), None) == (expected[0] if rows else None)
            assert [list(taken.rows()), list(taken.rows())] == [expected, expected]
            assert taken.count == len(rows)
    finally:
        order.RUN_ROWS = most


def test_a_run_has_no_name_that_could_stay_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "RUN_ROWS", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with order.Sorted() as taken:
        taken.add(RecordRow(1, 0, None, None, f"text:{1:032x}", f"{1:016x}", "http://a/", None, None))
        assert list(tmp_path.iterdir()) == []
        assert len(list(taken.rows())) == 1
