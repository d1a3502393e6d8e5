"""What the driver and the scripts report, as the library's errors: the edge where `redis` exceptions end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from simhash.errors import (
    IndexDamaged,
    IndexFault,
    IndexLost,
    IndexMigrated,
    IndexMisconfigured,
    IndexServerChanged,
    IndexUnreachable,
    StaleObservation,
)

REBUILD = (
    "Stop all workers and make the index again from the verdicts (simhash-dedup rebuild); or, if it is right as it is, "
    "say so (simhash-dedup index accept)"
)
IN_DOUBT = "Who doubts it makes it again from the verdicts (simhash-dedup rebuild)"
"""Said of a change of the server that lost nothing."""
SERVER_CHANGED = "Redis has another replication id than at the last call: it was restarted, restored or failed over"


class OutOfOrder(IndexFault):
    """A number that was to be stored is not the one behind the last."""


class BaseMoved(IndexFault):
    """The index is judged beside another base now; the message is its generation."""


_NOT_NOW = (
    redis.OutOfMemoryError,
    redis.ReadOnlyError,
    redis.exceptions.NoScriptError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
"""Memory full; a replica, as after a failover; a script that was given up once more; no primary. The driver has
taken the first word off their messages."""
_IN_PIPELINE = re.compile(r"Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
"""What the driver puts before an error within a pipeline: arguments, which are bytes of any kind."""
_IN_SCRIPT = re.compile(r"Error running script .*? -(?=[A-Z]+ )")
"""What Redis 6 puts before an error within a script."""
_WHERE_IN_SCRIPT = re.compile(r"\.? script: ([0-9a-f]{40}, )?on @user_script:\d+\.?$")
"""What Redis 7 and Valkey put behind it: of no use to an operator, and another one each time."""


_NO_LOGIN = ("HELLO must be called", "Authentication required")
"""A server with a password, to a client without one: at its first command, and at any other."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into IndexFaults."""
    try:
        yield
    except redis.AuthenticationError as error:
        raise IndexMisconfigured(f"Redis refuses the login: {_why_refused(str(error))}") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise IndexUnreachable(f"Redis does not answer: {error}") from error
    except _NOT_NOW as error:
        raise _not_now(_said(error)) from error
    except redis.exceptions.NoPermissionError as error:
        raise IndexMisconfigured(f"Redis refuses: {_said(error)}") from error
    except redis.ResponseError as error:
        raise _fault(_said(error)) from error
    except redis.RedisError as error:
        raise IndexMisconfigured(f"what answers there does not speak Redis: {error!r:.200}") from error


def _why_refused(said: str) -> str:
    """Without a login Redis speaks of the protocol's first command and its arguments, which an operator never sees."""
    return "it asks for a password, and its URL has none" if said.startswith(_NO_LOGIN) else said


def _said(error: redis.RedisError) -> str:
    """The server's own words."""
    return _IN_PIPELINE.sub("", str(error), count=1)


_ERROR_OF_LUA = "user_script:"
"""The script stumbled: over something that it did not write."""
_RETRIABLE = ("BUSY", "NOREPLICAS", "MISCONF", "OOM", "READONLY", "MASTERDOWN")


def _fault(message: str) -> IndexFault:
    message = _IN_SCRIPT.sub("", message, count=1)
    kind, _, rest = message.partition(" ")
    if kind == "STALE":
        journal, _, mark = rest.rpartition(" ")
        return StaleObservation(f"a page below the committed mark {mark} of {journal} was handed in")
    if kind == "BASE":
        return BaseMoved(rest)
    if kind == "PAUSE":
        return IndexUnreachable("the index is being moved to other tables: it answers again in a moment")
    if kind == "MOVING":
        return IndexUnreachable("the slot of the index is being moved to another node of its Redis Cluster")
    if kind == "ORDER":
        return OutOfOrder(f"Redis: {message}")
    if kind == "GENERATION" and rest == "false":
        return IndexLost(f"the index is gone: Redis was flushed, or came up without its data. {REBUILD}")
    if kind == "GENERATION":
        return IndexMigrated(f"the index's generation is now {rest}: it was rebuilt or migrated meanwhile")
    if kind == "EPOCH":
        return IndexServerChanged(SERVER_CHANGED)
    if kind == "LOST":
        return IndexLost(_lost(*rest.split()))
    if kind in _RETRIABLE:
        return _not_now(message)
    said = _WHERE_IN_SCRIPT.sub("", message)
    if kind == "WRONGTYPE" or _ERROR_OF_LUA in said:
        return IndexDamaged(f"Redis: {said}")
    return IndexFault(f"Redis: {message}")


def _not_now(message: str) -> IndexUnreachable:
    return IndexUnreachable(f"Redis cannot take writes now: {_WHERE_IN_SCRIPT.sub('', message)}")


def _lost(epoch: str, seq: str, present: str) -> str:
    return (
        f"the index lacks pages whose verdicts were committed: number {seq} was given under replication id "
        f"{epoch[13:]}, of which it has none beyond {present}. Redis was flushed, restored from an older copy, or "
        f"failed over to a replica that was behind. {REBUILD}"
    )
