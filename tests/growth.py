"""Whether work grows with its input: by processor time at three sizes, each the best of a few tries."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

SIZES = (5_000, 20_000, 80_000)
TRIES = 3
NOISE_SECONDS = 0.05
"""What a try may take longer by chance: far below what a quadratic one takes at the largest size."""


def is_linear(work: Callable[[Any], object], make: Callable[[int], Any], sizes: tuple[int, ...] = SIZES) -> bool:
    """Whether four times the input takes less than eight times as long: a square would take sixteen."""
    taken = [min(_seconds(work, given) for _ in range(TRIES)) for given in map(make, sizes)]
    return all(more < 8 * less + NOISE_SECONDS for less, more in pairwise(taken))


def _seconds(work: Callable[[Any], object], given: Any) -> float:
    start = time.thread_time()
    work(given)
    return time.thread_time() - start
