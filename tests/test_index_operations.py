"""What operators do with an index in Redis: the rows that it is moved by."""

import msgspec
import pytest

from simhash.index.rows import EndRow, MarkRow, RecordRow, Takedown, decoded, decoded_takedown, encoded


@pytest.mark.parametrize(
    "row",
    [
        RecordRow(3, 5, "00ff", None, "text:" + "ab" * 8, "cd" * 8, "http://a/", None, None),
        MarkRow("pages", 0, 7),
        EndRow(1, 1, 0),
    ],
)
def test_a_row_comes_back_from_its_line(row):
    line = encoded(row)
    assert line.endswith(b"\n")
    assert decoded(line) == row


def test_a_line_that_is_no_row_is_refused():
    for line in (b"{}", b'{"row":"page"}', b'{"row":"mark","topic":"pages"}'):
        with pytest.raises(msgspec.DecodeError):
            decoded(line)


def test_a_takedown_comes_back_from_its_line():
    row = Takedown("http://a/", 1, 2, "cd" * 8)
    assert decoded_takedown(encoded(row)) == row
