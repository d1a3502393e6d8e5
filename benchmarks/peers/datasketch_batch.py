"""datasketch's MinHashLSH in memory: new pages stored, then every existing one looked up.

Options: new, existing (how many), runs. The MinHashes are random, so nothing is near; making them is not timed.
"""

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy

datasketch = import_module("datasketch")
PERMUTATIONS = 128
THRESHOLD = 0.8


def main(new: int, existing: int, runs: int) -> dict[str, object]:
    """Processor seconds to store `new` and to look up `existing`, in each run."""
    stored, looked_up = [], []
    for run in range(runs):
        random = numpy.random.default_rng(run)
        index = datasketch.MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
        pages = [minhash(random) for _ in range(new)]
        began = time.process_time()
        for number, page in enumerate(pages):
            index.insert(number, page, check_duplication=False)
        stored.append(time.process_time() - began)
        pages = [minhash(random) for _ in range(existing)]
        began = time.process_time()
        for page in pages:
            index.query(page)
        looked_up.append(time.process_time() - began)
    return {"stored": stored, "looked_up": looked_up}


def minhash(random: numpy.random.Generator) -> Any:
    """A MinHash of nothing that was seen before."""
    values = random.integers(0, 1 << 32, PERMUTATIONS, dtype=numpy.uint64)
    return datasketch.MinHash(PERMUTATIONS, hashvalues=values, permutations=_ONE.permutations, scheme=_ONE.scheme)


_ONE = datasketch.MinHash(PERMUTATIONS)

if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
