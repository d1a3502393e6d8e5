"""datasketch's MinHashLSH on Redis: inserts in a session, then check and insert one by one; bytes a document.

Options: host, port, urls (the keys: what a user would want a match to name), batches and batch (how many timed rounds
of how many pages). The MinHashes are random, so practically every page is new, and making them is not timed.
"""

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy
import redis

datasketch = import_module("datasketch")
PERMUTATIONS = 128
THRESHOLD = 0.8


def main(host: str, port: int, urls: list[str], batches: int, batch: int) -> dict[str, object]:
    """Load all but the last batches * batch URLs in a session, time the rest."""
    server = redis.Redis(host, port)
    empty = used_bytes(server)
    storage = {"type": "redis", "basename": b"peer", "redis": {"host": host, "port": port}}
    index = datasketch.MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, storage_config=storage)
    random = numpy.random.default_rng(1)
    loaded = urls[: len(urls) - batches * batch]
    started = time.perf_counter()
    with index.insertion_session(buffer_size=5000) as session:
        for url in loaded:
            session.insert(url, minhash(random), check_duplication=False)
    load_seconds = time.perf_counter() - started
    used = used_bytes(server) - empty
    settle(server)
    rates, latencies = [], []
    server_before = main_thread_seconds(server)
    for number in range(batches):
        start = len(loaded) + number * batch
        pages = [(url, minhash(random)) for url in urls[start : start + batch]]
        began = time.perf_counter()
        for url, page in pages:
            one = time.perf_counter()
            index.query(page)
            index.insert(url, page)
            latencies.append(time.perf_counter() - one)
        rates.append(batch / (time.perf_counter() - began))
    return {
        "stored": len(loaded),
        "bytes": used / len(loaded),
        "load_rate": len(loaded) / load_seconds,
        "rates": rates,
        "latencies": latencies,
        "server_us": 1e6 * (main_thread_seconds(server) - server_before) / (batches * batch),
        "bands": [index.b, index.r],
    }


def used_bytes(server: redis.Redis) -> int:
    """The server's bytes, without the buffers of its connections."""
    memory: Any = server.info("memory")
    return int(memory["used_memory"] - memory["mem_clients_normal"])


def settle(server: redis.Redis) -> None:
    """Wait for a rewrite of the append-only file to end, and let none begin: as for what this is compared with."""
    server.config_set("auto-aof-rewrite-percentage", 0)
    while server.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.2)


def main_thread_seconds(server: redis.Redis) -> float:
    """Processor seconds that the server's main thread has spent so far."""
    spent: Any = server.info("cpu")
    return float(spent["used_cpu_user_main_thread"] + spent["used_cpu_sys_main_thread"])


def minhash(random: numpy.random.Generator) -> Any:
    """A MinHash of nothing that was seen before."""
    values = random.integers(0, 1 << 32, PERMUTATIONS, dtype=numpy.uint64)
    return datasketch.MinHash(PERMUTATIONS, hashvalues=values, permutations=_ONE.permutations, scheme=_ONE.scheme)


_ONE = datasketch.MinHash(PERMUTATIONS)

if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
