"""Which segments of an archive become one, and what that costs."""

import pytest

from simhash.archive.segments.contents import to_merge


@pytest.mark.parametrize(
    ("pages", "merged"),
    [
        ([], None),
        ([1, 1, 1], None),
        ([3, 2, 1, 3], slice(0, 4)),
        ([4, 1, 1, 1, 1], slice(1, 5)),
        ([15, 4, 5, 7], slice(0, 4)),
        ([16, 4, 4, 4, 1, 1, 1], None),
        ([16, 4, 1, 1, 4, 1, 1], None),  # no four of one level stand together
        ([16, 4, 4, 1, 4, 4, 1], slice(1, 7)),  # smaller ones among them go with them
        ([1, 0, 0, 1], slice(0, 4)),
    ],
)
def test_four_neighbours_of_a_level_become_one(pages, merged):
    assert to_merge(pages) == merged


def test_an_archive_has_three_segments_a_level_at_most_and_writes_a_page_once_a_level():
    segments, written = [], 0
    for _ in range(1 << 12):  # 4 ** 6
        segments.append(1)
        while (place := to_merge(segments)) is not None:
            written += sum(segments[place])
            segments[place] = [sum(segments[place])]
        assert len(segments) <= 3 * 6
    assert (segments, written) == ([1 << 12], 6 << 12)
