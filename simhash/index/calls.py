"""Calls of one script over one connection: the next is sent before the answer to the last is read.

While the server works at one call the client packs another, so that a batch of several calls takes the time of the
longer of the two, not of both. Also here: how many pages a call should have.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

CALL_MICROSECONDS = 2000
"""Aim for one call: Redis serves nobody else meanwhile. We allow 10 ms, but a call that outlasts the kernel's slice of
time (3 ms) may wait for another one in its middle. Of calls half as long hardly any did, and a page cost the same."""
FIRST_PAGES = 25
MAX_PAGES = 48
"""Also behind pages that took next to no time, as those in the journal do: the next may take 0.1 ms each."""


class CallSize:
    """How many pages the next call should have: those that fit in `CALL_MICROSECONDS` at the second best pace of late.

    The pace is the server's own, not what its caller waits: that is longer by the calls of all others, and who made its
    calls smaller for it would only make them dearer. It is not a mean one, because a call may be held up by other
    processes; not the best, because pages that are in the journal take next to no time. What a call costs beyond that
    (buckets that have grown hot) the script bounds itself, by the work that it sees.
    """

    def __init__(self, remembered: int = 5) -> None:
        self._paces: deque[float] = deque(maxlen=remembered)
        self.pages = FIRST_PAGES

    def took(self, pages: int, microseconds: int) -> None:
        """The server took so long for a call of so many pages."""
        self._paces.append(max(1, microseconds) / pages)
        pace = sorted(self._paces)[len(self._paces) // 3]
        self.pages = max(1, min(MAX_PAGES, int(CALL_MICROSECONDS / pace), 2 * self.pages))

    def first(self, pages: int) -> int:
        """How many of a batch's pages its first call should have: a few where more follow. While they are packed the
        server has nothing to do; while it works at them, the next call is packed."""
        return pages if pages <= self.pages else max(1, self.pages // 4)


class Line:
    """A connection with calls under way."""

    def __init__(self, connection: Any, sha: str) -> None:
        self._connection = connection
        self._sha = sha

    def send(self, key: str, arguments: Sequence[object]) -> None:
        """Send a call."""
        self._connection.send_command("EVALSHA", self._sha, 1, key, *arguments)

    def receive(self) -> tuple[list[bytes], int]:
        """The answer to the earliest call under way, and the microseconds that it took the server.

        The script gives them behind its answer, or 0 where it cannot tell: then it is those that were waited.
        """
        began = time.perf_counter()
        answer: list[Any] = self._connection.read_response()
        waited = int(1e6 * (time.perf_counter() - began))
        return answer[:-1], answer[-1] or waited if answer else waited


class Script:
    """A script on a server."""

    def __init__(self, client: Any, source: str) -> None:
        self._client = client
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def load(self) -> None:
        """Give the script to a server that does not have it: at first, or after its restart."""
        self._client.script_load(self._source)

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection for calls; closed, not used again, when answers are left on it."""
        own = self._client.connection  # a client of a single connection has it here
        connection = own or self._client.connection_pool.get_connection()
        try:
            yield Line(connection, self._sha)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            if not own:
                self._client.connection_pool.release(connection)
