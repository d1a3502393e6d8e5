"""Files that are whole, and on the disk, when they have their name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from simhash.archive.format.container import PARTIAL


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, beside its place, and moved there at the end: who sees the name sees all of it, after a crash of
    the machine too."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    move_whole(partial, path)


def move_whole(source: Path, target: Path) -> None:
    """Give a file or directory, which is on the disk, its name; the name is on the disk too when this returns."""
    source.replace(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
