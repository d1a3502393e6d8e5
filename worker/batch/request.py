"""What a batch was asked to do, in plain values; imports neither Spark nor Arrow, which may be missing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from worker.errors import InputError
from worker.files.locations import in_utf8
from worker.settings import Settings

KEEP, FIELD = ("oldest", "longest", "newest"), "field:"
"""Which of the pages that match each other can be kept, or `FIELD` and a name: see `worker.batch.preference`."""

ANNOTATED = ("jsonl", "parquet", "csv", "tsv")
"""In what form annotated pages can be written."""
ANNOTATED_STEM, VERDICTS_PARQUET = "annotated", "verdicts.parquet"
"""The names of a result's files: of the annotated pages but for the form; of the verdicts, which are of all pages."""


@dataclass(frozen=True)
class Request:
    """One batch.

    Attributes:
        new, existing: names of inputs, in order.
        out: directory for what is written.
        master: Spark's; None: what spark-submit says, or this machine.
        memory: of each of Spark's Java processes.
        k: compare fingerprints alone, within so many bits; None: as the profile says.
        clusters: whether to report clusters.
        max_rejected: how many existing records may be unreadable; None: any.
        keep: which of the new pages that match each other.
        annotate: write the new pages once more, annotated, in this form; None: do not.
        force: overwrite what an earlier batch has written.
        summary: where the caller will write the figures: no input, that is.

    Raises:
        InputError: an input is given twice among the new ones, or Java cannot name the directory.
    """

    new: tuple[str, ...]
    existing: tuple[str, ...]
    out: Path
    settings: Settings
    master: str | None = None
    memory: str = "2g"
    k: int | None = None
    clusters: bool = False
    max_rejected: int | None = None
    keep: str = KEEP[0]
    annotate: str | None = None
    force: bool = False
    summary: Path | None = None

    def __post_init__(self) -> None:
        if in_utf8(self.out) != str(self.out):
            raise InputError(f"{self.out}: Spark takes no directory whose name is not UTF-8")
        for given in (self.new, self.existing):
            paths = [os.path.realpath(name) for name in given]
            for name, path in zip(given, paths, strict=True):
                if paths.count(path) > 1:
                    raise InputError(f"{name} is given twice: the second reading would be a replay of the first")


@dataclass(frozen=True)
class Watch:
    """How a run is stopped, and told about.

    Attributes:
        stopping: set: end as soon as possible.
        on_progress: called with a stage's name, how much of it is done, and how much there is (tasks; pages where
            verdicts are written).
    """

    stopping: threading.Event
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None
