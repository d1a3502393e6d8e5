"""The command `simhash-dedup` and its subcommands, each imported when it is run: all of them together take a second."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import click
from click.shell_completion import CompletionItem, shell_complete

from worker.cli.terminal import guard_streams
from worker.errors import InputError, exit_code_of, report


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            likely = (path for name in self.list_commands(ctx) for path in self._paths(name))
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=likely, ctx=ctx) from None

    def _paths(self, name: str) -> Iterator[str]:
        """A command, and what is in it where that is known without loading more."""
        yield name
        module, _, own = self.lazy[name].place.partition(":")
        if module == __name__ and isinstance(group := globals()[own], LazyGroup):
            yield from (f"{name} {inner}" for inner in group.lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name].help) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.lazy[name].help) for name in commands]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version, and whether the native kernel is in use; the kernel is looked for only when asked."""
    if not asked or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    from simhash import native

    try:
        number = version(NAME)
    except PackageNotFoundError:
        number = "from the source tree"
    click.echo(f"simhash-dedup {number}, fingerprints by {native.describe()}")
    context.exit()


class _Index(LazyGroup):
    lazy: ClassVar = {
        "accept": Lazy("worker.cli.index:accept", "Announce that the index is right as it is."),
        "base": Lazy("worker.cli.base:base", "Show the archive beside which the index is judged, or announce another."),
        "check": Lazy("worker.cli.operating.check:check", "Verify that the index is whole."),
        "delete": Lazy("worker.cli.operating.delete:delete", "Forget pages by their URLs (takedowns)."),
        "export": Lazy("worker.cli.operating.transfer:export", "Write the index to a file."),
        "import": Lazy("worker.cli.operating.transfer:import_", "Store an exported index in Redis."),
        "migrate": Lazy("worker.cli.migrate:migrate", "Give a live index other tables, while workers go on."),
        "retire": Lazy("worker.cli.operating.retire:retire", "Move pages that age into the archive on disk."),
        "resume": Lazy("worker.cli.index:resume", "Go on behind what was answered, where Kafka forgot the offsets."),
        "rewind": Lazy("worker.cli.index:rewind", "Announce that a topic will be read again."),
        "stats": Lazy("worker.cli.operating.stats:stats", "Show how large the index is, and what takes the memory."),
    }


class _DeadLetters(LazyGroup):
    lazy: ClassVar = {
        "list": Lazy("worker.cli.dlq:list_", "Count them by their reason, and say where they are."),
        "replay": Lazy("worker.cli.dlq:replay", "Send their records back to the input."),
        "show": Lazy("worker.cli.dlq:show", "Show one: its error and its bytes."),
    }


class _Commands(LazyGroup):
    lazy: ClassVar = {
        "batch": Lazy("worker.cli.batch:batch", "Judge many pages against all before them, on Spark."),
        "dlq": Lazy("worker.cli.main:dlq", "Dead letters: list them, look at one, send them back."),
        "evaluate": Lazy("worker.cli.evaluate:evaluate", "Measure what profiles find, on labelled pages."),
        "explain": Lazy("worker.cli.explain:explain", "Show why two pages match, or do not."),
        "file": Lazy("worker.cli.file:file", "Judge the pages in files; nothing to start."),
        "hosts": Lazy("worker.cli.hosts:hosts", "Say of each host what is new, and which of its URLs never are."),
        "index": Lazy("worker.cli.main:index", "Look after an index: size, takedowns, export, migration …"),
        "inspect": Lazy("worker.cli.index:inspect", "Show what the index holds near a URL or fingerprint."),
        "plan": Lazy("worker.cli.plan:plan", "Show what an index would take and find, before there is one."),
        "rebuild": Lazy("worker.cli.rebuild:rebuild", "Make the index afresh from the verdicts."),
        "report": Lazy("worker.cli.report:report", "Make verdicts a page to look at in a browser."),
        "run": Lazy("worker.cli.run:run", "Judge the pages of a Kafka topic, exactly once."),
        "tables": Lazy("worker.cli.tables:tables", "Compressed tables on disk: build, merge, look up, verify."),
        "topics": Lazy("worker.cli.topics:topics", "Make the Kafka topics, or say what is wrong with them."),
        "verify": Lazy("worker.cli.verify:verify", "Check from outside what was told."),
    }


