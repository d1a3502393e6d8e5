"""Free TCP ports on the loopback address."""

import random
import socket

HOST = "127.0.0.1"

# Below the range that Linux hands to outgoing connections (32768 and up): a port chosen here is still free
# when a server is restarted on it, however many clients connected in between.
LOWEST, HIGHEST = 20_000, 29_999


def free_port() -> int:
    """A port that nothing listens on, drawn at random so that parallel runs do not meet."""
    for port in random.sample(range(LOWEST, HIGHEST + 1), 200):
        if is_free(port):
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
