"""How an operator's command tells of its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

TELL_SECONDS = 2.0


def teller(seconds: float = TELL_SECONDS) -> Callable[[str], None]:
    """What writes a line of progress on standard error, when it is time for one."""
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= seconds:
            told = time.monotonic()
            click.echo(line, err=True)

    return tell


@contextmanager
def saying_what_is_next(line: str) -> Iterator[None]:
    """Say this on standard error when it is interrupted: what stays behind, and who goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {line}", err=True)
        raise
