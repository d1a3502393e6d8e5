"""The new pages in memory, by groups: pages of one signature, or of one digest where there is no fingerprint.

Whatever matches one page of a group matches all, and they match each other: so only groups are compared, and a page
that is there a million times is one entry and one probe. Groups are numbered by first appearance, those with a
fingerprint first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simhash.index.interface import Relation
from worker.batch.columns import byte_rows, numbers, signatures_of
from worker.batch.preference import columns_for, in_order
from worker.batch.signatures import Signatures, verifier_bytes

Numbers = NDArray[np.int64]
READ = ["fingerprint", "verifier", "digest", "observation"]


@dataclass(frozen=True)
class Groups:
    """The new pages, numbered from 0 in the order of preference (`preference`), and their groups.

    Attributes:
        at: the pages' places, shape (pages,).
        group: each page's group, shape (pages,).
        first: each group's first page, shape (groups,).
        signatures: of the groups that have one: the first groups.
        digests: of the groups behind them, in order.
        observations: each page's, shape (pages,), 16 bytes.
    """

    at: Numbers
    group: Numbers
    first: Numbers
    signatures: Signatures
    digests: pa.Array
    observations: NDArray[np.bytes_]

    @property
    def signed(self) -> int:
        """How many groups have a signature."""
        return len(self.signatures)


def load(parts: Iterable[Path], relation: Relation, keep: str) -> Groups:
    """The pages in files of signed rows; rejected records are none."""
    pages = pc.is_null(pc.field("rejection"))
    columns = [*READ, *columns_for(keep)]
    table = pa.concat_tables([pq.read_table(part, columns=columns, filters=pages) for part in parts])
    table = table.take(pa.array(in_order(table, keep)))
    has_gate = np.asarray(pc.is_valid(table["fingerprint"]))
    group = np.zeros(table.num_rows, np.int64)
    signed = np.flatnonzero(has_gate)
    gated = table.take(pa.array(signed))
    group[signed] = _codes(_keys(gated, relation))
    firsts = signed[_first_rows(group[signed])]
    signatures = signatures_of(table.take(pa.array(firsts)), relation)
    rest = np.flatnonzero(~has_gate)
    digests = table["digest"].take(pa.array(rest)).combine_chunks()
    codes = _codes(digests)
    group[rest] = codes + len(firsts)
    first_rest = _first_rows(codes)
    return Groups(
        numbers(table["at"], np.int64),
        group,
        np.concatenate([firsts, rest[first_rest]]),
        signatures,
        pa.array(digests.take(pa.array(first_rest))),
        np.array(table["observation"].to_pylist(), dtype="S16"),
    )


def _keys(table: pa.Table, relation: Relation) -> pa.Array:
    """What two pages must have in common to be one to the relation, as binaries of one length."""
    columns = [np.ascontiguousarray(numbers(table["fingerprint"], np.uint64)).view(np.uint8).reshape(-1, 8)]
    if verifier_bytes(relation) and table.num_rows:
        columns.append(byte_rows(table["verifier"]))
    joined = np.ascontiguousarray(np.concatenate(columns, axis=1))
    width = joined.shape[1]
    return pa.Array.from_buffers(pa.binary(width), len(joined), [None, pa.py_buffer(joined)])


def _codes(keys: pa.Array) -> Numbers:
    """A number for each key: equal ones have the same, and they rise in the order of their first appearance."""
    return np.asarray(pc.dictionary_encode(keys).indices.to_numpy(), np.int64)


def _first_rows(codes: Numbers) -> Numbers:
    """Where each code appears first."""
    return np.unique(codes, return_index=True)[1]
