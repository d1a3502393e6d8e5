"""Directories for the time of a run, removed at its end; after a kill, at the next start.

A directory is held by a lock on a file in it, so that one whose owner was killed is known by its lock being free.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "held"


@contextmanager
def scratch_directory(prefix: str) -> Iterator[tuple[Path, int]]:
    """A new directory, and the file descriptor that holds it: a process that inherits it holds it too.

    Args:
        prefix: of its name; what earlier runs have left under the same is removed first.
    """
    _remove_abandoned(prefix)
    directory, lock = _held(prefix)
    try:
        yield directory, lock
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def opened_lock(path: Path, create: bool = True) -> int:
    """A lock file's descriptor; raises OSError, also where there is a link in its place."""
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)


def _held(prefix: str) -> tuple[Path, int]:
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        lock = opened_lock(directory / _LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return directory, lock
        os.close(lock)  # another start took it for abandoned before it was locked


def _remove_abandoned(prefix: str) -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else's, or in use
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            lock = opened_lock(directory / _LOCK, create=False)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
            finally:
                os.close(lock)
