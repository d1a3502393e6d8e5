"""Groups of commands that are imported when they are run: each needs other libraries, and all of them take a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Lazy:
    """A command that is not imported yet.

    Attributes:
        place: module and name in it, `worker.cli.run:run`.
        help: what it does, in a line.
    """

    place: str
    help: str

    def imported(self) -> click.Command:
        """The command itself."""
        module, _, name = self.place.partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command), self.place
        return found


class LazyGroup(click.Group):
    """A group that knows where its commands are and what they do; the one that is asked for is imported."""

    lazy: ClassVar[Mapping[str, Lazy]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.lazy.get(cmd_name)
        return found.imported() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name].help) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.lazy[name].help) for name in commands]
        return found + click.Command.shell_complete(self, ctx, incomplete)
