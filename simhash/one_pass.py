"""The default's kind of recipe on a text of moderate length, in as few NumPy calls as can be.

Of a page of a few hundred tokens most of the time is the calls', not their work, so what `profiles` does part by part
for texts of any length is done here at once: one table folds the text (`folding`), and the hashes of features and of
n-grams are finished together. Recipes and answers are those of the native kernel, and the same bit for bit.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import xxhash

from simhash import segment
from simhash.features import pair_sums
from simhash.fingerprint import simhash
from simhash.folding import fold
from simhash.native import Reading, Recipe
from simhash.shingles import gram_sums, mix64
from simhash.sketch import MinHashSketch
from simhash.tally import counts_of


def read(recipe: Recipe, text: str) -> Reading | None:
    """The signature of a text, any string; None where it is long or `folding` does not know all of its characters."""
    folded = fold(text, segment.PIECE_CHARACTERS)
    if folded is None:
        return None
    digest = xxhash.xxh3_128_hexdigest(folded.collapsed) if folded.collapsed else None
    tokens = folded.tokens
    if not len(tokens.hashes):
        return Reading(None, None, digest, 0)
    features = pair_sums(tokens)
    total = len(features)
    mixed = mix64(np.concatenate((features, gram_sums(tokens.hashes, recipe.n))))
    hashes, counts = counts_of(mixed[:total])
    if len(hashes) < recipe.min_features:
        return Reading(None, None, digest, total)
    weights = counts if recipe.cap is None else np.minimum(counts, recipe.cap)
    gate = simhash(hashes, weights, recipe.bits, recipe.zero_sum)
    sketch = _sketch(recipe)
    minima = sketch.no_minima()
    sketch.lower(minima, mixed[total:])
    return Reading(gate, sketch.of_minima(minima), digest, total)


@cache
def _sketch(recipe: Recipe) -> MinHashSketch:
    return MinHashSketch(recipe.n, recipe.bins, recipe.bands, recipe.rows)
