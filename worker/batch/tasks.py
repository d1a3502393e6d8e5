"""What the tasks do: sign new pages, scan existing ones (`pairing`: pair new ones); each writes one file, or none.

A task writes beside its place and renames, and its file is a function of its arguments alone: however often a task is
tried, and by how many at once, there is one file with the same rows in it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simhash.errors import SimhashError
from simhash.index.interface import STORED_BYTES, Relation
from worker.batch.columns import PAGES, byte_rows, numbers, signatures_of
from worker.batch.keeping import OldestProbe
from worker.batch.probing import Tables, build
from worker.batch.row_blocks import Counted, RowBlock, blocks
from worker.batch.signature_groups import Groups
from worker.batch.signatures import verifier_bytes
from worker.batch.signing import Signing
from worker.batch.slices import Slice
from worker.errors import InputError

OF_A_MATCH = ("at", "url", "id", "verifier", "digest", "features", "seq", "fetched_at", "observation")
MATCHES = pa.schema(
    [("group", pa.int64()), ("own", pa.int64()), ("distance", pa.uint8()), *(PAGES.field(n) for n in OF_A_MATCH)]
)
"""An existing page that new ones match: `group` and `distance`; or that is a new page itself, read again: `own` is
that page's number, and `group` is -1."""
REJECTIONS = pa.schema([PAGES.field("rejection")])
OBSERVATION_BITS = 24
KEPT_OBSERVATION = np.dtype(f">u{STORED_BYTES}")


class Done(NamedTuple):
    """What a task tells of its slice.

    Attributes:
        rows: how many it read.
        existing: those of them that new pages are compared with.
        skipped: records of a WARC that are no pages.
        numbered, last_seq: whether its pages have numbers, and the highest.
        cpu: processor seconds that it took.
        broken: why it cannot be read.
    """

    rows: int = 0
    existing: int = 0
    skipped: int = 0
    numbered: bool = False
    last_seq: int = 0
    cpu: float = 0.0
    broken: str | None = None


Part = tuple[int, Slice]
"""A slice and the number of the file that is made of it."""


def part_file(directory: Path, stage: str, number: int) -> Path:
    """The file that task `number` of a stage writes."""
    return directory / f"{stage}-{number:06}.parquet"


