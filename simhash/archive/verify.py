"""Everything in a directory of tables, read and checked: bytes, order, counts, and that all tables hold the same.

That every fingerprint stands in every table is seen by a tally: the sum of a hash of each, which does not depend on
their order. Tables that differ in one entry have the same tally with a probability of 2^-64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simhash.archive.format import keys as arrays
from simhash.archive.format import manifest as manifests
from simhash.archive.format.keys import Keys
from simhash.archive.format.manifest import DIGESTS_FILE, RECORDS_FILE, Manifest, Part, identity, parts
from simhash.archive.format.record_file import Body, RecordCodec, RecordFile, key_number, tagged
from simhash.archive.format.table_file import TableFile
from simhash.archive.lookup.opened import verifier_bytes
from simhash.errors import TableFault
from simhash.features.shingles import mix64
from simhash.signature.minhash import BAND_BITS

_BATCH_RECORDS = 4096
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Progress = Callable[[str, int, int | None], None]


def tally(keys: Keys) -> int:
    """The sum of a hash of each key, modulo 2^64."""
    hashes = np.zeros(len(keys), np.uint64)
    for word in range(keys.shape[1]):
        hashes = mix64((hashes ^ keys[:, word]) + _GOLDEN)
    return int(hashes.sum(dtype=np.uint64))


def verify(directory: Path, on_progress: Progress = lambda *_: None) -> Iterator[str]:
    """What is wrong with a directory of tables, a line each; nothing: all is well.

    Args:
        on_progress: told the file, how many of its items are done, and how many there are.
    """
    try:
        manifest = manifests.read(directory)
    except TableFault as error:
        yield str(error)
        return
    verification = _Verification(directory, manifest, on_progress)
    yield from verification.files()
    for part in parts(manifest.relation):
        yield from verification.table(part)
    if manifest.records is not None:
        yield from verification.records()
        yield from verification.digests()
    yield from verification.tallies()


@dataclass
class _Verification:
    directory: Path
    manifest: Manifest
    on_progress: Progress
    _found: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The tally of each permutation table ("fingerprints") and each band ("band 0"), by file."""
    _expected: dict[str, int] = field(default_factory=dict)
    """The tallies that the records give."""

    def files(self) -> Iterator[str]:
        """Their names, sizes and checksums are those of the manifest."""
        listed = {file.name: file for file in self.manifest.files}
        there = {path.name for path in self.directory.iterdir()} - {manifests.NAME}
        for name in sorted(there - set(listed)):
            yield f"{self.directory / name} is not listed in {manifests.NAME}"
        for name, file in listed.items():
            path = self.directory / name
            if name not in there:
                yield f"{path} is missing"
            elif (size := path.stat().st_size) != file.bytes:
                yield f"{path} has {size:,} bytes, {manifests.NAME} says {file.bytes:,}"
            elif manifests.checksum(path) != file.checksum:
                yield f"{path} is damaged: its checksum is not the one in {manifests.NAME}"
            self.on_progress(name, 0, file.items)

    def table(self, part: Part) -> Iterator[str]:
        """Every block of a table decodes, in order, to the keys that the index announces."""
        path = self.directory / part.name
        try:
            table = TableFile(path, part.identity)
        except (TableFault, OSError) as error:
            yield str(error)
            return
        if part.band is None and len(table) != self.manifest.fingerprints:
            yield f"{path} holds {len(table):,} fingerprints, not {self.manifest.fingerprints:,}"
        total, done, damaged = 0, 0, False
        before = np.zeros((0, arrays.words(part.width)), np.uint64)
        for numbers in table.file.spans(1024):
            try:
                keys = table.decode(numbers)
            except TableFault:
                yield from _broken(table, numbers.tolist())
                damaged = True
                continue
            yield from _order_faults(path, table, numbers, np.concatenate((before, keys)), len(before))
            total += tally(keys if part.table is None else part.restored(keys))
            before, done = keys[-1:], done + len(keys)
            self.on_progress(part.name, done, len(table))
        if not damaged:
            what = "fingerprints" if part.band is None else f"band {part.band}"
            self._found[part.name] = (what, total % 2**64)

    def records(self) -> Iterator[str]:
        """Every record decodes, under ascending keys, and they are as many as there are fingerprints."""
        relation = self.manifest.relation
        bits, bands = relation.design.bits, relation.bands
        codec = RecordCodec(bits, verifier_bytes(relation))
        totals = dict.fromkeys(["fingerprints", *(f"band {band}" for band in range(bands))], 0)
        waiting: list[tuple[int, list[int]]] = []

        def count() -> None:
            keys = arrays.from_ints((fingerprint for fingerprint, _ in waiting), bits)
            totals["fingerprints"] += tally(keys)
            for band in range(bands):
                numbers = np.array([found[band] for _, found in waiting], np.uint64)
                some = numbers != 0
                totals[f"band {band}"] += tally(arrays.joined(numbers[some], BAND_BITS, keys[some], bits))
            waiting.clear()

        def take(body: Body) -> None:
            verifier = codec.decode(body.body, has_fingerprint=True).verifier
            waiting.append((key_number(body.key, bits), relation.band_keys(verifier)))
            if len(waiting) >= _BATCH_RECORDS:
                count()

        broken = list(self._side_file(RECORDS_FILE, "records", self.manifest.records, take))
        count()
        yield from broken
        if not broken:
            self._expected = {name: total % 2**64 for name, total in totals.items()}
            if self.manifest.records != self.manifest.fingerprints:
                yield f"{self.directory} has {self.manifest.records} records, {self.manifest.fingerprints} fingerprints"

    def digests(self) -> Iterator[str]:
        """Every record of a short page decodes and lies under its own digest."""
        codec = RecordCodec(self.manifest.relation.design.bits, verifier_bytes(self.manifest.relation))
        wrong: list[Body] = []

        def take(body: Body) -> None:
            if tagged(codec.decode(body.body, has_fingerprint=False).digest) != body.key:
                wrong.append(body)

        yield from self._side_file(DIGESTS_FILE, "digests", self.manifest.digests, take)
        for body in wrong:
            yield f"{self.directory / DIGESTS_FILE}: under the digest {body.key.hex()} lies a record with another"

    def _side_file(self, name: str, kind: str, items: int | None, take: Callable[[Body], None]) -> Iterator[str]:
        path = self.directory / name
        before, done = b"", 0
        try:
            file = RecordFile(path, identity(kind))
            if len(file) != items:
                yield f"{path} holds {len(file):,} records, not {items:,}"
            for body in file.scan():
                if body.key < before:
                    yield f"{path}: record {done} is out of order"
                take(body)
                before, done = body.key, done + 1
                self.on_progress(name, done, len(file))
        except (TableFault, OSError) as error:
            yield str(error)

    def tallies(self) -> Iterator[str]:
        """All tables hold the same fingerprints, and those of the records."""
        expected = dict(self._expected)
        for name, (what, total) in self._found.items():
            if total != expected.setdefault(what, total):
                yield f"{self.directory / name} holds other {what} than the records or the tables before it"


def _broken(table: TableFile, numbers: list[int]) -> Iterator[str]:
    """Which of these blocks cannot be decoded."""
    for number in numbers:
        try:
            table.decode(np.array([number]))
        except TableFault as error:
            yield str(error)


def _order_faults(path: Path, table: TableFile, numbers: NDArray[np.int64], keys: Keys, before: int) -> Iterator[str]:
    """Where keys descend, or a block's last is not the one that the index names."""
    if arrays.less(keys[1:], keys[:-1]).any():
        yield f"{path}: its keys are not in order"
    per_block = table.file.header.block_items
    ends = np.minimum((np.arange(len(numbers)) + 1) * per_block, len(keys) - before) - 1 + before
    wrong = (keys[ends] != table.file.lasts[numbers]).any(axis=1)
    for number in numbers[wrong].tolist():
        yield f"{path}: block {number} does not end with the key that the index names"
