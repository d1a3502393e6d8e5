"""Which segments of an archive are to be merged: by levels, as in log-structured merge trees.

A segment of n pages is of level log4(n). Four of one level become one of the next: so an archive of n pages that come m
at a time has at most three segments for each of log4(n / m) levels, and each page is written once a level.

O'Neil, Cheng, Gawlick, O'Neil: The log-structured merge-tree (Acta Informatica 33, 1996); tiered as in Cassandra.
"""

from __future__ import annotations

from collections.abc import Sequence

FANOUT = 4
"""Fewer would be asked faster and written oftener: with 2, twice as often."""


def to_merge(pages: Sequence[int]) -> slice | None:
    """Which neighbours become one; None: none need to.

    Args:
        pages: of each segment, oldest first. Younger ones are smaller, as a rule.
    """
    levels = [_level(count) for count in pages]
    for level in sorted(set(levels)):
        start = len(levels)
        while start and levels[start - 1] <= level:
            start -= 1
        if levels[start:].count(level) >= FANOUT:
            return slice(start, len(levels))
    return None


def _level(pages: int) -> int:
    return (max(pages, 1).bit_length() - 1) // 2
