"""Which of the pages that match each other is kept: those come first, and the rest is decided as ever.

    oldest        the first in the order of the inputs
    longest       that with most features
    newest        that with the latest `fetched_at`; those without, or with one that is no time (RFC 3339), come last
    field:NAME    that with the largest number in a field (a column) of the input; those without come last

Pages that are alike in that come in the order of the inputs. What a page is a duplicate of is so preferred to it, or as
good: who keeps the longest drops no page that is longer than its match.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from worker.batch.request import FIELD
from worker.errors import InputError

Numbers = NDArray[np.int64]
COLUMN = "preference"
"""Of a signed row: the number in the field that it is preferred by."""
_COLUMNS = {"oldest": "at", "longest": "features", "newest": "fetched_at"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def field_of(keep: str) -> str | None:
    """The field that pages are preferred by; None: by none."""
    return keep.removeprefix(FIELD) if keep.startswith(FIELD) else None


def columns_for(keep: str) -> list[str]:
    """The columns that it goes by."""
    return sorted({"at", _COLUMNS.get(keep, COLUMN)})


def number_of(value: Any) -> float | None:
    """A number of a field; None: it holds none."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return None if math.isnan(number) else number


def number_in_text(text: str) -> float | None:
    """A number as a CSV has it; None: it is none."""
    try:
        return number_of(float(text))
    except ValueError:
        return None


def number_in(line: bytes | None, field: str | None) -> float | None:
    """The number in a field of a JSON object; None: it has none there, or is none."""
    if field is None or line is None:
        return None
    try:
        told = msgspec.json.decode(line.removeprefix(BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return number_of(told.get(field)) if isinstance(told, dict) else None


def in_order(table: pa.Table, keep: str) -> Numbers:
    """The rows of a table with these columns, those first that are kept.

    Raises:
        InputError: no row has a number in the field.
    """
    at = np.asarray(table["at"].to_numpy(), np.int64)
    return np.lexsort((at, -_worth(table, keep)))


def _worth(table: pa.Table, keep: str) -> NDArray[np.float64]:
    """What each row is preferred by, the largest first."""
    if keep == "oldest":
        return np.zeros(len(table))
    column = table[_COLUMNS.get(keep, COLUMN)]
    if keep == "newest":
        return np.array([_seconds(text) for text in column.to_pylist()], np.float64)
    if len(column) and column.null_count == len(column):
        raise InputError(f"--keep {keep}: no page has a number in that field")
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), -math.inf).to_numpy())


def _seconds(text: str | None) -> float:
    """Since the epoch; of a time without a zone as if it were in UTC; none: before all others."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return -math.inf
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
