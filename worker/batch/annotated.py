"""The new pages once more, as they came, each with what it matches and how many pages match it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from worker.batch.slices import BatchInput
from worker.errors import InputError
from worker.files.inputs import open_input
from worker.files.pages_out import ANNOTATION_OF_ALL, Output, pages_out, writing
from worker.records.passing import RawRecord
from worker.records.verdict import Verdict


class Annotated:
    """A file of annotated pages, which are read again while the verdicts are written, in the same order.

    Args:
        form: as in `request.ANNOTATED`.
        directory: where it is written.

    Raises:
        InputError: an input holds no pages, or none of this form; it has changed since it was judged; or it cannot be
            written.
    """

    def __init__(self, sources: Sequence[BatchInput], form: str, directory: Path, largest_page: int) -> None:
        if signed := [each.name for each in sources if each.kind in ("verdicts", "tables")]:
            raise InputError(f"{signed[0]} holds no pages but signatures: there is nothing to annotate")
        self.path = directory / f"annotated.{form}"
        names = [str(each.path) for each in sources]
        inputs = [open_input(name, largest_page, spool=False, keep=form != "jsonl") for name in names]
        self._pages = pages_out(self.path, inputs, self._opened, ANNOTATION_OF_ALL)
        self._records: Iterator[RawRecord] = (
            record for each in inputs for record in each.records() if isinstance(record, RawRecord)
        )

    def _opened(self, path: Path) -> Output:
        with writing(path.name):
            return Output(path.name, path.open("wb"))

    def write(self, verdict: Verdict, copies: int) -> None:
        """Write the page of a verdict; others before it were rejected."""
        for record in self._records:
            if (record.source.topic, record.source.offset) == (verdict.source.topic, verdict.source.offset):
                self._pages.write(record, verdict, copies)
                return
        raise InputError(f"an input has changed since its pages were judged: {verdict.url} is no longer there")

    def finish(self) -> None:
        """Write what is left."""
        self._pages.finish()
