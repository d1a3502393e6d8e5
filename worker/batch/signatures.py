"""Signatures in columns: what many pages are compared by, as NumPy arrays.

The relation alone decides what is in them: without a verifier in it two pages of one fingerprint are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simhash.index.interface import Relation
from simhash.signature.minhash import BAND_BITS

WORD_BYTES = 8
SAMPLE = 4096
MOSTLY_DISTINCT = 0.9
BAND_BYTES = BAND_BITS // 8


@dataclass(frozen=True)
class Signatures:
    """n signatures.

    Attributes:
        gates: the fingerprints, shape (n,).
        sketches: the verifiers proper in words, zero bits behind the last, shape (n, words).
        bands: the band keys, 0 for none, shape (bands, n).
    """

    gates: NDArray[np.uint64]
    sketches: NDArray[np.uint64]
    bands: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.gates)

    def take(self, numbers: NDArray[np.int64] | slice) -> Signatures:
        """Those of these numbers, in that order."""
        return Signatures(self.gates[numbers], self.sketches[numbers], self.bands[:, numbers])

    def mostly_distinct(self) -> bool:
        """Whether a sample of the fingerprints has few that are equal: where it has many, it pays to look for them."""
        sample = self.gates[:: max(1, len(self) // SAMPLE)]
        return len(np.unique(sample)) >= MOSTLY_DISTINCT * len(sample)

    def first_of_each(self) -> NDArray[np.int64]:
        """The numbers of the signatures that equal none before them, ascending."""
        whole = np.ascontiguousarray(np.vstack([self.gates, self.sketches.T, self.bands]).T)
        keys = whole.view(np.dtype((np.void, whole.shape[1] * WORD_BYTES))).reshape(-1)
        return np.sort(np.unique(keys, return_index=True)[1])


def verifier_bytes(relation: Relation) -> int:
    """How long a verifier with its band keys is in a column; 0: the relation has none."""
    if relation.verifier_reach is None:
        return 0
    return relation.verifier_bits // 8 + BAND_BYTES * relation.bands


def of_columns(gates: NDArray[np.uint64], verifiers: NDArray[np.uint8] | None, relation: Relation) -> Signatures:
    """Signatures of fingerprints, shape (n,), and of verifiers as bytes, most significant first, shape (n, bytes)."""
    count, width = len(gates), verifier_bytes(relation)
    if not width or verifiers is None:
        return Signatures(gates, np.zeros((count, 0), np.uint64), np.zeros((0, count), np.uint64))
    verifiers = verifiers if count else np.zeros((0, width), np.uint8)  # of none nobody knows how long they are
    proper = relation.verifier_bits // 8
    words = -(-proper // WORD_BYTES)
    padded = np.zeros((count, words * WORD_BYTES), dtype=np.uint8)
    padded[:, :proper] = verifiers[:, :proper]
    keys = np.ascontiguousarray(verifiers[:, proper:width]).view(">u4").reshape(count, relation.bands)
    return Signatures(gates, padded.view(np.uint64), np.ascontiguousarray(keys.T.astype(np.uint64)))
