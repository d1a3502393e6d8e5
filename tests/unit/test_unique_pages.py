"""The topic of unique pages, as the checker from outside holds it against what was told."""

import numpy as np
import pytest

from worker.verifying.answered import InputRecords
from worker.verifying.findings import Findings
from worker.verifying.unique_pages import Copies, check_copies
from worker.verifying.verdict_columns import UNTOLD, Spots

UNIQUE = {0: (1, 2, 4, 6, 7), 1: (0, 3)}
"""Offsets of the unique pages, by partition; the bytes of a record hash to ten times its offset, and its partition."""
RIGHT = {0: [10, 20, 40, 60, 70], 1: [1, 31]}


def held_against(copies, first=0):
    """What is found in a topic that has these records, where the input has lost those before the offset `first`."""
    spots, findings = Spots(), Findings()
    every = np.array([spots.number("pages", p, at) for p in UNIQUE for at in range(first, 9)])
    contents = np.array([10 * at + p for p in UNIQUE for at in range(first, 9)], np.uint64)
    inputs = InputRecords(every, contents, np.full(len(every), UNTOLD), contents)
    unique = np.array([spots.number("pages", p, at) for p, offsets in UNIQUE.items() for at in offsets])
    places = [spots.number("unique", p, 2 * at) for p, some in copies.items() for at in range(len(some))]
    flat = np.array([each for some in copies.values() for each in some], np.uint64)
    check_copies(unique[::-1], inputs, Copies(np.array(places, np.int64), flat), spots, findings)
    return findings


def test_the_records_of_all_unique_pages_in_order_are_right():
    found = held_against(RIGHT)
    assert (found.first, found.notes) == ([], [])


@pytest.mark.parametrize(
    ("copies", "said"),
    [
        ([10, 20, 60, 70], "unique[0]@2: wrong in the unique topic: is not pages[0]@4: "),
        ([10, 20, 40, 60], "unique[0]@6: wrong in the unique topic: is not pages[0]@7: "),
        ([10, 20, 40, 41, 60, 70], "unique[0]@6: wrong in the unique topic: is not pages[0]@4: "),
        ([10, 20, 40, 60, 60, 70], "unique[0]@6: wrong in the unique topic: is not pages[0]@4: "),
        ([20, 10, 40, 60, 70], "unique[0]@2: wrong in the unique topic: is not pages[0]@2: "),
        ([5, 10, 20, 40, 60, 70], "unique[0]@0: wrong in the unique topic: no page before those behind it"),
    ],
    ids=["one is missing", "the last is missing", "a duplicate", "one twice", "another order", "one too many"],
)
def test_what_is_wrong_is_told_once_with_its_place(copies, said):
    found = held_against(RIGHT | {0: copies})
    assert found.violations == 1
    assert found.first[0].startswith(said)


def test_what_is_older_than_the_topic_is_no_violation():
    found = held_against({0: [40, 60, 70], 1: []})
    assert (found.first, found.notes) == (
        [],
        ["4 unique pages are older than what the unique topic has of their partitions"],
    )


def test_what_the_input_has_no_more_is_no_violation():
    found = held_against(RIGHT, first=3)
    assert (found.first, found.notes) == ([], [])