@contextmanager
def written(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """A function that adds rows to the file at `path`, which is there only when the context ends well."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".parquet", dir=path.parent)
    os.close(handle)
    try:
        with pq.ParquetWriter(name, schema) as writer:
            yield writer.write_table
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def answered(work: Callable[[], Done]) -> Done:
    """What the work told, and its cost. An input that is broken is so for every try: an answer, not a failure."""
    began = time.process_time()
    try:
        return work()._replace(cpu=time.process_time() - began)
    except (InputError, SimhashError) as error:
        return Done(broken=str(error))


# Signing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sign:
    """Makes signed rows of a slice."""

    directory: Path
    signing: Signing
    relation: Relation

    def __call__(self, part: Part) -> Done:
        """Write the rows of a slice."""
        return answered(lambda: self._done(*part))

    def _done(self, number: int, piece: Slice) -> Done:
        counted = Counted()
        with written(part_file(self.directory, "new", number), PAGES) as write:
            for block in blocks(piece, self.signing, counted):
                rows = block.columns(PAGES.names)
                _check_verifiers(rows, self.relation, piece.source.name)
                write(rows)
        return Done(rows=counted.rows, skipped=counted.skipped)


def _compared(relation: Relation) -> list[str]:
    """The columns that the relation compares."""
    return ["fingerprint", "verifier"] if verifier_bytes(relation) else ["fingerprint"]


def _check_verifiers(rows: pa.Table, relation: Relation, name: str) -> None:
    """Raise InputError where fingerprints lack the verifiers that the relation compares."""
    width = verifier_bytes(relation)
    if not width:
        return
    lengths = pc.fill_null(pc.binary_length(rows["verifier"]), 0)
    wrong = pc.and_(pc.is_valid(rows["fingerprint"]), pc.not_equal(lengths, width))
    if pc.any(wrong).as_py():
        raise InputError(
            f"{name} has fingerprints without a verifier of {width} bytes, which the profile compares; "
            "--k N compares fingerprints alone"
        )


# Scanning --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewPages:
    """The new pages as the existing ones are compared with them: what is broadcast.

    Attributes:
        tables: over the groups that have a fingerprint.
        digests: those of groups without one, and their groups' numbers, shape (n,).
        observations: as much of them as records keep, sorted, shape (n,); and the page's number of each.
        seen: whether an observation begins with these `OBSERVATION_BITS` bits.
    """

    tables: Tables
    digests: pa.Array
    digest_groups: NDArray[np.int64]
    observations: NDArray[np.uint64]
    observers: NDArray[np.int64]
    seen: NDArray[np.bool_]


def _leading_bits(observations: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The first `OBSERVATION_BITS` bits of observations, shape (n,), as numbers."""
    return (observations >> np.uint64(8 * STORED_BYTES - OBSERVATION_BITS)).astype(np.int64)


def new_pages(groups: Groups, relation: Relation, low: int, high: int) -> NewPages:
    """What is broadcast of the new pages: of the groups with a signature, those from `low` and before `high`."""
    kept = np.ascontiguousarray(groups.observations.view(np.uint8).reshape(-1, 16)[:, :STORED_BYTES])
    whole = kept.view(KEPT_OBSERVATION).reshape(-1)
    order = np.argsort(whole, kind="stable")
    observations = whole[order]
    seen = np.zeros(1 << OBSERVATION_BITS, bool)
    seen[_leading_bits(observations)] = True
    return NewPages(
        build(relation, groups.signatures.take(slice(low, high)), np.arange(low, high)),
        groups.digests,
        np.arange(groups.signed, len(groups.first)),
        observations,
        order,
        seen,
    )


@dataclass(frozen=True)
class Scan:
    """Compares a slice of the existing pages with all new ones."""

    directory: Path
    signing: Signing
    relation: Relation
    new: Any
    """A broadcast `NewPages`."""

    def __call__(self, part: Part) -> Done:
        """Write the matches in a slice: of each group the oldest, and what is a new page itself; and what is none."""
        return answered(lambda: self._done(*part))

    def _done(self, number: int, piece: Slice) -> Done:
        with written(part_file(self.directory, "rejections", number), REJECTIONS) as reject:
            return self._scanned(number, piece, reject)

    def _scanned(self, number: int, piece: Slice, reject: Callable[[pa.Table], None]) -> Done:
        existing = 0
        counted, numbered, last_seq, found = Counted(), False, 0, [MATCHES.empty_table()]
        keeper = OldestProbe(len(self.new.value.tables.entries))
        for block in blocks(piece, self.signing, counted):
            keys = block.columns(_compared(self.relation))
            _check_verifiers(keys, self.relation, piece.source.name)
            if piece.source.kind != "tables":
                reject(_rejections(block, keys))
            if "seq" in block.names:
                lowest, highest = _ages(block)
                if lowest < last_seq:
                    keeper.forget()
                numbered, last_seq = True, max(last_seq, highest)
            stands = _representatives(block)
            existing += int(stands.sum())
            for matches in _matches_in(block, keys, stands, self, keeper, piece.source.name):
                found = [oldest([*found, matches])]
        with written(part_file(self.directory, "matches", number), MATCHES) as write:
            write(found[0])
        return Done(counted.rows, existing, 0, numbered, last_seq)


def _rejections(block: RowBlock, keys: pa.Table) -> pa.Table:
    """What is said of the rows of a block that nobody can read."""
    rows = np.flatnonzero(np.asarray(pc.is_null(keys["fingerprint"])))
    if not len(rows):
        return REJECTIONS.empty_table()
    return block.columns(REJECTIONS.names, rows).drop_null().cast(REJECTIONS)


def _ages(block: RowBlock) -> tuple[int, int]:
    """The lowest and the highest number of a block's pages; 0 where they have none."""
    found = pc.min_max(block.columns(["seq"])["seq"]).as_py()
    return found["min"] or 0, found["max"] or 0


def oldest(matches: list[pa.Table], by: tuple[str, ...] = ("seq", "at")) -> pa.Table:
    """The first match of each group, and of each page that is itself there."""
    table = pa.concat_tables(matches)
    table = table.sort_by([(name, "ascending") for name in ("group", "own", *by)])
    keys = np.stack([np.asarray(table[name].to_numpy(), np.int64) for name in ("group", "own")])
    first = np.ones(table.num_rows, bool)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return table.filter(pa.array(first))


def _matches_in(
    block: RowBlock, keys: pa.Table, stands: NDArray[np.bool_], scan: Scan, keeper: OldestProbe, name: str
) -> Iterator[pa.Table]:
    new: NewPages = scan.new.value
    signed = _by_age(block, np.flatnonzero(stands & np.asarray(pc.is_valid(keys["fingerprint"]))))
    signatures = signatures_of(_rows_of(keys, signed), scan.relation)
    if not signatures.mostly_distinct():
        # Equal ones match the same, and only the oldest match counts: a crawler's trap is one probe.
        first = signatures.first_of_each()
        signed, signatures = signed[first], signatures.take(first)
    new.tables.find(signatures, keeper)
    probes, entries = keeper.taken()
    if len(probes):
        distances = np.bitwise_count(signatures.gates[probes] ^ new.tables.entries.gates[entries])
        yield _rows(block, signed[probes], group=new.tables.numbers[entries], distance=distances)
    unsigned = np.flatnonzero(stands & np.asarray(pc.is_null(keys["fingerprint"])))
    if len(unsigned) and len(new.digests):
        yield from _same_digests(block, unsigned, new)
    if "observation" in block.names:
        yield from _same_observations(block, stands, new, name)


def _representatives(block: RowBlock) -> NDArray[np.bool_]:
    """The rows that were called unique, and all of an input that does not say; never a rejected record."""
    stands = np.ones(len(block.at), bool)
    if "seq" in block.names:
        stands &= np.asarray(pc.is_valid(block.columns(["seq"])["seq"]))
    if "rejection" in block.names:
        stands &= np.asarray(pc.is_null(block.columns(["rejection"])["rejection"]))
    return stands


def _rows_of(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Those rows; no copy where it is all of them."""
    whole = len(rows) == table.num_rows and bool((rows == np.arange(len(rows))).all())
    return table if whole else table.take(pa.array(rows))


def _by_age(block: RowBlock, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows, the oldest first: by number where they have one; else as they come."""
    if "seq" not in block.names or not len(rows):
        return rows
    age = numbers(block.columns(["seq"], rows)["seq"], np.int64)
    return rows if (age[1:] >= age[:-1]).all() else rows[np.argsort(age, kind="stable")]


def _same_digests(block: RowBlock, rows: NDArray[np.int64], new: NewPages) -> Iterator[pa.Table]:
    digests = block.columns(["digest"], rows)["digest"]
    at = pc.index_in(digests, value_set=new.digests)
    hit = np.flatnonzero(np.asarray(pc.is_valid(at)))
    if len(hit):
        groups = new.digest_groups[np.asarray(at.take(pa.array(hit)).to_numpy(), np.int64)]
        yield _rows(block, rows[hit], group=groups, distance=np.zeros(len(hit), np.uint8))


def _same_observations(block: RowBlock, stands: NDArray[np.bool_], new: NewPages, name: str) -> Iterator[pa.Table]:
    rows = np.flatnonzero(stands)
    if not len(rows) or not len(new.observations):
        return
    kept = pc.binary_slice(block.columns(["observation"], rows)["observation"], 0, STORED_BYTES)
    if pc.any(pc.not_equal(pc.binary_length(kept), STORED_BYTES)).as_py():
        raise InputError(f"{name} has observations of less than {STORED_BYTES} bytes")
    own = np.ascontiguousarray(byte_rows(kept)).view(KEPT_OBSERVATION).reshape(-1)
    maybe = np.flatnonzero(new.seen[_leading_bits(own)])
    at = np.minimum(np.searchsorted(new.observations, own[maybe]), len(new.observations) - 1)
    same = new.observations[at] == own[maybe]
    if same.any():
        yield _rows(block, rows[maybe[same]], own=new.observers[at[same]])


def _rows(
    block: RowBlock,
    rows: NDArray[np.int64],
    group: NDArray[np.int64] | None = None,
    own: NDArray[np.int64] | None = None,
    distance: NDArray[np.uint8] | None = None,
) -> pa.Table:
    """Matches with all that is told of the existing page."""
    count = len(rows)
    least = np.full(count, -1, np.int64)
    distinct, back = np.unique(rows, return_inverse=True)
    told = block.columns(OF_A_MATCH, distinct).take(pa.array(back))
    columns = [
        pa.array(least if group is None else group),
        pa.array(least if own is None else own),
        pa.array(np.zeros(count, np.uint8) if distance is None else distance),
        *(told[name] for name in OF_A_MATCH),
    ]
    return pa.table(columns, schema=MATCHES)
