"""Every pair of a set compared, in blocks: which the index would answer, and how far apart they all are.

Nothing is sampled: 8,184 pages are 33.5 million pairs, a second's work for NumPy's popcount. The gate's distance is
taken of all pairs; tables, bands and verifier are asked only of those within the widest reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation.truth import KnownPairs, Reading
from simhash.index import Relation
from simhash.profiles import Signature
from simhash.sketch import BAND_BITS
from simhash.tables import Design

WORD_BITS = 64
BLOCK_PAIRS = 1 << 21
"""Pairs compared at once: their distances fill 2 MB, the words they come from 16 MB."""

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Rule:
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
    def of(cls, relation: Relation) -> Rule:
        """The rule by which an index of this relation answers."""
        return cls(relation.reach, relation.verifier_reach, relation.design, relation.bands > 0)


@dataclass(frozen=True, eq=False)
class SignatureTable:
    """Signatures in columns, one row a page.

    Attributes:
        bits: width of the fingerprints.
        gate: fingerprints, shape (n, words), right-aligned; 0 where there is none.
        verifier: verifiers without band keys, shape (n, words); 0 where there is none.
        keys: band keys, shape (n, bands); 0 is no key.
        near, verified: which pages have a fingerprint, a verifier; shape (n,).
        digest: number of the page's digest among the distinct ones, shape (n,).
    """

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
        verifiers = [signature.verifier for signature in signatures]
        gates = [signature.fingerprint for signature in signatures]
        shifts = [BAND_BITS * i for i in reversed(range(bands))]
        mask = (1 << BAND_BITS) - 1
        keys = [[((v or 0) >> shift) & mask for shift in shifts] for v in verifiers]
        return cls(
            bits=bits,
            verifier_bits=verifier_bits,
            gate=_words([g or 0 for g in gates], bits),
            verifier=_words([(v or 0) >> (BAND_BITS * bands) for v in verifiers], verifier_bits),
            keys=np.array(keys, dtype=np.uint64).reshape(len(keys), bands),
            near=np.array([g is not None for g in gates], dtype=bool),
            verified=np.array([v is not None for v in verifiers], dtype=bool),
            digest=np.unique([s.digest for s in signatures], return_inverse=True)[1].astype(np.int64),
        )

    def distances(self, first: Numbers, second: Numbers, of_verifier: bool = False) -> Numbers:
        """Bits in which these pairs' fingerprints, or verifiers, differ."""
        words = self.verifier if of_verifier else self.gate
        counted: Numbers = np.bitwise_count(words[first] ^ words[second]).sum(axis=1, dtype=np.int64)
        return counted

    def meet(self, first: Numbers, second: Numbers, rule: Rule) -> NDArray[np.bool_]:
        """Which of these pairs share a table's prefix or a band key under `rule`."""
        if rule.design is None:
            return np.ones(len(first), dtype=bool)
        apart = self.gate[first] ^ self.gate[second]
        met = np.zeros(len(first), dtype=bool)
        for mask in _prefix_masks(rule.design):
            met |= np.bitwise_count(apart & mask).sum(axis=1) <= rule.design.radius
        if rule.bands:
            keys = self.keys[first]
            met |= ((keys == self.keys[second]) & (keys != 0)).any(axis=1)
        return met

    def agree(self, first: Numbers, second: Numbers, rule: Rule) -> NDArray[np.bool_]:
        """Which of these pairs' verifiers are within the rule's reach."""
        if rule.verifier_reach is None:
            return np.ones(len(first), dtype=bool)
        both = self.verified[first] & self.verified[second]
        return both & (self.distances(first, second, of_verifier=True) <= rule.verifier_reach)


@dataclass(frozen=True, eq=False)
class Found:
    """Pairs that match, first < second, and the distance of their fingerprints (0: on the digest alone)."""

    first: Numbers
    second: Numbers
    distance: Numbers

    def __len__(self) -> int:
        return len(self.first)

    def only(self, which: NDArray[np.bool_]) -> Found:
        """Those pairs."""
        return Found(self.first[which], self.second[which], self.distance[which])


@dataclass(frozen=True, eq=False)
class Search:
    """All pairs compared: what each rule finds, and how many pairs are so many bits apart.

    Attributes:
        found: for each rule, in order.
        gate, verifier: at i, the number of pairs of fingerprints (verifiers) that differ in i bits.
    """

    found: list[Found]
    gate: Numbers
    verifier: Numbers


def search(table: SignatureTable, rules: Sequence[Rule]) -> Search:
    """Compare all pairs of pages under every rule at once."""
    gate = np.zeros(table.bits + 1, dtype=np.int64)
    verifier = np.zeros(table.verifier_bits + 1, dtype=np.int64)
    matches: list[list[Found]] = [[_same_digest(table)] for _ in rules]
    reach = max((rule.reach for rule in rules), default=0)
    for rows, columns in _blocks(np.flatnonzero(table.near)):
        later = columns[None, :] > rows[:, None]
        distance = _block_distances(table.gate, rows, columns)
        gate += np.bincount(distance[later], minlength=len(gate))
        if table.verified.any():
            verifier += np.bincount(_block_distances(table.verifier, rows, columns)[later], minlength=len(verifier))
        row, column = np.nonzero((distance <= reach) & later)
        close = Found(rows[row], columns[column], distance[row, column].astype(np.int64))
        for rule, found in zip(rules, matches, strict=True):
            found.append(_matching(table, close, rule))
    return Search([_joined(found) for found in matches], gate, verifier)


@dataclass(frozen=True, eq=False)
class Histograms:
    """Number of pairs by distance in bits, for each `Reading`; shape (4, bits + 1). Only pages with a fingerprint."""

    gate: Numbers
    verifier: Numbers


def histograms(table: SignatureTable, known: KnownPairs, searched: Search) -> Histograms:
    """Split the distances of all pairs by what the pairs are."""
    return Histograms(_split(table, known, searched.gate, False), _split(table, known, searched.verifier, True))


def _split(table: SignatureTable, known: KnownPairs, total: Numbers, of_verifier: bool) -> Numbers:
    counted = np.zeros((len(Reading), len(total)), dtype=np.int64)
    both = table.near[known.first] & table.near[known.second]
    if total.any():
        distance = table.distances(known.first[both], known.second[both], of_verifier)
        np.add.at(counted, (known.reading[both], distance), 1)
        counted[Reading.NEGATIVE] = total - counted[Reading.GREY :].sum(axis=0)
    return counted


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


def _matching(table: SignatureTable, close: Found, rule: Rule) -> Found:
    found = close.only(close.distance <= rule.reach)
    found = found.only(table.meet(found.first, found.second, rule))
    return found.only(table.agree(found.first, found.second, rule))


def _same_digest(table: SignatureTable) -> Found:
    """Pages without a fingerprint match on their digest, and only each other."""
    pages = np.flatnonzero(~table.near)
    parts = [_joined([])]
    for rows, columns in _blocks(pages):
        equal = table.digest[rows][:, None] == table.digest[columns][None, :]
        row, column = np.nonzero(equal & (columns[None, :] > rows[:, None]))
        parts.append(Found(rows[row], columns[column], np.zeros(len(row), dtype=np.int64)))
    return _joined(parts)


def _joined(parts: Sequence[Found]) -> Found:
    empty = np.empty(0, dtype=np.int64)
    return Found(
        np.concatenate([empty, *(part.first for part in parts)]),
        np.concatenate([empty, *(part.second for part in parts)]),
        np.concatenate([empty, *(part.distance for part in parts)]),
    )
