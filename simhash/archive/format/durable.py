"""Files that are whole, and on the disk, when they have their name."""

from __future__ import annotations

import os
from pathlib import Path

from simhash.archive.format.container import PARTIAL


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and move it there: who sees the name sees all of it, after a crash too."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as file:
        file.write(data)
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
