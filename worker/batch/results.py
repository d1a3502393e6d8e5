"""What a batch writes: one sorted file of verdicts in two forms, what was rejected, and clusters.

Everything is in the order of the inputs. Files are written beside their places and take them when all are whole: of a
batch that did not end there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from simhash.index.interface import Duplicate, Record, Unique
from simhash.relation.overlap import rounded
from simhash.signature.profiles import Profile
from worker.batch.columns import PAGES, Row, page_of
from worker.batch.deciding import NONE, Decisions, Existing, Numbers
from worker.batch.request import ANNOTATED, ANNOTATED_STEM, VERDICTS_PARQUET
from worker.batch.slices import BatchInput, Slice
from worker.errors import InputError
from worker.files.inputs import open_input
from worker.files.pages_out import ANNOTATION_OF_ALL, Output, pages_out, writing
from worker.files.summary import Summary
from worker.judging.judge import entry_of, verdict_of
from worker.records.passing import RawRecord
from worker.records.verdict import Verdict, encode

VERDICTS_JSONL, REJECTED, CLUSTERS = "verdicts.jsonl", "rejected.jsonl", "clusters.jsonl"
WRITTEN = (
    *(VERDICTS_JSONL, VERDICTS_PARQUET, REJECTED, CLUSTERS),
    *(f"{ANNOTATED_STEM}.{form}" for form in ANNOTATED),
)
"""The names of all that a batch may write."""
MATCH = pa.struct(
    [
        ("url", pa.string()),
        ("id", pa.string()),
        ("distance", pa.uint8()),
        ("kind", pa.string()),
        ("same_url", pa.bool_()),
        ("fetched_at", pa.string()),
        ("seq", pa.int64()),
        ("same_host", pa.bool_()),
        ("similarity", pa.float64()),
        ("containment", pa.float64()),
        ("size", pa.int64()),
        ("is_canonical", pa.bool_()),
    ]
)
PREVIOUS = pa.struct([("fetched_at", pa.string()), ("distance", pa.uint8()), ("similarity", pa.float64())])
_OWN_TYPES = {
    "verdict": pa.string(),
    "match": MATCH,
    "profile": pa.string(),
    "better": pa.bool_(),
    "previous": PREVIOUS,
}
VERDICTS = pa.schema([(name, _OWN_TYPES.get(name) or PAGES.field(name).type) for name in Verdict.__struct_fields__])
"""The fields of a verdict; fingerprint, verifier and observation as numbers and bytes."""
ROWS = 1 << 14
ROW_GROUP = 1 << 18


@dataclass
class BatchSummary(Summary):
    """The figures of a batch.

    Attributes:
        existing: pages that it was compared with.
        existing_rejected: existing records that cannot be read, with which nothing was compared.
        duplicates_of_existing: of all duplicates, those of one of these.
        inputs: files read, on both sides.
        stage_seconds: wall time by stage.
        task_seconds: processor time of a stage's tasks, without that of the children that fingerprint.
    """

    existing: int = 0
    existing_rejected: int = 0
    duplicates_of_existing: int = 0
    inputs: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    task_seconds: dict[str, float] = field(default_factory=dict)


def rows_in_order(slices: Sequence[Slice], files: Sequence[Path]) -> Iterator[Row]:
    """All signed rows, in the order of the inputs; only the slices of one input are open at once."""
    pairs = zip(slices, files, strict=True)
    for _, parts in groupby(pairs, key=lambda pair: pair[0].source.number):
        yield from merge(*(_rows(file) for _, file in parts), key=lambda row: row["at"])


def _rows(file: Path) -> Iterator[Row]:
    for batch in pq.ParquetFile(file).iter_batches(ROWS // 16):
        yield from batch.to_pylist()


@dataclass(frozen=True)
class Judgement:
    """All that turns rows into verdicts.

    Attributes:
        at: of each page, by its number, where it stands in the inputs.
        files: all signed rows.
    """

    profile: Profile
    decisions: Decisions
    existing: Existing
    at: Numbers
    files: Sequence[Path]

    def verdicts(self, rows: Iterator[Row]) -> Iterator[tuple[Row, int, Verdict | None, bool]]:
        """Each row, in the order of the inputs, with its page's number (`Groups`) and its verdict, None and NONE for a
        rejected record; and whether it matches an existing page.
        """
        survivors = self._survivors()
        numbers = iter(np.argsort(self.at).tolist())
        decided = self.decisions
        for row in rows:
            if row["rejection"] is not None:
                yield row, NONE, None, False
                continue
            number = next(numbers)
            if seq := int(decided.seq[number]):
                decision: Unique | Duplicate = Unique(seq)
            else:
                page, existing = int(decided.page[number]), int(decided.row[number])
                match = survivors[page] if page != NONE else self._existing(existing)
                decision = Duplicate(int(decided.distance[number]), match)
            known = bool(decided.row[number] != NONE)
            yield row, number, verdict_of(page_of(row), decision, self.profile), known

    def _survivors(self) -> dict[int, Record]:
        """The new pages that others are duplicates of, by their numbers: they may come behind these."""
        wanted = np.unique(self.decisions.page[self.decisions.page != NONE])
        number_at = dict(zip(self.at[wanted].tolist(), wanted.tolist(), strict=True))
        these = pc.field("at").isin(pa.array(self.at[wanted]))
        found = {}
        for file in self.files if len(wanted) else ():
            for row in pq.read_table(file, filters=these).to_pylist():
                number = number_at[row["at"]]
                entry = entry_of(page_of(row), journalled=False)
                found[number] = Record.of(entry, int(self.decisions.seq[number]), 0)
        return found

    def _existing(self, row: int) -> Record:
        (told,) = self.existing.rows.slice(row, 1).to_pylist()
        verifier, features = told["verifier"], told["features"]
        return Record(
            told["seq"],
            0,
            told["observation"],
            None if verifier is None else int.from_bytes(verifier),
            told["digest"],
            told["url"],
            told["id"],
            told["fetched_at"],
            None if features is None else rounded(features),
        )


class Results:
    """The files of one batch, below `scratch` until they are whole.

    Args:
        annotated: the new pages once more, below `scratch` too; None: nobody asked.

    Raises (all methods): OSError, InputError.
    """

    def __init__(self, directory: Path, scratch: Path, annotated: Annotated | None = None) -> None:
        self._directory = directory
        self._scratch = scratch
        self._stack = ExitStack()
        self._names = [VERDICTS_JSONL, VERDICTS_PARQUET, REJECTED]
        self._annotated = annotated
        self._lines = self._open(VERDICTS_JSONL)
        self._rejected = self._open(REJECTED)
        self._columns = self._stack.enter_context(pq.ParquetWriter(scratch / VERDICTS_PARQUET, VERDICTS))
        self._pending: list[Row] = []

    def _open(self, name: str) -> IO[bytes]:
        return self._stack.enter_context((self._scratch / name).open("wb"))

    def verdict(self, row: Row, verdict: Verdict, copies: int) -> None:
        """Write a verdict, in both forms, on a page that so many match."""
        if self._annotated:
            self._annotated.write(verdict, copies)
        self._lines.write(encode(verdict) + b"\n")
        self._pending.append(_native(row, verdict))
        if len(self._pending) == ROW_GROUP:
            self._flush()

    def rejection(self, line: bytes) -> None:
        """Write what was rejected."""
        self._rejected.write(line)

    def clusters(self, lines: Iterable[bytes]) -> None:
        """Write the report of clusters."""
        self._names.append(CLUSTERS)
        with (self._scratch / CLUSTERS).open("wb") as file:
            file.writelines(lines)

    def _flush(self) -> None:
        if self._pending:
            self._columns.write_table(pa.Table.from_pylist(self._pending, schema=VERDICTS))
            self._pending = []

    def finish(self) -> None:
        """Close all files and give them their names: the verdicts last, so where they are, all is."""
        self._flush()
        self._stack.close()
        if self._annotated:
            self._annotated.finish()
            self._names.append(self._annotated.path.name)
        for name in WRITTEN:
            (self._directory / name).unlink(missing_ok=True)  # of an earlier batch: nothing of it may lie beside these
        for name in reversed(self._names):
            (self._scratch / name).replace(self._directory / name)

    def close(self) -> None:
        """After a failure: close what is open."""
        self._stack.close()


def _native(row: Row, verdict: Verdict) -> Row:
    """A verdict with the types of its columns."""
    said = {name: getattr(verdict, name) for name in Verdict.__struct_fields__}
    match = verdict.match
    said["match"] = match and {name: getattr(match, name) for name in match.__struct_fields__}
    return said | {name: row[name] for name in ("fingerprint", "verifier", "observation", "source")}


class Annotated:
    """The new pages once more, as they came, each with what it matches and how many pages match it.

    They are read again while the verdicts are written, in the same order.

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
        self.path = directory / f"{ANNOTATED_STEM}.{form}"
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
