"""File mode: the judgement of the stream over files, in input order, with nothing to start."""

from __future__ import annotations

import base64
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec
import xxhash

from simhash.index import Index
from simhash.profiles import Profile
from worker.errors import InputError
from worker.fingerprinters import Fingerprinters, Outcome, Pending
from worker.inputs import Input, Record
from worker.judge import Judged, Prepared, Rejected, judge
from worker.records import RawRecord, Source
from worker.verdict import Verdict, encode

BATCH_RECORDS = 128
EXAMPLES = 3
LARGEST_KEPT_VALUE = 1 << 20
"""A rejected record's bytes are written out up to here; of a longer one, its size and digest."""


@dataclass
class Summary:
    """The figures of a run; `--summary-json` writes them."""

    pages: int = 0
    unique: int = 0
    duplicates_exact: int = 0
    duplicates_near: int = 0
    same_url: int = 0
    rejected: int = 0
    skipped: int = 0
    seconds: float = 0.0
    complete: bool = False
    examples: list[Verdict] = field(default_factory=list)

    @property
    def pages_per_second(self) -> float:
        """Pages and rejected records a second, start-up included."""
        return (self.pages + self.rejected) / self.seconds if self.seconds else 0.0

    def count(self, verdict: Verdict) -> None:
        """Add a verdict."""
        self.pages += 1
        match = verdict.match
        if match is None:
            self.unique += 1
            return
        self.same_url += match.same_url
        if match.kind == "exact":
            self.duplicates_exact += 1
        else:
            self.duplicates_near += 1
            self._exemplify(verdict)

    def _exemplify(self, verdict: Verdict) -> None:
        """Keep examples of different distances: the first of each, as far as there are."""
        distances = [v.match.distance for v in self.examples if v.match]
        if verdict.match and verdict.match.distance not in distances and len(self.examples) < EXAMPLES:
            self.examples.append(verdict)

    def figures(self) -> dict[str, object]:
        """All but the examples, by name."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "examples"}
        return values | {"pages_per_second": round(self.pages_per_second, 1)}


class Outputs:
    """Where a run writes: verdicts, and optionally the unique pages with their index, and what was rejected.

    The unique pages' index has a line for each page: its URL, its `seq`, and the offset and length in bytes of its
    line in the file.
    """

    def __init__(self, out: IO[bytes], unique: Path | None, rejected: Path | None) -> None:
        self._files = ExitStack()
        self._out = out
        self._unique = self._open(unique)
        self._index = self._open(unique.with_name(unique.name + ".index") if unique else None)
        self._rejected = self._open(rejected)
        self._offset = 0

    def _open(self, path: Path | None) -> IO[bytes] | None:
        if path is None:
            return None
        try:
            return self._files.enter_context(path.open("wb"))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error

    def verdict(self, record: RawRecord, judged: Judged) -> None:
        """Write a verdict, and the page if it is unique."""
        self._out.write(encode(judged.verdict) + b"\n")
        if self._unique and self._index and judged.verdict.verdict == "unique":
            line = _line(record)
            self._unique.write(line)
            entry = {"url": judged.verdict.url, "seq": judged.verdict.seq, "offset": self._offset, "length": len(line)}
            self._index.write(msgspec.json.encode(entry) + b"\n")
            self._offset += len(line)

    def rejection(self, name: str, record: RawRecord | None, rejection: Rejected) -> None:
        """Write what was rejected, why, and its bytes."""
        if self._rejected is None:
            return
        value = record.value if record else None
        entry = {
            "input": name,
            "record": rejection.source.offset,
            "source": rejection.source._asdict(),
            "stage": rejection.stage,
            "error": rejection.error,
            "message": rejection.message,
        } | _kept(value)
        self._rejected.write(msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Close what this opened."""
        self._files.close()
        self._out.flush()


def _line(record: RawRecord) -> bytes:
    """A page as a line of JSONL: its own line, or one made for a page that came in another container."""
    page = record.page
    if page is None:
        return (record.value or b"").rstrip(b"\r\n") + b"\n"
    content = base64.b64encode(page.raw).decode()
    fields = {"url": page.url, "html_base64": content, "charset": page.charset}
    fields |= {"id": page.id, "fetched_at": page.fetched_at}
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None}) + b"\n"


def _kept(value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    if len(value) > LARGEST_KEPT_VALUE:
        return {"value_digest": f"{len(value)} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(value)}"}
    return {"value_base64": base64.b64encode(value).decode()}


@dataclass
class _Batch:
    name: str
    records: Sequence[Record]
    pending: Pending


def run_files(
    inputs: Sequence[Input],
    outputs: Outputs,
    index: Index,
    profile: Profile,
    fingerprinters: Fingerprinters,
    processes: int,
    stopping: threading.Event,
    on_progress: Callable[[Summary], None],
) -> Summary:
    """Judge all pages of `inputs`, in order.

    Raises:
        InputError: an input cannot be read.
        IndexFault: the index cannot answer.
    """
    summary = Summary()
    start = time.monotonic()
    under_way: deque[_Batch] = deque()
    batches = _batches(inputs, fingerprinters)
    while not stopping.is_set():
        under_way.extend(islice(batches, 2 * processes + 1 - len(under_way)))
        if not under_way:
            summary.complete = True
            break
        if under_way[0].pending.ready(0.2):
            _settle(under_way.popleft(), index, profile, outputs, summary)
        summary.seconds = time.monotonic() - start
        summary.skipped = sum(each.skipped for each in inputs)
        on_progress(summary)
    return summary


def _batches(inputs: Iterable[Input], fingerprinters: Fingerprinters) -> Iterator[_Batch]:
    for each in inputs:
        records = each.records()
        while batch := list(islice(records, BATCH_RECORDS)):
            raw = [record for record in batch if isinstance(record, RawRecord)]
            yield _Batch(each.name, batch, fingerprinters.submit(raw))


def _settle(batch: _Batch, index: Index, profile: Profile, outputs: Outputs, summary: Summary) -> None:
    """Judge a batch and write it, refused records in their places."""
    outcomes: dict[Source, Outcome] = {o.source: o for o in batch.pending.results()}
    outcomes |= {record.source: record for record in batch.records if isinstance(record, Rejected)}
    pages = [o for o in outcomes.values() if isinstance(o, Prepared)]
    judged = {j.verdict.observation: j for j in judge(pages, index, profile)}
    for record in batch.records:
        outcome = outcomes[record.source]
        raw = record if isinstance(record, RawRecord) else None
        if isinstance(outcome, Rejected):
            summary.rejected += 1
            outputs.rejection(batch.name, raw, outcome)
        elif raw is not None:
            verdict = judged[outcome.observation.hex()]
            summary.count(verdict.verdict)
            outputs.verdict(raw, verdict)
