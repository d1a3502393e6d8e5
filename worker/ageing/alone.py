"""One program at a time: a lock on a file, which ends with the program however that ends.

It saves work, and is not needed for safety: the index is moved from one moment of its archive to the next by one of
those who try (see `simhash.index.redis.operators.retiring`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(directory: Path, what: str) -> Iterator[bool]:
    """Whether nobody else does this in the directory now; if so, nobody else does until the end."""
    descriptor = os.open(directory / f".{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
