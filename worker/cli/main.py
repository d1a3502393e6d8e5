"""The command `simhash-dedup` and its subcommands."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from simhash import native
from worker.cli.base import base
from worker.cli.batch import batch
from worker.cli.evaluate import evaluate
from worker.cli.explain import explain
from worker.cli.file import file
from worker.cli.index import index, inspect
from worker.cli.migrate import migrate
from worker.cli.operating import COMMANDS as OPERATING
from worker.cli.plan import plan
from worker.cli.rebuild import rebuild
from worker.cli.report import report
from worker.cli.run import run
from worker.cli.tables import tables
from worker.cli.terminal import guard_streams
from worker.cli.topics import topics
from worker.cli.verify import verify
from worker.errors import InputError
from worker.failure import exit_code_of
from worker.failure import report as report_failure


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version, and whether the native kernel is in use; the kernel is looked for only when asked."""
    if not asked or context.resilient_parsing:
        return
    try:
        number = version("simhash-dedup")
    except PackageNotFoundError:
        number = "from the source tree"
    click.echo(f"simhash-dedup {number}, fingerprints by {native.describe()}")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
        read or written          130 stopped by Ctrl-C or SIGTERM before the end
    """


index.add_command(base)
for command in (run, file, batch, topics, plan, rebuild, verify, index, inspect, evaluate, explain, report, tables):
    commands.add_command(command)
for command in (*OPERATING, migrate):
    index.add_command(command)


def main() -> None:
    """Run the command line; every foreseen error is one line on standard error and an exit code."""
    _fill_closed_streams()
    guard_streams()
    try:
        # Not commands(): click would make exit code 1 of a broken pipe.
        with commands.make_context("simhash-dedup", sys.argv[1:]) as context:
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
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _give_up_standard_output()
            error = InputError(f"cannot write: {error.strerror}")
        report_failure(error)
        sys.exit(exit_code_of(error))


def _give_up_standard_output() -> None:
    """Let what is left to be flushed into it go nowhere: that would fail again at the end, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
