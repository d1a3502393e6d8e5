"""Runs of records that are worked on together, bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def runs(items: Iterable[T], size: Callable[[T], int], most_bytes: int, most: int | None = None) -> Iterator[list[T]]:
    """The items in their order, in runs of at most `most_bytes` and `most` items; what is larger stands alone.

    Args:
        size: an item's bytes.
        most: None: any number.
    """
    run: list[T] = []
    total = 0
    for item in items:
        own = size(item)
        if run and (len(run) == most or total + own > most_bytes):
            yield run
            run, total = [], 0
        run.append(item)
        total += own
    if run:
        yield run
