"""Pages in columns: the one Arrow schema in which signed pages travel and lie between the stages, and its codecs.

A row is a page that can be judged, or a record that was rejected: then `rejection` holds what is written of it.
Columns are named as the fields of a verdict are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from simhash.index.interface import Relation
from simhash.signature.profiles import Signature
from worker.batch.signatures import Signatures, of_columns
from worker.judging.judge import Prepared, StageSeconds
from worker.records.hints import Hints
from worker.records.passing import Source
from worker.records.verdict import Verdict

SOURCE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), ("timestamp", pa.int64())]
)
PAGES = pa.schema(
    [
        ("at", pa.int64()),
        ("url", pa.string()),
        ("id", pa.string()),
        ("fingerprint", pa.uint64()),
        ("verifier", pa.binary()),
        ("digest", pa.string()),
        ("features", pa.int64()),
        ("seq", pa.int64()),
        ("fetched_at", pa.string()),
        ("observation", pa.binary()),
        ("source", SOURCE),
        ("canonical", pa.string()),
        ("language", pa.string()),
        ("robots", pa.string()),
        ("rejection", pa.binary()),
        ("preference", pa.float64()),
    ]
)
"""`at` orders all rows: the number of the input, and the record's place in it (see `place`)."""
INPUT_SHIFT = 40
NO_SECONDS = StageSeconds(0.0, 0.0, 0.0)

Row = Mapping[str, Any]


def place(number: int, position: int) -> int:
    """Where a record stands among all: its input's number, then its position in that."""
    return number << INPUT_SHIFT | position


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows, each with whichever columns it has."""
    return pa.table({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in PAGES})


def row_of_page(at: int, page: Prepared, verifier_bytes: int) -> Row:
    """A page that was prepared."""
    signature = page.signature
    verifier = signature.verifier
    return {
        "at": at,
        "url": page.url,
        "id": page.id,
        "fingerprint": signature.fingerprint,
        "verifier": None if verifier is None else verifier.to_bytes(verifier_bytes),
        "digest": signature.digest,
        "features": signature.features,
        "fetched_at": page.fetched_at,
        "observation": page.observation,
        "source": page.source._asdict(),
        **page.hints._asdict(),
    }


def row_of_verdict(at: int, verdict: Verdict) -> Row:
    """A page as an earlier verdict has it."""
    source = verdict.source
    return {
        "at": at,
        "url": verdict.url,
        "id": verdict.id,
        "fingerprint": None if verdict.fingerprint is None else int(verdict.fingerprint, 16),
        "verifier": None if verdict.verifier is None else bytes.fromhex(verdict.verifier),
        "digest": verdict.digest,
        "features": verdict.features,
        "seq": verdict.seq,
        "fetched_at": verdict.fetched_at,
        "observation": bytes.fromhex(verdict.observation),
        "source": {f: getattr(source, f) for f in source.__struct_fields__},
        **{name: getattr(verdict, name) for name in Hints._fields},
    }


def page_of(row: Row) -> Prepared:
    """The page in a row; no time was spent on it."""
    verifier = row["verifier"]
    signature = Signature(
        row["fingerprint"], None if verifier is None else int.from_bytes(verifier), row["digest"], row["features"]
    )
    source = Source(**row["source"])
    names = (row["url"], row["id"], row["fetched_at"])
    hints = Hints(*(row[name] for name in Hints._fields))
    return Prepared(source, row["observation"], *names, signature, NO_SECONDS, hints)


def signatures_of(table: pa.Table, relation: Relation) -> Signatures:
    """The signatures of rows that have a fingerprint."""
    gates = numbers(table["fingerprint"], np.uint64)
    if relation.verifier_reach is None:
        return of_columns(gates, None, relation)
    return of_columns(gates, byte_rows(table["verifier"]), relation)


def numbers(column: pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    """A column without nulls as an array, shape (n,)."""
    return np.asarray(column.to_numpy(), dtype=dtype)


def byte_rows(column: pa.ChunkedArray) -> NDArray[np.uint8]:
    """A column of equally long binaries without nulls, shape (n, bytes)."""
    if not len(column):
        return np.zeros((0, 0), np.uint8)
    width = len(column[0].as_py())
    fixed = pc.cast(column, pa.binary(width)).combine_chunks()
    fixed = fixed if isinstance(fixed, pa.Array) else fixed.chunk(0)
    data = np.frombuffer(fixed.buffers()[1], np.uint8)
    return data[fixed.offset * width : (fixed.offset + len(fixed)) * width].reshape(-1, width)
