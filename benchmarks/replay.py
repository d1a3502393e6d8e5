"""The limit of an index on Redis: the calls that it made, made again with a script that does nothing."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import redis

from benchmarks.meter import Stopwatch
from simhash.index.redis.index import Calls

EMPTY_SCRIPT = "return {}"


class RecordingConnection(redis.Connection):
    """A connection that remembers the script calls that went through it while there is a list for them."""

    sent: ClassVar[list[tuple[Any, ...]] | None] = None

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """As the driver's."""
        if self.sent is not None and args[0] == "EVALSHA":
            self.sent.append(args)
        driver: Any = super()
        driver.send_command(*args, **kwargs)


def replayed(client: redis.Redis) -> float:
    """Seconds that the recorded calls take with a script that does nothing."""
    sent, RecordingConnection.sent = RecordingConnection.sent or [], None
    watch = Stopwatch()
    for key, arguments in ((key, arguments) for _, _, _, key, *arguments in sent):
        with Calls(client, key, EMPTY_SCRIPT).line() as line:
            line.send(arguments)
            line.receive()
    return watch.wall


def replayed_singly(client: redis.Redis) -> list[float]:
    """Seconds of each recorded call with a script that does nothing: what Redis, the driver and the machine take."""
    sent, RecordingConnection.sent = RecordingConnection.sent or [], None
    seconds = []
    for _, _, _, key, *arguments in sent:
        calls, one = Calls(client, key, EMPTY_SCRIPT), time.perf_counter()
        with calls.line() as line:
            line.send(arguments)
            line.receive()
        seconds.append(time.perf_counter() - one)
    return seconds
