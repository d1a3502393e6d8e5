"""Calls of one script over one connection: a call is sent, and its answer read later, so that the client can work
meanwhile.

A connection on which something failed is closed: what is left on it must not be read as another call's answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis


class Line:
    """A connection, with one call under way at most."""

    def __init__(self, connection: Any, key: str, source: str, sha: str) -> None:
        self._connection = connection
        self._key = key
        self._source = source
        self._sha = sha
        self._arguments: Sequence[object] = ()

    def send(self, arguments: Sequence[object]) -> None:
        """Send a call."""
        self._arguments = arguments
        self._connection.send_command("EVALSHA", self._sha, 1, self._key, *arguments)

    def receive(self) -> list[bytes]:
        """The answer to the call under way. A server that lacks the script (a new one, or one that gave it up) gets
        it."""
        try:
            answer: list[bytes] = self._connection.read_response()
        except redis.exceptions.NoScriptError:
            self._connection.send_command("SCRIPT", "LOAD", self._source)
            self._connection.read_response()
            self.send(self._arguments)
            answer = self._connection.read_response()
        return answer


class Calls:
    """A script on the server of a client; its first key is always the same."""

    def __init__(self, client: Any, key: str, source: str) -> None:
        self._client = client
        self._key = key
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection for calls; closed, not used again, when one fails."""
        own = self._client.connection  # a client of a single connection has it here
        connection = own or self._client.connection_pool.get_connection()
        try:
            yield Line(connection, self._key, self._source, self._sha)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            if not own:
                self._client.connection_pool.release(connection)
