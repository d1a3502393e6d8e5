"""1e0ng's SimhashIndex, which lives in the process: check and insert one by one; bytes a document.

Options: urls (the ids), k, batches and batch (how many timed rounds of how many pages). Fingerprints are random.
"""

import json
import os
import random
import sys
import time
from importlib import import_module
from typing import Any

simhash = import_module("simhash")  # the peer: nothing of this project is on the path here


def main(urls: list[str], k: int, batches: int, batch: int) -> dict[str, object]:
    """Load all but the last batches * batch URLs, time the rest."""
    stored = len(urls) - batches * batch
    empty = resident()
    index = simhash.SimhashIndex([], k=k)
    chance = random.Random(1)
    started = time.perf_counter()
    for url in urls[:stored]:
        index.add(url, fingerprint(chance))
    load_seconds = time.perf_counter() - started
    used = resident() - empty
    rates, latencies = [], []
    for start in range(stored, len(urls), batch):
        pages = [(url, fingerprint(chance)) for url in urls[start : start + batch]]
        began = time.perf_counter()
        for name, page in pages:
            one = time.perf_counter()
            index.get_near_dups(page)
            index.add(name, page)
            latencies.append(time.perf_counter() - one)
        rates.append(batch / (time.perf_counter() - began))
    return {
        "stored": stored,
        "bytes": used / stored,
        "load_rate": stored / load_seconds,
        "rates": rates,
        "latencies": latencies,
    }


def resident() -> int:
    """Bytes of memory that this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fingerprint(chance: random.Random) -> Any:
    """A random one."""
    return simhash.Simhash(chance.getrandbits(64))


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
