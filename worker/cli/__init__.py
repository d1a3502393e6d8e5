"""The command `simhash-dedup`: one file a group of subcommands."""

from worker.cli.main import main

__all__ = ["main"]
