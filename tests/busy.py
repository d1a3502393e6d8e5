"""A Redis that a script keeps busy."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import redis

from tests.stream import until


@contextmanager
def kept_busy(client: Any) -> Iterator[None]:
    """Meanwhile a script keeps this client's Redis busy, and it says so to all who ask."""
    before = client.config_get("lua-time-limit")["lua-time-limit"]
    client.config_set("lua-time-limit", 1)
    with ThreadPoolExecutor() as other:
        endless = other.submit(client.eval, "while true do end", 0)
        try:
            until(lambda: _is_busy(client), "Redis says that it is busy")
            yield
        finally:
            client.execute_command("SCRIPT", "KILL")
            ended = endless.exception()
            client.config_set("lua-time-limit", before)
    assert isinstance(ended, redis.ResponseError)


def _is_busy(client: Any) -> bool:
    try:
        return not client.ping()
    except redis.ResponseError:
        return True
