"""A directory of compressed tables as existing pages: its records, by blocks; of a bare set its fingerprints.

A set with records is read from its side files, which hold everything of a page; a bare one from one of its permutation
tables, whose fingerprints are permuted back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from simhash.archive.format import manifest as manifests
from simhash.archive.format.keys import Keys
from simhash.archive.format.manifest import DIGESTS_FILE, RECORDS_FILE, identity, parts
from simhash.archive.format.record_file import DIGEST_BITS, RecordCodec, RecordFile, key_number
from simhash.archive.format.table_file import TableFile
from simhash.archive.lookup.opened import verifier_bytes
from simhash.index.interface import Record
from worker.batch.columns import PAGES, Row, place, table_of
from worker.batch.made import Made
from worker.records.hints import Hints

OF_A_RECORD = frozenset(PAGES.names) - {"source", "rejection", "preference", *Hints._fields}
OF_A_BARE_SET = frozenset({"fingerprint"})


class Archive:
    """A set of tables, read block by block.

    Raises (all methods): TableMismatch, TableCorrupt: it is no set, or a block is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._manifest = manifests.read(directory)
        relation = self._manifest.relation
        self._bits = relation.design.bits
        self._codec = RecordCodec(self._bits, verifier_bytes(relation))
        self._part = next(part for part in parts(relation) if part.table is not None)
        self._files: list[RecordFile] = []
        if self._manifest.records is None:
            self._table = TableFile(directory / self._part.name, self._part.identity)
        else:
            named = ((RECORDS_FILE, "records"), (DIGESTS_FILE, "digests"))
            self._files = [RecordFile(directory / name, identity(kind)) for name, kind in named]

    @property
    def profile(self) -> str | None:
        """Name and version of the profile; None: nobody knows."""
        recipe = self._manifest.profile
        return None if recipe is None else f"{recipe['name']}/{recipe['version']}"

    @property
    def blocks(self) -> int:
        """How many there are, of all files that are read, one after the other."""
        return sum(each.file.header.blocks for each in self._files) if self._files else self._table.file.header.blocks

    @property
    def is_bare(self) -> bool:
        """Whether it holds fingerprints and nothing else."""
        return not self._files

    def records(self, number: int, low: int, high: int) -> pa.Table:
        """The records of some blocks, as rows; `number`: of the input."""
        return table_of(list(self._records(number, low, high)))

    def fingerprints(self, number: int, low: int, high: int) -> Made:
        """The fingerprints of some blocks of a bare set."""
        keys: Keys = self._part.restored(self._table.decode(np.arange(low, high)))
        offsets = low * self._table.file.header.block_items + np.arange(len(keys))
        topic = f"file:{self._directory.name}"
        return Made(
            pa.table({"fingerprint": keys[:, 0]}), offsets + place(number, 0), offsets, topic, self._directory.name
        )

    def _records(self, number: int, low: int, high: int) -> Iterator[Row]:
        start = 0
        for file, signed in zip(self._files, (True, False), strict=True):
            blocks = file.file.header.blocks
            begin, end = max(low - start, 0), min(high - start, blocks)
            position = place(number, (start + begin) * file.file.header.block_items)
            for at, body in enumerate(file.scan(begin, end) if begin < end else (), position):
                record = self._codec.decode(body.body, has_fingerprint=signed)
                yield self._row(at, record, key_number(body.key, self._bits if signed else DIGEST_BITS), signed)
            start += blocks

    def _row(self, at: int, record: Record, key: int, signed: bool) -> Row:
        verifier = record.verifier
        return {
            "at": at,
            "url": record.url,
            "id": record.id,
            "fingerprint": key if signed else None,
            "verifier": None if verifier is None else verifier.to_bytes(self._codec.verifier_bytes),
            "digest": record.digest,
            "features": record.features,
            "seq": record.seq,
            "fetched_at": record.fetched_at,
            "observation": record.observation,
        }
