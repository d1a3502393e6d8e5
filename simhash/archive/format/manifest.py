"""What a directory of compressed tables holds: the relation it answers for, and its files with their checks.

`manifest.json` is written last, when everything else is whole. Its generation is a digest of all it says, and thereby
of all that the files hold: two directories of one generation give the same answers, and a manifest that was changed by
hand or by a disk is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.archive.format import keys as arrays
from simhash.archive.format.durable import whole
from simhash.archive.format.keys import Keys
from simhash.errors import DesignError, TableCorrupt, TableMismatch
from simhash.index.interface import Relation
from simhash.relation.tables import Table, described
from simhash.signature.minhash import BAND_BITS

NAME = "manifest.json"
FORMAT = 1
RECORDS_FILE, DIGESTS_FILE = "records.zst", "digests.zst"
_CHUNK_BYTES = 1 << 22


class FileEntry(msgspec.Struct, frozen=True):
    """A file of the directory: its name, size, number of items, and the XXH3 (128 bits, hex) of its bytes."""

    name: str
    bytes: int
    items: int
    checksum: str


class _Relation(msgspec.Struct, frozen=True):
    design: dict[str, Any]
    reach: int
    verifier_reach: int | None
    verifier_bits: int
    bands: int


class _Body(msgspec.Struct, frozen=True):
    format: int
    profile: dict[str, Any] | None
    relation: _Relation
    fingerprints: int
    records: int | None
    digests: int | None
    files: list[FileEntry]


class _Signed(_Body, frozen=True):
    generation: str


@dataclass(frozen=True)
class Part:
    """A sorted table of the set: how its keys come from fingerprints.

    Attributes:
        name: of its file.
        width: bits of a key.
        prefix: how many leading bits two keys must share to meet.
        table: the permutation; None for a table of band keys, each with its fingerprint behind it.
        band: which of a verifier's band keys; None for a permutation.
    """

    name: str
    width: int
    prefix: int
    table: Table | None
    band: int | None

    @property
    def radius(self) -> int:
        """In how many of its prefix's bits a key that is found may differ from the one that is asked for."""
        return self.table.radius if self.table else 0

    @property
    def probes(self) -> int:
        """How many prefixes are looked up in it for one query."""
        return self.table.probes if self.table else 1

    @property
    def identity(self) -> bytes:
        """16 bytes that tell its file from another part's."""
        blocks = None if self.table is None else [(block.start, block.width) for block in self.table.blocks]
        return identity(("part", self.width, self.prefix, blocks, self.band))

    def keys(self, fingerprints: Keys, band_keys: Sequence[Sequence[int]]) -> tuple[Keys, NDArray[np.int64]]:
        """Its keys for fingerprints with those band keys, as far as there are any, and whose they are."""
        if self.table is not None:
            return arrays.permuted(fingerprints, self.table), np.arange(len(fingerprints))
        bands = np.array([keys[self.band or 0] for keys in band_keys], np.uint64)
        some = np.flatnonzero(bands)
        return arrays.joined(bands[some], BAND_BITS, fingerprints[some], self.width - BAND_BITS), some

    def restored(self, keys: Keys) -> Keys:
        """The fingerprints in its keys."""
        if self.table is None:
            return arrays.without_front(keys, BAND_BITS, self.width)
        return arrays.restored(keys, self.table)


def identity(of: object) -> bytes:
    """The digest of plain data."""
    return xxhash.xxh3_128_digest(msgspec.json.encode(of))


def parts(relation: Relation) -> Iterator[Part]:
    """The sorted tables that answer for a relation: its permutations, then its bands."""
    bits = relation.design.bits
    for number, table in enumerate(relation.design.tables):
        yield Part(f"table-{number:02}.sdt", bits, table.prefix, table, None)
    for band in range(relation.bands):
        yield Part(f"band-{band:02}.sdt", BAND_BITS + bits, BAND_BITS, None, band)


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says.

    Attributes:
        profile: the recipe of the fingerprints; None for a bare set of which nobody knows.
        relation: which pages match; of a bare set, its design and a reach.
        fingerprints: entries of each permutation table, equal ones counted.
        records: pages with a fingerprint in the side file; None: there is none, the set is bare.
        digests: pages without a fingerprint; None: as above.
        files: all others of the directory.
    """

    profile: Mapping[str, Any] | None
    relation: Relation
    fingerprints: int
    records: int | None
    digests: int | None
    files: tuple[FileEntry, ...]

    @property
    def generation(self) -> str:
        """32 hex digits."""
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(self._body()))

    def encode(self) -> bytes:
        """The file."""
        body = msgspec.structs.asdict(self._body())
        return msgspec.json.format(msgspec.json.encode(body | {"generation": self.generation})) + b"\n"

    def _body(self) -> _Body:
        relation = self.relation
        plain = _Relation(
            relation.design.describe(),
            relation.reach,
            relation.verifier_reach,
            relation.verifier_bits,
            relation.bands,
        )
        profile = None if self.profile is None else dict(self.profile)
        return _Body(FORMAT, profile, plain, self.fingerprints, self.records, self.digests, list(self.files))


def read(directory: Path) -> Manifest:
    """The manifest of a directory.

    Raises:
        TableMismatch: there is none, or one of another format.
        TableCorrupt: it is damaged.
    """
    path = directory / NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TableMismatch(f"{directory} holds no compressed tables: it has no {NAME}") from error
    try:
        found = msgspec.json.decode(data, type=_Signed)
        relation = Relation(
            described(found.relation.design),
            found.relation.reach,
            found.relation.verifier_reach,
            found.relation.verifier_bits,
            found.relation.bands,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, DesignError, ValueError) as error:
        raise TableCorrupt(f"{path} is damaged: {error}") from error
    manifest = Manifest(found.profile, relation, found.fingerprints, found.records, found.digests, tuple(found.files))
    if found.format != FORMAT:
        raise TableMismatch(f"{path} has format {found.format}, {FORMAT} can be read here")
    if manifest.encode() != data:
        raise TableCorrupt(f"{path} is damaged: it does not say what its generation is the digest of")
    return manifest


def write(directory: Path, manifest: Manifest) -> None:
    """Put a manifest into a directory whose other files are whole; from then on it is a set of tables."""
    with whole(directory / NAME) as file:
        file.write(manifest.encode())


def checksum(path: Path) -> str:
    """The XXH3 of a file's bytes, 128 bits, hex."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()
