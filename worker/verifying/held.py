"""The index against what was told: each unique page under its number, and nothing else.

An index is read in one way only: as the rows that `simhash-dedup index export` writes, a JSON object a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from worker.errors import InputError
from worker.verifying import told as codec
from worker.verifying.findings import Findings
from worker.verifying.forgetting import Forgetting
from worker.verifying.told import End, ExportedRecord, Head
from worker.verifying.verdict_columns import Held, HeldColumns, Numbers, Verdicts

NOT_HELD, NOT_TOLD, DIFFERS = "not in the index", "in the index only", "differs in the index"
BACK = "taken down, and in the index"
PROGRESS = Callable[[str], None]
TELL_EVERY = 10_000


def head_of(lines: Iterator[bytes]) -> Head:
    """The first row.

    Raises:
        InputError: the lines are no export.
    """
    first = _row(1, next(lines, b""))
    if not isinstance(first, Head):
        raise InputError("the export does not begin with the row of an index")
    return first


def held_in(lines: Iterator[bytes], tell: PROGRESS) -> Held:
    """The records behind the first row.

    Raises:
        InputError: the lines are no export, or one that was cut off.
    """
    columns, end = HeldColumns(), None
    for number, line in enumerate(lines, 2):
        row = _row(number, line)
        if isinstance(row, ExportedRecord):
            try:
                columns.add(row)
            except ValueError as error:
                raise InputError(f"row {number} of the export: {error}") from error
            if columns.count % TELL_EVERY == 0:
                tell(f"reading the index: {columns.count:,} records")
        elif isinstance(row, End):
            end = row
    if end is None or end.records != columns.count:
        raise InputError(f"the export was cut off: {columns.count:,} records, and its end does not say so many")
    return columns.held()


def _row(number: int, line: bytes) -> Head | ExportedRecord | End | None:
    try:
        return codec.row(line)
    except ValueError as error:
        raise InputError(f"row {number} is none of an index's export: {error}") from error


def check_index(verdicts: Verdicts, held: Held, forgetting: Forgetting, findings: Findings) -> None:
    """Hold the records against the unique pages."""
    unique = np.flatnonzero(verdicts.unique)
    unique = unique[np.argsort(verdicts.seq[unique], kind="stable")]
    there = np.isin(verdicts.seq[unique], held.seq)
    missing = unique[~there]
    missing = missing[~forgetting.may_be_gone(verdicts, missing)]
    findings.add(
        NOT_HELD, missing, lambda row: (verdicts.at(row), f"unique as number {verdicts.seq[row]:,}, no such record")
    )
    told = np.isin(held.seq, verdicts.seq[unique])
    findings.add(
        NOT_TOLD, held.seq[~told], lambda seq: ("index", f"number {seq:,} is of no page that was called unique")
    )
    numbers, count = np.unique(held.seq, return_counts=True)
    findings.add(NOT_TOLD, numbers[count > 1], lambda seq: ("index", f"number {seq:,} is there more than once"))
    _check_records(verdicts, held, unique[there], findings)
    _check_removed(verdicts, held, unique, forgetting, findings)


def _check_records(verdicts: Verdicts, held: Held, rows: Numbers, findings: Findings) -> None:
    """Each record is that of the page that was given its number; of one given twice, of either."""
    order = np.argsort(held.seq, kind="stable")
    records = order[np.searchsorted(held.seq[order], verdicts.seq[rows])]
    different = {
        "url, id or fetched_at": held.page[records] != verdicts.page[rows],
        "observation": held.observation[records] != verdicts.observation[rows],
        "digest": (held.digest[records] != verdicts.digest[rows, 0])
        | (held.is_text[records] != verdicts.is_text[rows]),
        "fingerprint": _words_differ(held.fingerprint[records], verdicts.fingerprint[rows])
        | (held.has_fingerprint[records] != verdicts.has_fingerprint[rows]),
        "verifier": _words_differ(held.verifier[records], verdicts.verifier[rows]),
    }
    wrong = np.logical_or.reduce(list(different.values()))
    right = np.unique(verdicts.seq[rows[~wrong]])
    told = {int(row): [what for what, where in different.items() if where[i]] for i, row in enumerate(rows) if wrong[i]}
    told = {row: what for row, what in told.items() if verdicts.seq[row] not in right}

    def words(row: int) -> tuple[object, str]:
        return verdicts.at(row), f"the record of number {verdicts.seq[row]:,} has another {', '.join(told[row])}"

    findings.add(DIFFERS, sorted(told), words)


def _words_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows that differ; numbers of another width are the same where what they have more is 0."""
    width = max(a.shape[1], b.shape[1])
    wide = [np.pad(each, ((0, 0), (width - each.shape[1], 0))) for each in (a, b)]
    found: np.ndarray = (wide[0] != wide[1]).any(axis=1)
    return found


def _check_removed(verdicts: Verdicts, held: Held, unique: Numbers, forgetting: Forgetting, findings: Findings) -> None:
    removed = unique[forgetting.taken_down(verdicts.observation[unique])]
    back = removed[np.isin(verdicts.observation[removed], held.observation)]
    findings.add(
        BACK, back, lambda row: (verdicts.at(row), f"number {verdicts.seq[row]:,} was taken down and is there")
    )