@click.group(cls=_Index)
def index() -> None:
    """Look after an index: what it holds and takes, and what an operator knows and it does not."""


@click.group(cls=_DeadLetters)
def dlq() -> None:
    """Look after dead letters: records that could not be judged, in the dead-letter topic.

    A letter is named by its place there, partition/offset.

    \b
      simhash-dedup dlq list                               # how many, why, where
      simhash-dedup dlq show 0/12                          # one: its error, its bytes
      simhash-dedup dlq replay --error decode              # what would be sent back to the input
      simhash-dedup dlq replay --error decode --execute    # send it
    """


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def commands() -> None:
    """Near-duplicate detection for web crawls: pages in, one `unique` or `duplicate` verdict a page out.

    \b
    Begin with files, nothing to start:
      simhash-dedup file pages.jsonl --out verdicts.jsonl
    then the same on a stream:
      simhash-dedup topics          # make the Kafka topics
      simhash-dedup run             # consume pages, emit verdicts, exactly once

    Settings come from --config FILE (TOML), from the environment (SIMHASH_DEDUP_REDIS_URL=…) and from flags, the
    later ones winning; `simhash-dedup run --print-config` shows what they come to.

    \b
    Exit codes:
      0 done                       4 Kafka refuses, or a topic is missing or unfit
      1 findings, or unforeseen    5 the index refuses
      2 settings or usage          6 the group is below what the index has committed
      3 a file cannot be           7 Kafka or Redis cannot be reached
        read or written         70 the worker stood still (stuck_after)
                               130 stopped by Ctrl-C before the end; file, tables and batch: or by SIGTERM
    """


def main() -> None:
    """Run the command line; every foreseen error is one line on standard error and an exit code."""
    _fill_closed_streams()
    _have_descriptors()
    guard_streams()
    complete(commands)
    try:
        # Not commands(): click would make exit code 1 of a broken pipe.
        with commands.make_context(NAME, sys.argv[1:]) as context:
            commands.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        _give_up_standard_output()  # nobody reads it any more: end as SIGPIPE would
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        told = (isinstance(error, OSError) and _of_a_file(error)) or error
        report(told)
        sys.exit(exit_code_of(told))


def _of_a_file(error: OSError) -> InputError | None:
    """What a command did not foresee of its files, in a line: the system says which, or that a disk is at fault."""
    if error.filename is not None:
        return InputError(f"cannot read or write {error.filename}: {error.strerror}")
    if error.errno == errno.ENOENT:  # of the module `tempfile`, which names where it looked
        return InputError(f"{error.strerror}; TMPDIR may name one")
    if error.errno not in (errno.ENOSPC, errno.EIO):
        return None
    _give_up_standard_output()
    return InputError(f"cannot {'write' if error.errno == errno.ENOSPC else 'read or write'}: {error.strerror}")


def _give_up_standard_output() -> None:
    """Let what is left to be flushed into it go nowhere: that would fail again at the end, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


MOST_FILES = 1 << 16
"""Where the system has no limit of its own."""


def _have_descriptors() -> None:
    """As many open files as the system allows, where it gives fewer unless it is asked. An archive has hundreds."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES if most == resource.RLIM_INFINITY else most, most))


def _fill_closed_streams() -> None:
    """Where a service manager starts us without standard streams, no file or socket may come into their places.

    What reads standard input or writes standard output then fails all the same; what is told on standard error is lost.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


NAME = "simhash-dedup"
VARIABLE = "_SIMHASH_DEDUP_COMPLETE"


def complete(commands: click.Command) -> None:
    """Answer a shell that asks what the tab key asks for, and end; nothing, where the command itself is called.

    `eval "$(_SIMHASH_DEDUP_COMPLETE=bash_source simhash-dedup)"` sets it up.
    """
    if instruction := os.environ.get(VARIABLE):
        sys.exit(shell_complete(commands, {}, NAME, VARIABLE, instruction))
