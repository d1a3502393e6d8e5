"""What a failover loses: the primary is killed under load, the replica promoted; what was confirmed is asked for again.

    python -m benchmarks.failover [--trials 20]

Batches of 100 random pages, all unlike, are stored as fast as one client can, with and without `WAIT 1`; the replica is
as far away as the delay says (a proxy that holds back each byte for so long, and that dies with the primary). A page
counts as confirmed when the call that stored it, and the WAIT behind it, had returned. Each page that was confirmed and
is unique again on the promoted replica is lost: its verdict would be out, and a page like it unique a second time.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import NamedTuple

import redis

from deploy.local.stores import RedisServer
from simhash.errors import IndexFault
from simhash.index import Entry, Relation, Unique
from simhash.index.redis.epochs import Durability
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.opening import open_index
from simhash.relation.tables import design

BATCH = 100


DELAYS_MS = (0, 1, 10)


def main() -> None:
    """Run the trials and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="failovers of each kind (default 20)")
    trials = parser.parse_args().trials
    print(f"{'replica':>12} {'wait_replicas':>14} {'failovers':>10} {'confirmed':>10} {'lost':>6} {'most':>6}")
    for delay_ms in DELAYS_MS:
        for replicas in (0, 1):
            found = [_trial(seed, replicas, delay_ms / 1000) for seed in range(trials)]
            confirmed, lost = sum(each.confirmed for each in found), [each.lost for each in found]
            print(
                f"{delay_ms:>9} ms {replicas:>14} {trials:>10} {confirmed:>10,} {sum(lost):>6} {max(lost):>6}",
                flush=True,
            )


class Trial(NamedTuple):
    """What one failover came to: pages."""

    confirmed: int
    lost: int


def _trial(seed: int, replicas: int, delay: float) -> Trial:
    """Store, kill the primary in the middle of it, promote the replica, and ask for all that was confirmed."""
    with tempfile.TemporaryDirectory() as directory:
        primary = RedisServer(Path(directory) / "primary", dies_with_parent=True)
        primary.start()
        proxy = Proxy(primary.port, delay)
        replica = RedisServer(
            Path(directory) / "replica",
            dies_with_parent=True,
            settings={"replicaof": f"127.0.0.1 {proxy.port}", "repl-diskless-sync-delay": "0"},
        )
        try:
            replica.start()
            _in_step(primary)
            enough = threading.Event()
            killer = threading.Thread(target=_kill_after, args=(enough, primary, proxy))
            killer.start()
            confirmed = _store_until_it_dies(primary, seed, replicas, enough)
            killer.join()
            with redis.Redis.from_url(replica.url) as promoted:
                promoted.replicaof("NO", "ONE")
                return Trial(len(confirmed), _lost(_index(promoted, 0), confirmed))
        finally:
            primary.kill()
            replica.kill()
            proxy.close()


def _kill_after(enough: threading.Event, primary: RedisServer, proxy: Proxy) -> None:
    enough.wait()
    primary.kill()
    proxy.close()


class Proxy:
    """A line to the primary that holds back what comes from it; closed, it loses what is on its way."""

    def __init__(self, primary_port: int, delay: float) -> None:
        self._primary_port, self._delay = primary_port, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut the line."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._primary_port))
                self._open += [near, far]
                waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                for work in ((_read, far, waiting), (_write, near, waiting, self._delay), (_pass_on, near, far)):
                    threading.Thread(target=work[0], args=work[1:], daemon=True).start()


def _read(far: socket.socket, waiting: SimpleQueue[tuple[float, bytes]]) -> None:
    with suppress(OSError):
        while data := far.recv(1 << 16):
            waiting.put((time.monotonic(), data))


def _write(near: socket.socket, waiting: SimpleQueue[tuple[float, bytes]], delay: float) -> None:
    with suppress(OSError):
        while True:
            came, data = waiting.get()
            time.sleep(max(0.0, came + delay - time.monotonic()))
            near.sendall(data)


def _pass_on(near: socket.socket, far: socket.socket) -> None:
    with suppress(OSError):
        while data := near.recv(1 << 16):
            far.sendall(data)


def _store_until_it_dies(primary: RedisServer, seed: int, replicas: int, enough: threading.Event) -> list[Entry]:
    random, confirmed = Random(seed), list[Entry]()
    wanted = random.randrange(1000, 2000)
    with redis.Redis.from_url(primary.url, retry=None) as client:
        try:
            index = _index(client, replicas)
            while True:
                batch = [_page(random, len(confirmed) + n) for n in range(BATCH)]
                index.check_and_insert(batch, {})
                index.replicated()
                confirmed += batch
                if len(confirmed) >= wanted:
                    enough.set()
        except IndexFault:
            return confirmed
        finally:
            enough.set()  # also where a replica on a busy machine has not acknowledged a batch in time


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
