"""Progress of a worker, told in its log now and then: for whoever has a terminal and no dashboard."""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 30.0


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
