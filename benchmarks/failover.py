"""What a failover loses: the primary is killed under load, the replica promoted; what was confirmed is asked for again.

    python -m benchmarks.failover [--trials 20]

Batches of 100 random pages, all unlike, are stored as fast as one client can, with and without `WAIT 1`, and with the
replica in step or held back for 300 ms before the kill (as a slow network would). A page counts as confirmed when the
call that stored it, and the WAIT behind it, had returned. Each page that was confirmed and is unique again on the
promoted replica is lost: its verdict would be out, and one like it would be unique a second time.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import redis

from deploy.local.stores import RedisServer, replica_of
from simhash.errors import IndexFault
from simhash.index import Entry, Relation, Unique
from simhash.index.redis import RedisIndex, open_index
from simhash.index.safekeeping import Durability
from simhash.tables import design

BATCH = 100


def main() -> None:
    """Run the trials and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="failovers of each kind (default 20)")
    trials = parser.parse_args().trials
    print(f"{'replica':>12} {'wait_replicas':>14} {'failovers':>10} {'confirmed':>10} {'lost':>6} {'worst':>6}")
    for held_seconds in (0.0, 0.3):
        for replicas in (0, 1):
            counts = [_trial(seed, replicas, held_seconds) for seed in range(trials)]
            confirmed, lost = sum(c for c, _ in counts), [each for _, each in counts]
            name = f"held {held_seconds * 1000:.0f} ms" if held_seconds else "in step"
            print(f"{name:>12} {replicas:>14} {trials:>10} {confirmed:>10,} {sum(lost):>6} {max(lost):>6}")


def _trial(seed: int, replicas: int, held_seconds: float) -> tuple[int, int]:
    """How many pages were confirmed, and how many of them the promoted replica does not have."""
    with tempfile.TemporaryDirectory() as directory:
        primary = RedisServer(Path(directory) / "primary", dies_with_parent=True)
        replica = replica_of(primary, Path(directory) / "replica", dies_with_parent=True)
        try:
            primary.start()
            replica.start()
            _in_step(primary)
            killer = threading.Timer(0.3 + Random(seed).random() / 5, _kill, (primary, replica, held_seconds))
            killer.start()
            confirmed = _store_until_it_dies(primary, seed, replicas)
            killer.join()
            with redis.Redis.from_url(replica.url) as promoted:
                promoted.replicaof("NO", "ONE")
                return len(confirmed), _lost(_index(promoted, 0), confirmed)
        finally:
            primary.kill()
            replica.kill()


def _kill(primary: RedisServer, replica: RedisServer, held_seconds: float) -> None:
    if held_seconds:
        replica.pause()
        time.sleep(held_seconds)
    primary.kill()
    if held_seconds:
        replica.resume()


def _store_until_it_dies(primary: RedisServer, seed: int, replicas: int) -> list[Entry]:
    random, confirmed = Random(seed), list[Entry]()
    with redis.Redis.from_url(primary.url, retry=None) as client:
        try:
            index = _index(client, replicas)
            while True:
                batch = [_page(random, len(confirmed) + n) for n in range(BATCH)]
                index.check_and_insert(batch, {})
                index.replicated()
                confirmed += batch
        except IndexFault:
            return confirmed


def _lost(index: RedisIndex, confirmed: list[Entry]) -> int:
    """How many of them, delivered again under another observation, match nothing."""
    again = [replace(page, observation=bytes(16)) for page in confirmed]
    return sum(isinstance(answer.decision, Unique) for answer in index.check_and_insert(again, {}))


def _index(client: redis.Redis, replicas: int) -> RedisIndex:
    return open_index(
        client, "bench", {}, Relation(design("6"), 6, None), 100_000, durability=Durability(replicas, 200)
    )


def _page(random: Random, number: int) -> Entry:
    return Entry(random.randbytes(16), None, random.getrandbits(64), None, f"text:{number:032x}", f"http://a/{number}")


def _in_step(primary: RedisServer) -> None:
    with redis.Redis.from_url(primary.url) as client:
        while client.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.01)


if __name__ == "__main__":
    main()
