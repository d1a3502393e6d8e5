"""A consumer that joins its group again although it polls without waiting.

The client asks to join while it is polled, and asks anew when it finds at the next poll that the answer has come in the
meantime: the answer is lost, all other members must join once more, and who always has work, and so never waits in a
poll, may not get back into its group for minutes. Here an answer is kept until a poll takes it.
"""

from __future__ import annotations

from typing import Any

from kafka.coordinator.base import BaseCoordinator
from kafka.errors import KafkaTimeoutError


class _Join:
    """The client's future of an attempt to join, which is not over before its result was taken.

    But one that timed out is: the client would take that for the end of its own wait, and wait for it for ever.
    """

    def __init__(self, future: Any) -> None:
        self._future = future
        self.add_callback = future.add_callback
        self.add_errback = future.add_errback

    @property
    def is_done(self) -> bool:
        """Whether the client should make a new attempt."""
        return isinstance(self._future.exception, KafkaTimeoutError)


def _kept(coordinator: Any) -> _Join | None:
    join: _Join | None = coordinator.__dict__["_join_task"]
    return join


def _keep(coordinator: Any, future: Any) -> None:
    coordinator.__dict__["_join_task"] = None if future is None else _Join(future)


def keep_answers() -> None:
    """Have the client's consumers do so from now on."""
    BaseCoordinator._join_task = property(_kept, _keep)
