"""Every pair of a set compared, in blocks: which the index would answer, and how far apart they all are.

Nothing is sampled: 8,184 pages are 33.5 million pairs, a second's work for NumPy's popcount. The gate's distance is
taken of all pairs; tables, bands and verifier are asked only of those within the widest reach.

Pages of one signature are compared once, and counted: what is found are pairs of *rows*, the distinct signatures, and a
row with itself where more pages than one have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation.truth import KnownPairs, PairClass
from simhash.index import Relation
from simhash.relation.tables import Design
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profiles import Signature

WORD_BITS = 64
BLOCK_PAIRS = 1 << 21
"""Pairs compared at once: their distances fill 2 MB, the words they come from 16 MB."""

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class MatchRule:
    """Which pairs match: within `reach`, met in a table of `design` or in a band, verifiers within `verifier_reach`.

    Attributes:
        design: None: every pair is compared, tables and bands or not.
        verifier_reach: None: the verifier is not asked.
        bands: whether pages also meet in a band key.
    """

    reach: int
    verifier_reach: int | None = None
    design: Design | None = None
    bands: bool = False

    @classmethod
    def of(cls, relation: Relation) -> MatchRule:
        """The rule by which an index of this relation answers."""
        return cls(relation.reach, relation.verifier_reach, relation.design, relation.bands > 0)


@dataclass(frozen=True, eq=False)
class SignatureTable:
    """Signatures in columns, one row for each distinct one, in the order in which they come.

    Attributes:
        row: the row of each page, shape (pages,).
        bits: width of the fingerprints.
        gate: fingerprints, shape (n, words), right-aligned; 0 where there is none.
        verifier: verifiers without band keys, shape (n, words); 0 where there is none.
        keys: band keys, shape (n, bands); 0 is no key.
        near, verified: which have a fingerprint, a verifier; shape (n,).
        digest: number of the row's digest among the distinct ones, shape (n,).
    """

    row: Numbers
    bits: int
    verifier_bits: int
    gate: Words
    verifier: Words
    keys: Words
    near: NDArray[np.bool_]
    verified: NDArray[np.bool_]
    digest: Numbers

    @classmethod
    def of(cls, signatures: Sequence[Signature], bits: int, verifier_bits: int, bands: int) -> SignatureTable:
        """The table of signatures whose verifiers have `bands` keys of BAND_BITS behind `verifier_bits` bits."""
        rows: dict[Signature, int] = {}
        row = np.array([rows.setdefault(signature, len(rows)) for signature in signatures], dtype=np.int64)
        verifiers = [signature.verifier for signature in rows]
        gates = [signature.fingerprint for signature in rows]
        shifts = [BAND_BITS * i for i in reversed(range(bands))]
        mask = (1 << BAND_BITS) - 1
        keys = [[((v or 0) >> shift) & mask for shift in shifts] for v in verifiers]
        return cls(
            row=row,
            bits=bits,
            verifier_bits=verifier_bits,
            gate=_words([g or 0 for g in gates], bits),
            verifier=_words([(v or 0) >> (BAND_BITS * bands) for v in verifiers], verifier_bits),
            keys=np.array(keys, dtype=np.uint64).reshape(len(keys), bands),
            near=np.array([g is not None for g in gates], dtype=bool),
            verified=np.array([v is not None for v in verifiers], dtype=bool),
            digest=np.unique([s.digest for s in rows], return_inverse=True)[1].astype(np.int64),
        )

    @property
    def pages(self) -> Numbers:
        """How many pages have each row's signature, shape (n,)."""
        counted: Numbers = np.bincount(self.row, minlength=len(self.near))
        return counted

    def distances(self, first: Numbers, second: Numbers, of_verifier: bool = False) -> Numbers:
        """Bits in which the fingerprints, or verifiers, of these pairs of rows differ."""
        words = self.verifier if of_verifier else self.gate
        counted: Numbers = np.bitwise_count(words[first] ^ words[second]).sum(axis=1, dtype=np.int64)
        return counted

    def meet(self, first: Numbers, second: Numbers, rule: MatchRule) -> NDArray[np.bool_]:
        """Which of these pairs of rows share a table's prefix or a band key under `rule`."""
        if rule.design is None:
            return np.ones(len(first), dtype=bool)
        apart = self.gate[first] ^ self.gate[second]
        met = np.zeros(len(first), dtype=bool)
        for mask, table in zip(_prefix_masks(rule.design), rule.design.tables, strict=True):
            met |= np.bitwise_count(apart & mask).sum(axis=1) <= table.radius
        if rule.bands:
            keys = self.keys[first]
            met |= ((keys == self.keys[second]) & (keys != 0)).any(axis=1)
        return met

    def agree(self, first: Numbers, second: Numbers, rule: MatchRule) -> NDArray[np.bool_]:
        """Which of these pairs of rows have verifiers within the rule's reach."""
        if rule.verifier_reach is None:
            return np.ones(len(first), dtype=bool)
        both = self.verified[first] & self.verified[second]
        return both & (self.distances(first, second, of_verifier=True) <= rule.verifier_reach)


