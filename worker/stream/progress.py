"""A worker's progress, or why it makes none, told in its log now and then: for a terminal without a dashboard."""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 30.0
RAREST_SECONDS = 600.0


@dataclass
class Progress:
    """What was done since it was last told in the log."""

    since: float
    unique: int = 0
    duplicate: int = 0
    rejected: int = 0

    def add(self, unique: int, duplicate: int, rejected: int) -> None:
        """Count a committed batch."""
        self.unique += unique
        self.duplicate += duplicate
        self.rejected += rejected

    def tell(self, now: float, lag: int) -> None:
        """Write a line when it is time and there is something to tell."""
        done, seconds = self.unique + self.duplicate + self.rejected, now - self.since
        if seconds < PROGRESS_SECONDS:
            return
        if done:
            log.info(
                "%d pages in %.0f s (%.0f/s): %d unique, %d duplicate, %d dead letters; %d to go",
                *(done, seconds, done / seconds, self.unique, self.duplicate, self.rejected, lag),
            )
        self.since, self.unique, self.duplicate, self.rejected = now, 0, 0, 0


@dataclass
class Idleness:
    """Why a worker has nothing to do, told when it has lasted for `patience` seconds, and again at twice the time."""

    patience: float
    since: float | None = None
    next: float = 0.0
    told: bool = False

    def look(self, now: float, reason: str) -> None:
        """There is nothing to do now, for this reason; empty: there is."""
        if not reason:
            if self.told and self.since is not None:
                log.info("goes on after %.0f s", now - self.since)
            self.since, self.told = None, False
            return
        if self.since is None:
            self.since, self.next = now, now + self.patience
        if now >= self.next:
            log.warning("nothing to do for %.0f s: %s", now - self.since, reason)
            self.told = True
            self.next = now + min(now - self.since, RAREST_SECONDS)
