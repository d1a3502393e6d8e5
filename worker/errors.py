"""Every error of the pipeline that is not the library's, with the exit code that it ends the program with; and how the
program says so: one clear line, no traceback.

    WorkerError
    ├── SettingsError       a setting is wrong (exit 2)
    ├── InputError          an input file cannot be read (exit 3)
    ├── TooFewJudged        no page was judged, or too many records were rejected (exit 1)
    ├── ChildrenFail        the processes that fingerprint pages do not start (exit 1)
    ├── BrokerError         Kafka refuses or is set up wrongly (exit 4)
    │   ├── BrokerUnreachable   a broker does not answer (`retriable`; exit 7)
    │   │   └── NobodyAnswers   none does
    │   ├── BatchAborted        this transaction failed; the next may not (`retriable`)
    │   └── SessionLost         this producer or consumer is done for: make new ones (`retriable`)
    │       └── Fenced          another producer has our transactional id
    └── PositionRewound     the group stands below the index's mark, or in another topic: an operator must say
                            that it is meant (exit 6)

Errors of the index (`simhash.errors.IndexFault`) end the program with 5, or 7 when it cannot be reached.
"""

from __future__ import annotations

import logging
import sys

from simhash.errors import IndexFault, IndexMigrated, IndexUnreachable, SimhashError, TableFault

log = logging.getLogger(__name__)

INDEX_EXIT_CODE = 5
UNREACHABLE_EXIT_CODE = 7


class WorkerError(Exception):
    """Base of the pipeline's errors."""

    exit_code = 1
    retriable = False


class SettingsError(WorkerError):
    """A setting is wrong; the message has a line for each."""

    exit_code = 2


class InputError(WorkerError):
    """An input file cannot be read as what it claims to be."""

    exit_code = 3


class TooFewJudged(WorkerError):
    """No page of the inputs was judged, or more records were rejected than the caller allows."""


class ChildrenFail(WorkerError):
    """The processes that fingerprint pages end before they are ready, again and again."""


class BrokerError(WorkerError):
    """Kafka refuses, or is set up in a way the worker cannot work with."""

    exit_code = 4


class BrokerUnreachable(BrokerError):
    """A broker that was asked does not answer; others may."""

    exit_code = 7
    retriable = True


class NobodyAnswers(BrokerUnreachable):
    """No broker answers."""


class BatchAborted(BrokerError):
    """The transaction was aborted; its pages will be read again."""

    retriable = True


class SessionLost(BrokerError):
    """The producer was fenced or failed for good, or the outcome of a commit is unknown: begin a new session."""

    retriable = True


class Fenced(SessionLost):
    """Another producer has begun a session under our transactional id."""


class PositionRewound(WorkerError):
    """The group's position is below the index's committed mark, or means records of a topic that is no more."""

    exit_code = 6


def exit_code_of(error: BaseException) -> int:
    """The exit code that an error ends the program with."""
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
        advice = ". Give the command again" if isinstance(error, IndexMigrated) else ""  # workers open it again
        sys.stderr.write(f"simhash-dedup: {whose and f'{whose}: '}{error}{advice}\n")
    else:
        log.critical("unforeseen: %r", error, exc_info=error)