@dataclass(frozen=True, eq=False)
class FoundPairs:
    """Pairs of rows that match, first <= second, and the distance of their fingerprints (0: on the digest alone).

    Attributes:
        row: the row of each page, shape (pages,).
    """

    first: Numbers
    second: Numbers
    distance: Numbers
    row: Numbers

    def __len__(self) -> int:
        return len(self.first)

    def only(self, which: NDArray[np.bool_]) -> FoundPairs:
        """Those pairs."""
        return FoundPairs(self.first[which], self.second[which], self.distance[which], self.row)

    def places(self, first: Numbers, second: Numbers) -> Numbers:
        """Where these pairs of *pages* are among the pairs of rows; -1 for one that was not found; shape as theirs."""
        if not len(self):
            return np.full(len(first), -1, dtype=np.int64)
        a, b = self.row[first], self.row[second]
        wanted = np.minimum(a, b) * len(self.row) + np.maximum(a, b)
        keys = self.first * len(self.row) + self.second
        order = np.argsort(keys)
        at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        return np.where(keys[at] == wanted, at, -1)

    def page_pairs(self) -> list[tuple[int, int]]:
        """Every pair of pages, one by one: for small sets."""
        members: dict[int, list[int]] = {}
        for page, row in enumerate(self.row.tolist()):
            members.setdefault(row, []).append(page)
        rows = zip(self.first.tolist(), self.second.tolist(), strict=True)
        pairs = (combinations(members[a], 2) if a == b else product(members[a], members[b]) for a, b in rows)
        return sorted((min(pair), max(pair)) for pair in chain.from_iterable(pairs))


@dataclass(frozen=True, eq=False)
class Search:
    """All pairs compared: what each rule finds, and how many pairs are so many bits apart.

    Attributes:
        found: for each rule, in order.
        gate, verifier: at i, the number of pairs of pages whose fingerprints (verifiers) differ in i bits.
    """

    found: list[FoundPairs]
    gate: Numbers
    verifier: Numbers


def search(table: SignatureTable, rules: Sequence[MatchRule]) -> Search:
    """Compare all pairs of pages under every rule at once."""
    gate = np.zeros(table.bits + 1, dtype=np.int64)
    verifier = np.zeros(table.verifier_bits + 1, dtype=np.int64)
    matches: list[list[FoundPairs]] = [[_copies(table, rule), _same_digest(table)] for rule in rules]
    reach = max((rule.reach for rule in rules), default=0)
    pages = table.pages
    for rows, columns in _blocks(np.flatnonzero(table.near)):
        later = columns[None, :] > rows[:, None]
        pairs = np.multiply.outer(pages[rows], pages[columns])[later]
        distance = _block_distances(table.gate, rows, columns)
        gate += _counted(distance[later], pairs, len(gate))
        if table.verified.any():
            verifier += _counted(_block_distances(table.verifier, rows, columns)[later], pairs, len(verifier))
        row, column = np.nonzero((distance <= reach) & later)
        close = FoundPairs(rows[row], columns[column], distance[row, column].astype(np.int64), table.row)
        for rule, found in zip(rules, matches, strict=True):
            found.append(_matching(table, close, rule))
    gate[0] += _within(pages[table.near])
    verifier[0] += _within(pages[table.near]) if table.verified.any() else 0
    return Search([_joined(found) for found in matches], gate, verifier)


@dataclass(frozen=True, eq=False)
class Histograms:
    """Number of pairs by distance in bits, for each `PairClass`; shape (4, bits + 1). Only pages with a fingerprint."""

    gate: Numbers
    verifier: Numbers


def histograms(table: SignatureTable, known: KnownPairs, searched: Search) -> Histograms:
    """Split the distances of all pairs by what the pairs are."""
    return Histograms(_split(table, known, searched.gate, False), _split(table, known, searched.verifier, True))


