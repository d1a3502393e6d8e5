"""text-dedup's simhash tables in memory: new fingerprints stored, then every existing one looked up.

Options: new, existing (how many), runs. The fingerprints are random, so hardly any are near. The package's loop stands
in its command, where it cannot be called: this is that loop, around the package's own permutations, keys and distance,
with its defaults (64 bits, 3 of them different, 4 blocks).
"""

import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy

BITS, DIFFERENT, BLOCKS = 64, 3, 4


def main(new: int, existing: int, runs: int) -> dict[str, object]:
    """Processor seconds to store `new` and to look up `existing`, in each run; and how many pairs were found."""
    module = text_dedup()
    permutations = module._create_permutations(BITS, DIFFERENT, BLOCKS)
    stored, looked_up, pairs = [], [], 0
    for run in range(runs):
        random = numpy.random.default_rng(run)
        buckets: dict[Any, list[Any]] = defaultdict(list)
        given = fingerprints(random, new)
        began = time.process_time()
        for number, fingerprint in enumerate(given):
            for key in keys(permutations, fingerprint):
                buckets[key].append((number, fingerprint))
        stored.append(time.process_time() - began)
        given = fingerprints(random, existing)
        began = time.process_time()
        pairs = sum(len(neighbours(module, buckets, keys(permutations, each), each)) for each in given)
        looked_up.append(time.process_time() - began)
    return {"stored": stored, "looked_up": looked_up, "pairs": pairs}


def text_dedup() -> ModuleType:
    """The package's module; it imports `datasets`, which none of this calls."""
    version = MagicMock(dataclass=dataclass)
    sys.modules.update({"datasets": MagicMock(), "datasets.utils": MagicMock(), "datasets.utils.version": version})
    return import_module("text_dedup.simhash")


def fingerprints(random: numpy.random.Generator, count: int) -> list[Any]:
    """Random ones, as the package has them."""
    data = random.integers(0, 1 << BITS, count, dtype=numpy.uint64).tobytes()
    made = import_module("bitarray").frozenbitarray
    return [made(buffer=data[at : at + 8]) for at in range(0, len(data), 8)]


def keys(permutations: list[Any], fingerprint: Any) -> list[tuple[bytes, bytes]]:
    """The keys of its buckets, as `embed_func` makes them."""
    return [
        (each.search_mask.tobytes(), (each.permute(fingerprint) & each.search_mask).tobytes()) for each in permutations
    ]


def neighbours(module: ModuleType, buckets: Any, found: list[tuple[bytes, bytes]], fingerprint: Any) -> set[int]:
    """Numbers of the stored ones that are near, as `main` looks for them."""
    near: set[int] = set()
    for key in found:
        for number, other in buckets[key]:
            if number not in near and module._hamming_distance(fingerprint, other) <= DIFFERENT:
                near.add(number)
    return near


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
