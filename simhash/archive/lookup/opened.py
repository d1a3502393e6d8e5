"""A set of tables, opened to be asked: which fingerprints, records or pages are near these.

`TableSet` answers for the same relation as an index does: what `Relation.matches` says of a page and any stored one.
Its files are never written, so any number of threads and processes may share them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simhash.archive.format import keys as arrays
from simhash.archive.format import manifest as manifests
from simhash.archive.format.keys import Keys
from simhash.archive.format.manifest import DIGESTS_FILE, RECORDS_FILE, Manifest, identity, parts
from simhash.archive.format.record_file import DIGEST_BITS, Body, RecordCodec, RecordFile, key_number, tagged
from simhash.archive.format.table_file import TableFile
from simhash.archive.lookup.ranges import KeyPairs, Question, joined, nothing, probe
from simhash.errors import TableMismatch
from simhash.index.interface import Entry, Neighbour, Record, Relation
from simhash.signature.minhash import BAND_BITS


class TableSet:
    """The tables of a directory.

    Args:
        directory: what `build` made.
        threads: how many tables are probed at the same time; None: one a core.

    Raises:
        TableMismatch: it holds no set, or one of another format.
        TableCorrupt: a file is damaged; what lies in blocks shows when they are read.
    """

    def __init__(self, directory: Path, threads: int | None = None) -> None:
        self.directory = directory
        self.manifest: Manifest = manifests.read(directory)
        self._parts = [
            (part, TableFile(directory / part.name, part.identity)) for part in parts(self.manifest.relation)
        ]
        self._record_file = self._side_file(RECORDS_FILE, "records")
        self._digest_file = self._side_file(DIGESTS_FILE, "digests")
        self._check_counts()
        self._codec = RecordCodec(self.relation.design.bits, verifier_bytes(self.relation))
        self.threads = threads or len(os.sched_getaffinity(0))

    def _side_file(self, name: str, kind: str) -> RecordFile | None:
        return None if self.manifest.records is None else RecordFile(self.directory / name, identity(kind))

    def _check_counts(self) -> None:
        """A file of another set of the same design is whole, and still not one of this set."""
        opened = {part.name: len(table) for part, table in self._parts}
        opened |= {RECORDS_FILE: len(self._record_file)} if self._record_file is not None else {}
        opened |= {DIGESTS_FILE: len(self._digest_file)} if self._digest_file is not None else {}
        listed = {file.name: file for file in self.manifest.files}
        for name, items in opened.items():
            size = (self.directory / name).stat().st_size
            if name not in listed or (listed[name].items, listed[name].bytes) != (items, size):
                raise TableMismatch(f"{self.directory / name} is not the file that {manifests.NAME} lists")

    def __len__(self) -> int:
        return self.manifest.fingerprints + (self.manifest.digests or 0)

    @property
    def relation(self) -> Relation:
        """Which pages match."""
        return self.manifest.relation

    @property
    def profile(self) -> Mapping[str, Any] | None:
        """The recipe of the fingerprints; None: unknown."""
        return self.manifest.profile

    @property
    def generation(self) -> str:
        """Names the content: sets of one generation give the same answers."""
        return self.manifest.generation

    @property
    def has_records(self) -> bool:
        """Whether pages lie behind the fingerprints; a bare set knows only those."""
        return self._record_file is not None

    # Asking --------------------------------------------------------------------------------------------------------

    def near(self, fingerprints: Keys, reach: int | None = None) -> KeyPairs:
        """The stored fingerprints within `reach` bits (default: the relation's) of each, each once.

        Within the design's k bits all are found, beyond it those that share a table's prefix; bands are not asked.

        Args:
            fingerprints: as `keys.from_ints` makes them; shape (n, W).

        Returns:
            Pairs by the number of the fingerprint, then nearest first.
        """
        reach = self.relation.reach if reach is None else reach
        return _met([self], fingerprints, None, reach)[0][0]

    def neighbours(self, fingerprint: int, reach: int | None = None) -> list[Neighbour]:
        """All stored pages that share a table's prefix with `fingerprint` and are within reach, nearest first.

        Raises:
            TableMismatch: the set is bare.
        """
        found = self.near(arrays.from_ints([fingerprint], self.relation.design.bits), reach)
        near = zip(self._numbers(found), found.distances.tolist(), self.records(found.keys), strict=True)
        neighbours = [Neighbour(other, distance, record) for other, distance, records in near for record in records]
        return sorted(neighbours, key=lambda n: (n.distance, n.record.seq))

    def matches(self, entries: Sequence[Entry]) -> list[list[tuple[int, Record]]]:
        """For each page the stored records that it matches by the relation, with their distance, lowest seq first.

        Raises:
            TableMismatch: the set is bare.
            WidthError: a fingerprint is wider than the design.
        """
        return matches([self], entries)[0]

    def _match_fingerprints(
        self,
        entries: Sequence[Entry],
        numbers: Sequence[int],
        met: KeyPairs,
        banded: KeyPairs,
        found: list[list[tuple[int, Record]]],
    ) -> None:
        """Of the pairs of a page (its place in `numbers`) and a fingerprint those that match: pairs that met in a
        table, and those that met in a band."""
        if not len(met) and not len(banded):
            return
        both = _each_once(joined([met, banded], met.keys.shape[1]))
        prefixed = set(zip(met.query.tolist(), self._numbers(met), strict=True))
        candidates = zip(
            both.query.tolist(), self._numbers(both), both.distances.tolist(), self.records(both.keys), strict=True
        )
        for query, fingerprint, distance, records in candidates:
            verifier, meets = entries[numbers[query]].verifier, (query, fingerprint) in prefixed
            found[numbers[query]] += [
                (distance, record)
                for record in records
                if (meets or self.relation.shares_band(verifier, record.verifier))
                and self.relation.verified(verifier, record.verifier)
            ]

    def _match_digests(
        self, entries: Sequence[Entry], numbers: Sequence[int], found: list[list[tuple[int, Record]]]
    ) -> None:
        if not numbers:
            return
        file = self._needed(self._digest_file)
        wanted = [int.from_bytes(tagged(entries[number].digest)) for number in numbers]
        for number, bodies in zip(numbers, file.find(arrays.from_ints(wanted, DIGEST_BITS)), strict=True):
            found[number] += [(0, self._codec.decode(body, has_fingerprint=False)) for body in bodies]

    def records(self, keys: Keys) -> list[list[Record]]:
        """The records under each fingerprint, lowest seq first.

        Raises:
            TableMismatch: the set is bare.
        """
        file = self._needed(self._record_file)
        return [[self._codec.decode(body, has_fingerprint=True) for body in bodies] for bodies in file.find(keys)]

    def _needed(self, file: RecordFile | None) -> RecordFile:
        if file is None:
            raise TableMismatch(f"{self.directory} holds fingerprints alone: nobody knows whose they are")
        return file

    def _numbers(self, found: KeyPairs) -> list[int]:
        return arrays.to_ints(found.keys, self.relation.design.bits)

    # Going through all ---------------------------------------------------------------------------------------------

    def fingerprints(self) -> Iterator[Keys]:
        """All fingerprints in the order of the first table, about a million at a time."""
        part, table = self._parts[0]
        for keys in table.chunks():
            yield part.restored(keys)

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """Every record with its fingerprint, then those of short pages (None), each kind by its key, then by seq.

        Raises:
            TableMismatch: the set is bare.
        """
        return (self.stored(*each) for each in self.bodies())

    def bodies(self) -> Iterator[tuple[bool, Body]]:
        """The same as it stands in the files; and whether it has a fingerprint."""
        yield from ((True, each) for each in self._needed(self._record_file).scan())
        yield from ((False, each) for each in self._needed(self._digest_file).scan())

    def stored(self, has_fingerprint: bool, each: Body) -> tuple[int | None, Record]:
        """What one of `bodies` says."""
        fingerprint = key_number(each.key, self.relation.design.bits) if has_fingerprint else None
        return fingerprint, self._codec.decode(each.body, has_fingerprint)


def matches(sets: Sequence[TableSet], entries: Sequence[Entry]) -> list[list[list[tuple[int, Record]]]]:
    """For each of several sets what `TableSet.matches` says, in one pass over all those of one relation. An archive has
    sets of several relations when its index was migrated to other permutation tables.

    Raises:
        TableMismatch, WidthError: as there.
    """
    alike: dict[Relation, list[TableSet]] = {}
    for tables in sets:
        alike.setdefault(tables.relation, []).append(tables)
    answers = {relation: iter(_matches(relation, some, entries)) for relation, some in alike.items()}
    return [next(answers[tables.relation]) for tables in sets]


def _matches(
    relation: Relation, sets: Sequence[TableSet], entries: Sequence[Entry]
) -> list[list[list[tuple[int, Record]]]]:
    some = [number for number, entry in enumerate(entries) if entry.fingerprint is not None]
    short = [number for number, entry in enumerate(entries) if entry.fingerprint is None]
    keys = arrays.from_ints([entries[number].fingerprint or 0 for number in some], relation.design.bits)
    band_keys = [relation.band_keys(entries[number].verifier) for number in some]
    met = _met(sets, keys, band_keys, relation.reach) if some else [(nothing(0), nothing(0))] * len(sets)
    answers = []
    for tables, pairs in zip(sets, met, strict=True):
        found: list[list[tuple[int, Record]]] = [[] for _ in entries]
        tables._match_fingerprints(entries, some, *pairs, found)
        tables._match_digests(entries, short, found)
        answers.append([sorted(each, key=lambda match: match[1].seq) for each in found])
    return answers


def _met(
    sets: Sequence[TableSet], fingerprints: Keys, band_keys: Sequence[Sequence[int]] | None, reach: int
) -> list[tuple[KeyPairs, KeyPairs]]:
    """For each of some sets the pairs that meet in its tables, each once, and those in its bands (None: not asked)."""
    some = [n for n, (part, _) in enumerate(sets[0]._parts) if part.band is None or band_keys is not None]
    keys = {n: sets[0]._parts[n][0].keys(fingerprints, band_keys or ()) for n in some}
    asked = [(tables, n) for tables in sets for n in some]
    questions = [
        Question(table, keys[n][0], part.prefix, part.radius)
        for tables, n in asked
        for part, table in (tables._parts[n],)
    ]
    found: dict[tuple[TableSet, bool], list[KeyPairs]] = {}
    for (tables, n), pairs in zip(asked, probe(questions, reach, sets[0].threads), strict=True):
        if len(pairs):
            part = tables._parts[n][0]
            restored = KeyPairs(keys[n][1][pairs.query], part.restored(pairs.keys), pairs.distances)
            found.setdefault((tables, part.band is None), []).append(restored)
    size = fingerprints.shape[1]

    def of(tables: TableSet, by_table: bool) -> KeyPairs:
        return _each_once(joined(found.get((tables, by_table), []), size))

    return [(of(tables, True), of(tables, False)) for tables in sets]


def verifier_bytes(relation: Relation) -> int:
    """Bytes of a stored verifier, its band keys included; 0 where the relation has none."""
    return 0 if relation.verifier_reach is None else (relation.verifier_bits + BAND_BITS * relation.bands) // 8


def _each_once(found: KeyPairs) -> KeyPairs:
    """The pairs by query, then distance, then key; each once."""
    if len(found) < 2:
        return found
    order = np.lexsort((*found.keys.T[::-1], found.distances, found.query))
    query, keys, distances = found.query[order], found.keys[order], found.distances[order]
    new = (query[1:] != query[:-1]) | (keys[1:] != keys[:-1]).any(axis=1)
    first = np.concatenate(([True], new))
    return KeyPairs(query[first], keys[first], distances[first])
