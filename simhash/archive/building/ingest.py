"""The first step of a build: what comes in is cut into chunks that fit into memory, each kept on disk as it is whole.

A chunk is the fingerprints of some items as raw keys in the order of their coming, their band keys likewise, and their
records as a sorted run. `state.json` names the chunks that are whole and how many items of the source they hold, so a
build that was killed goes on behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from simhash.archive.building.sorting import KeyFile
from simhash.archive.format import keys as arrays
from simhash.archive.format.durable import whole
from simhash.archive.format.keys import Keys
from simhash.archive.format.record_file import DIGEST_BITS, Body, RecordCodec, read_run, write_run
from simhash.decoding import Decoder
from simhash.errors import TableCorrupt, TableMismatch
from simhash.index.interface import Record
from simhash.signature.minhash import BAND_BITS

STATE = "state.json"
BODY_OVERHEAD_BYTES = 200
"""About what Python needs for a body in a list beside its bytes."""


@dataclass(frozen=True)
class Portion:
    """Some items of a source: bare fingerprints, or records with theirs (None: of a page too short for one).

    Attributes:
        items: how many items of the source this is; what is passed over counts too.
    """

    items: int
    keys: Keys | None = None
    records: Sequence[tuple[int | None, Record]] = ()


class EntrySource(Protocol):
    """What a set is built from."""

    def batches(self, skip: int) -> Iterator[Portion]:
        """What comes after the first `skip` items; the same items in the same order whenever it is asked."""


@dataclass(frozen=True)
class Holding:
    """What a set is to hold.

    Attributes:
        bits: width of the fingerprints.
        records: whether there are records; else the set is bare.
        verifier_bytes: of each record's verifier, band keys included.
        bands: band keys behind it.
    """

    bits: int
    records: bool
    verifier_bytes: int = 0
    bands: int = 0


class Chunk(msgspec.Struct, frozen=True):
    """What one chunk holds: source items passed, fingerprints, records with and without, keys of each band."""

    items: int
    fingerprints: int
    records: int
    digests: int
    bands: list[int]


class BuildState(msgspec.Struct):
    """How far a build has come."""

    job: str
    chunks: list[Chunk]
    complete: bool


_decoder = Decoder(BuildState)


def job_of(directory: Path) -> str | None:
    """The job that a working directory was made for; None: there is none."""
    try:
        return _state_in(directory).job
    except (FileNotFoundError, NotADirectoryError):
        return None


def _state_in(directory: Path) -> BuildState:
    try:
        return _decoder.decode((directory / STATE).read_bytes())
    except msgspec.DecodeError as error:
        raise TableCorrupt(f"{directory / STATE} is damaged: {error}. Remove {directory}, and build again") from error


@dataclass
class Ingest:
    """The chunks of one build, in its working directory.

    Args:
        job: names source and settings; a directory that was begun for another job is refused.
        most_keys: fingerprints of a chunk.
        most_bytes: of the records of a chunk, while they are in memory.

    Raises:
        TableMismatch: the directory was begun for another job.
        TableCorrupt: how far it has come cannot be read.
    """

    directory: Path
    job: str
    holding: Holding
    most_keys: int
    most_bytes: int
    state: BuildState = field(init=False)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / STATE
        if not path.exists():
            self.state = BuildState(self.job, [], False)
            self._save()
            return
        self.state = _state_in(self.directory)
        if self.state.job != self.job and not self.state.chunks and not self.state.complete:
            # Nothing was kept of it: an input that was refused and then mended, say.
            self.state = BuildState(self.job, [], False)
            self._save()
        if self.state.job != self.job:
            raise TableMismatch(f"{self.directory} holds an unfinished build of something else: remove it first")

    @property
    def items(self) -> int:
        """Items of the source that lie in whole chunks."""
        return sum(chunk.items for chunk in self.state.chunks)

    def run(self, source: EntrySource, on_items: Callable[[int], None]) -> None:
        """Take in all that is not in a chunk yet; `on_items` is told of each batch."""
        if self.state.complete:
            return
        open_ = _Open(self)
        for batch in source.batches(self.items):
            open_.add(batch)
            on_items(batch.items)
            if open_.full():
                open_.close()
                open_ = _Open(self)
        open_.close()
        self.state.complete = True
        self._save()

    def accept(self, chunk: Chunk) -> None:
        """A chunk is whole."""
        self.state.chunks.append(chunk)
        self._save()

    def _save(self) -> None:
        with whole(self.directory / STATE) as file:
            file.write(msgspec.json.encode(self.state))

    def fingerprints(self, chunk: int) -> KeyFile:
        """The raw fingerprints of a chunk."""
        return KeyFile(self.directory / f"fingerprints-{chunk:04}", arrays.words(self.holding.bits))

    def band(self, band: int, chunk: int) -> KeyFile:
        """The raw band keys of a chunk, each with its fingerprint behind it."""
        return KeyFile(self.directory / f"band{band}-{chunk:04}", arrays.words(BAND_BITS + self.holding.bits))

    def bodies(self, kind: str, chunk: int) -> Path:
        """The sorted records ("records") or those of short pages ("digests") of a chunk."""
        return self.directory / f"{kind}-{chunk:04}"

    def body_runs(self, kind: str) -> list[Iterator[Body]]:
        """The records of all chunks."""
        width = self.holding.bits if kind == "records" else DIGEST_BITS
        return [read_run(self.bodies(kind, chunk), width) for chunk in range(len(self.state.chunks))]


class _Open:
    """The chunk that is being filled."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._holding = ingest.holding
        self._codec = RecordCodec(ingest.holding.bits, ingest.holding.verifier_bytes)
        self._keys: list[Keys] = []
        self._bands: list[list[Keys]] = [[] for _ in range(ingest.holding.bands)]
        self._records: list[Body] = []
        self._digests: list[Body] = []
        self._items = self._count = self._bytes = 0

    def add(self, batch: Portion) -> None:
        self._items += batch.items
        if batch.keys is not None:
            self._keys.append(batch.keys)
            self._count += len(batch.keys)
        with_fingerprint = [(f, record) for f, record in batch.records if f is not None]
        if with_fingerprint:
            self._take(with_fingerprint)
        for fingerprint, record in batch.records:
            body = self._codec.encode(fingerprint, record)
            (self._digests if fingerprint is None else self._records).append(body)
            self._bytes += len(body.body) + BODY_OVERHEAD_BYTES

    def _take(self, entries: Sequence[tuple[int, Record]]) -> None:
        """Fingerprints and band keys of records."""
        bits, bands = self._holding.bits, self._holding.bands
        keys = arrays.from_ints((fingerprint for fingerprint, _ in entries), bits)
        self._keys.append(keys)
        self._count += len(keys)
        verifiers = [record.verifier or 0 for _, record in entries]
        for band in range(bands):
            shift, mask = BAND_BITS * (bands - 1 - band), (1 << BAND_BITS) - 1
            found = np.array([verifier >> shift & mask for verifier in verifiers], np.uint64)
            some = found != 0
            self._bands[band].append(arrays.joined(found[some], BAND_BITS, keys[some], bits))

    def full(self) -> bool:
        return self._count >= self._ingest.most_keys or self._bytes >= self._ingest.most_bytes

    def close(self) -> None:
        """Write it, and have it accepted."""
        if not self._items:
            return
        ingest, number = self._ingest, len(self._ingest.state.chunks)
        ingest.fingerprints(number).write(self._keys)
        for band, keys in enumerate(self._bands):
            ingest.band(band, number).write(keys)
        if self._holding.records:
            write_run(ingest.bodies("records", number), self._records)
            write_run(ingest.bodies("digests", number), self._digests)
        bands = [sum(map(len, keys)) for keys in self._bands]
        ingest.accept(Chunk(self._items, self._count, len(self._records), len(self._digests), bands))