def _split(table: SignatureTable, known: KnownPairs, total: Numbers, of_verifier: bool) -> Numbers:
    counted = np.zeros((len(PairClass), len(total)), dtype=np.int64)
    if not total.any():
        return counted
    first, second = table.row[known.first], table.row[known.second]
    both = table.near[first] & table.near[second]
    distance = table.distances(first[both], second[both], of_verifier)
    np.add.at(counted, (known.reading[both], distance), 1)
    pages = table.pages
    counted[PairClass.EXACT, 0] += _within(pages[table.near])
    for a, b in _of_one_digest(table, table.near):
        counted[PairClass.EXACT] += _counted(table.distances(a, b, of_verifier), pages[a] * pages[b], len(total))
    counted[PairClass.EXACT] -= np.bincount(distance[known.apart[both]], minlength=len(total))
    counted[PairClass.NEGATIVE] = total - counted[PairClass.GREY :].sum(axis=0)
    return counted


def _within(pages: Numbers) -> int:
    """Pairs of pages that have one row."""
    return int((pages * (pages - 1) // 2).sum())


def _counted(distance: Numbers | NDArray[np.uint16], pairs: Numbers, length: int) -> Numbers:
    """How many pairs of pages have each distance; exact up to 2**53."""
    return np.bincount(distance, weights=pairs, minlength=length).astype(np.int64)


def _words(values: Sequence[int], bits: int) -> Words:
    """Numbers of `bits` bits as rows of 64-bit words."""
    count = -(-bits // WORD_BITS)
    data = b"".join(value.to_bytes(8 * count) for value in values)
    return np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(len(values), count)


def _prefix_masks(design: Design) -> Iterator[Words]:
    """The bits of a fingerprint that are each table's prefix; shape (words,)."""
    for table in design.tables:
        leading = ((1 << table.prefix) - 1) << (design.bits - table.prefix)
        yield _words([table.restore(leading)], design.bits)[0]


def _blocks(pages: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Rows and columns that together make every pair once; BLOCK_PAIRS at a time."""
    start = 0
    while start < len(pages) - 1:
        rows = max(1, BLOCK_PAIRS // (len(pages) - start))
        yield pages[start : start + rows], pages[start + 1 :]
        start += rows


def _block_distances(words: Words, rows: Numbers, columns: Numbers) -> NDArray[np.uint16]:
    total = np.zeros((len(rows), len(columns)), dtype=np.uint16)
    for word in range(words.shape[1]):
        total += np.bitwise_count(words[rows, word][:, None] ^ words[columns, word][None, :])
    return total


def _matching(table: SignatureTable, close: FoundPairs, rule: MatchRule) -> FoundPairs:
    found = close.only(close.distance <= rule.reach)
    found = found.only(table.meet(found.first, found.second, rule))
    return found.only(table.agree(found.first, found.second, rule))


def _copies(table: SignatureTable, rule: MatchRule) -> FoundPairs:
    """Rows that more pages than one have, each with itself."""
    rows = np.flatnonzero((table.pages > 1) & (~table.near | table.verified | (rule.verifier_reach is None)))
    return FoundPairs(rows, rows, np.zeros(len(rows), dtype=np.int64), table.row)


def _same_digest(table: SignatureTable) -> FoundPairs:
    """Pages without a fingerprint match on their digest, and only each other."""
    parts = [
        FoundPairs(a, b, np.zeros(len(a), dtype=np.int64), table.row) for a, b in _of_one_digest(table, ~table.near)
    ]
    empty = np.empty(0, dtype=np.int64)
    return _joined([FoundPairs(empty, empty, empty, table.row), *parts])


def _of_one_digest(table: SignatureTable, among: NDArray[np.bool_]) -> Iterator[tuple[Numbers, Numbers]]:
    """Pairs of different rows of one digest: a recipe may see what the digest does not, capitals say."""
    shared = np.bincount(table.digest[among], minlength=len(table.digest)) > 1
    for rows, columns in _blocks(np.flatnonzero(among & shared[table.digest])):
        equal = table.digest[rows][:, None] == table.digest[columns][None, :]
        row, column = np.nonzero(equal & (columns[None, :] > rows[:, None]))
        yield rows[row], columns[column]


def _joined(parts: Sequence[FoundPairs]) -> FoundPairs:
    return FoundPairs(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.second for part in parts]),
        np.concatenate([part.distance for part in parts]),
        parts[0].row,
    )
