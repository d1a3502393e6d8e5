"""How the program ends when something is wrong: one clear line, an exit code, no traceback."""

from __future__ import annotations

import logging
import sys

from simhash.errors import IndexFault, IndexUnreachable, SimhashError, TableFault
from worker.errors import INDEX_EXIT_CODE, UNREACHABLE_EXIT_CODE, InputError, WorkerError

log = logging.getLogger(__name__)


def exit_code_of(error: BaseException) -> int:
    """The exit code that an error ends the program with (see worker.errors)."""
    if isinstance(error, WorkerError):
        return error.exit_code
    if isinstance(error, IndexUnreachable):
        return UNREACHABLE_EXIT_CODE
    if isinstance(error, TableFault):
        return InputError.exit_code
    return INDEX_EXIT_CODE if isinstance(error, IndexFault) else 1


def report(error: BaseException, whose: str = "") -> None:
    """Say what was wrong; only what nobody foresaw gets a traceback.

    Args:
        whose: of several processes that write to one place, which.
    """
    if isinstance(error, WorkerError | SimhashError):
        sys.stderr.write(f"simhash-dedup: {whose and f'{whose}: '}{error}\n")
    else:
        log.critical("unforeseen: %r", error, exc_info=error)
