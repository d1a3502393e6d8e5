"""The index that an operator's command is about, and how it tells of its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from simhash.index.redis import RedisIndex, existing_index
from worker.settings import Settings
from worker.stores import connect

TELL_SECONDS = 2.0


def opened(settings: Settings) -> RedisIndex:
    """The index that the settings name, as it is."""
    return existing_index(connect(settings), settings.index_name)


def teller(seconds: float = TELL_SECONDS) -> Callable[[str], None]:
    """What writes a line of progress on standard error, when it is time for one."""
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= seconds:
            told = time.monotonic()
            click.echo(line, err=True)

    return tell
