"""External sorting of keys: runs that were sorted in memory, merged a buffer of each at a time.

A run is a file of raw keys. Merging never holds more than one buffer of each run: all that is not above the smallest
of the buffers' last keys can be sorted and handed on, and that uses up a whole buffer at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from simhash.archive.format import keys as arrays
from simhash.archive.format.durable import whole
from simhash.archive.format.keys import Keys


@dataclass(frozen=True)
class KeyFile:
    """A file of raw keys of `size` words."""

    path: Path
    size: int

    def __len__(self) -> int:
        return self.path.stat().st_size // (8 * self.size)

    def chunks(self, count: int) -> Iterator[Keys]:
        """All its keys in order, `count` at a time."""
        with self.path.open("rb") as file:
            while data := file.read(8 * self.size * count):
                yield np.frombuffer(data, np.uint64).reshape(-1, self.size)

    def write(self, keys: Iterable[Keys]) -> None:
        """Make the file of these; it has its name when it is whole."""
        with whole(self.path) as file:
            for some in keys:
                file.write(np.ascontiguousarray(some).data)


class Run(Protocol):
    """Ascending keys that can be read in portions."""

    def chunks(self, count: int) -> Iterator[Keys]:
        """All keys in order, about `count` at a time."""


def merged(runs: Sequence[Run], buffer_keys: int) -> Iterator[Keys]:
    """The keys of all runs, ascending, in portions.

    Args:
        buffer_keys: how many keys of all runs together are held at a time.
    """
    each = max(1, buffer_keys // max(1, len(runs)))
    sources = [run.chunks(each) for run in runs]
    buffers = [_next(source) for source in sources]
    while any(buffer is not None for buffer in buffers):
        open_ = [buffer for buffer in buffers if buffer is not None]
        if len(open_) == 1:
            (only,) = (i for i, buffer in enumerate(buffers) if buffer is not None)
            yield open_[0]
            buffers[only] = _next(sources[only])
            continue
        lasts = arrays.in_order(np.concatenate([buffer[-1:] for buffer in open_]))[:1]
        taken = []
        for i, buffer in enumerate(buffers):
            if buffer is None:
                continue
            end = int(arrays.bound(buffer, lasts, after=True)[0])
            taken.append(buffer[:end])
            buffers[i] = buffer[end:] if end < len(buffer) else _next(sources[i])
        yield arrays.in_order(np.concatenate(taken))


def _next(source: Iterator[Keys]) -> Keys | None:
    return next((chunk for chunk in source if len(chunk)), None)
