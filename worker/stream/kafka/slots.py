"""Names for processes, free now and taken again after a restart: their transactional ids."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from worker.errors import SettingsError
from worker.scratch import opened_lock
from worker.settings import Settings

MOST_SLOTS = 1000


class Slot:
    """A name for this process that is free now and will be taken again after a restart: the transactional id.

    A restarted worker must come back under its id to end at once the transaction that its predecessor left open; two
    live workers must never share one, or they fence each other. So each takes the first free lock file of this host.

    Raises:
        SettingsError: there is no place for lock files.
    """

    def __init__(self, settings: Settings) -> None:
        self._lock, self.name = self._take(settings)
        _remove_abandoned()

    def _take(self, settings: Settings) -> tuple[int, str]:
        cluster = hashlib.blake2b(settings.bootstrap_servers.encode(), digest_size=4).hexdigest()
        try:
            start = os.path.join(tempfile.gettempdir(), f"simhash-dedup-{settings.group_id}-{cluster}")
        except FileNotFoundError as error:
            raise SettingsError(f"a worker locks a file in a temporary directory (TMPDIR): {error.strerror}") from error
        for number in range(MOST_SLOTS):
            self._path = f"{start}-{number}.lock"
            lock = _locked(self._path)
            if lock is not None:
                return lock, _transactional_id(settings, number)
        raise SettingsError(f"none of {MOST_SLOTS} lock files {start}-N.lock can be had by this user")

    def release(self) -> None:
        """Let another process have the slot."""
        with suppress(OSError):  # removed by somebody else
            os.unlink(self._path)
        os.close(self._lock)


def _remove_abandoned() -> None:
    """Remove the lock files that killed workers have left, of groups that may never come back."""
    for path in Path(tempfile.gettempdir()).glob("simhash-dedup-*.lock"):
        with suppress(OSError):  # somebody else's, in use, a link, or gone by now
            lock = opened_lock(path, create=False)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(lock)


def _transactional_id(settings: Settings, slot: int) -> str:
    if settings.transactional_id and settings.processes == 1:
        return settings.transactional_id
    start = settings.transactional_id or f"{settings.group_id}-{socket.gethostname()}"
    return f"{start}-{slot}"


def _locked(path: str) -> int | None:
    """A descriptor that holds the lock on a file; None when another process has it, or another user the file."""
    while True:
        try:
            lock = opened_lock(Path(path))
        except OSError:  # also a link, which is not followed
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # its last holder removed it before this process had the lock
