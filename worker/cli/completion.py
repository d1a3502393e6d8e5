"""What a shell asks for on the tab key: `eval "$(_SIMHASH_DEDUP_COMPLETE=bash_source simhash-dedup)"` sets it up."""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import shell_complete

NAME = "simhash-dedup"
VARIABLE = "_SIMHASH_DEDUP_COMPLETE"


def complete(commands: click.Command) -> None:
    """Answer a shell that asks, and end; nothing, where the command itself is called."""
    if instruction := os.environ.get(VARIABLE):
        sys.exit(shell_complete(commands, {}, NAME, VARIABLE, instruction))
