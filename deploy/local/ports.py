"""Free TCP ports on the loopback address."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"

# Below the range that Linux hands to outgoing connections (32768 and up): a port chosen here is still free
# when a server is restarted on it, however many clients connected in between.
LOWEST, HIGHEST = 20_000, 29_999

_reserved: list[IO[str]] = []
"""A locked file for each port that this process has drawn."""


def free_port() -> int:
    """A port that nothing listens on, and that nobody else draws as long as this process runs.

    A server takes seconds until it listens; another run could draw the port meanwhile.
    """
    for port in random.sample(range(LOWEST, HIGHEST + 1), 200):
        if is_free(port) and _reserve(port):
            return port
    raise OSError(f"no free port among 200 tried between {LOWEST} and {HIGHEST}")


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        # Servers set this too; without it a port whose last connections linger would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    """Lock the port's file; False when it is locked already."""
    directory = Path(tempfile.gettempdir()) / f"simhash-dedup-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    file = (directory / str(port)).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _reserved.append(file)
    return True
