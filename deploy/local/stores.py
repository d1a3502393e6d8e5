"""Redis as a local process: alone, with replicas and a Sentinel, or as a small cluster of primaries.

Its settings are deploy/redis/redis.conf, as in the compose file; this adds address, port and directory, and
for tests of refusals whatever setting the caller wants different.
"""

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.local.installing import REDIS_AT_LEAST, redis_program
from deploy.local.ports import HOST, free_port
from deploy.local.processes import POLL_SECONDS, START_SECONDS, Server, ServerError

SETTINGS = Path(__file__).parents[1] / "redis" / "redis.conf"


class RedisServer(Server):
    """A Redis server at `url`; its append-only file is below `directory` and outlives restarts.

    `settings` override the shared ones, as lines of redis.conf: {"maxmemory-policy": "allkeys-lru"}.
    """

    name = "redis"

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        dies_with_parent: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port, dies_with_parent=dies_with_parent)
        self._settings = dict(settings or {})

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    def prepare(self) -> None:
        data = self.directory / "redis-data"
        data.mkdir(exist_ok=True)
        place = {"bind": HOST, "port": str(self.port), "dir": f'"{data}"'}
        lines = [f"{key} {value}" for key, value in {**place, **self._settings}.items()]
        self._configuration.write_text("\n".join([f'include "{SETTINGS}"', *lines, ""]))

    def command(self) -> list[str]:
        return [_program("redis-server"), str(self._configuration)]

    def answers(self) -> bool:
        # While the append-only file is read back, the answer is an error: the server is up but not ready.
        return _ping(self.port) == b"+PONG"

    @property
    def _configuration(self) -> Path:
        return self.directory / "redis.conf"


class SentinelServer(Server):
    """A Redis Sentinel at `address` that alone decides when `primary` is down, and promotes one of its replicas.

    The program is Redis's own in another mode: no package beside it is needed.
    """

    name = "sentinel"
    service = "dedup"

    def __init__(self, directory: Path, primary: RedisServer, *, dies_with_parent: bool = False) -> None:
        super().__init__(directory, dies_with_parent=dies_with_parent)
        self._primary = primary

    @property
    def url(self) -> str:
        """What `redis_url` is set to."""
        return f"redis+sentinel://{self.address}/{self.service}/0"

    def prepare(self) -> None:
        if self._configuration.exists():
            return  # it keeps there who the primary is now
        lines = [
            f"port {self.port}",
            f"bind {HOST}",
            f'dir "{self.directory}"',
            f"sentinel monitor {self.service} {HOST} {self._primary.port} 1",
            f"sentinel down-after-milliseconds {self.service} 500",
            f"sentinel failover-timeout {self.service} 3000",
        ]
        self._configuration.write_text("\n".join([*lines, ""]))

    def command(self) -> list[str]:
        return [_program("redis-server"), str(self._configuration), "--sentinel"]

    def answers(self) -> bool:
        return _ping(self.port) == b"+PONG"

    @property
    def _configuration(self) -> Path:
        return self.directory / "sentinel.conf"


def replica_of(primary: RedisServer, directory: Path, *, dies_with_parent: bool = False) -> RedisServer:
    """A Redis, not yet started, that follows `primary`; it is in step at once and not after a pause for others."""
    settings = {"replicaof": f"{HOST} {primary.port}", "repl-diskless-sync-delay": "0"}
    return RedisServer(directory, dies_with_parent=dies_with_parent, settings=settings)


def start_cluster(directory: Path, primaries: int = 3, *, dies_with_parent: bool = False) -> list[RedisServer]:
    """Start `primaries` (3 and more) Redis servers and share the 16,384 hash slots out among them.

    Raises ServerError, and leaves none running, when the cluster cannot be formed.
    """
    nodes = [_cluster_node(directory / f"node-{i}", dies_with_parent) for i in range(primaries)]
    try:
        for node in nodes:
            node.start()
        _share_slots(nodes)
        _wait_until_whole(nodes)
    except ServerError:
        for node in nodes:
            node.kill()
        raise
    return nodes


def _cluster_node(directory: Path, dies_with_parent: bool) -> RedisServer:
    # The bus would be at port + 10000, which is within the range of outgoing connections.
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "cluster-node-timeout": "2000"}
    return RedisServer(directory, dies_with_parent=dies_with_parent, settings=settings)


def _share_slots(nodes: list[RedisServer]) -> None:
    addresses = [node.address for node in nodes]
    command = [_program("redis-cli"), "--cluster", "create", *addresses, "--cluster-yes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"redis: no cluster of {addresses}\n{done.stdout}{done.stderr}")


def _wait_until_whole(nodes: list[RedisServer]) -> None:
    """For a moment after the slots are shared out, nodes still refuse commands."""
    deadline = time.monotonic() + START_SECONDS
    for node in nodes:
        while b"cluster_state:ok" not in _cluster_info(node.port):
            if time.monotonic() > deadline:
                raise ServerError(f"redis: {node.address} is in no whole cluster\n{node.log_tail()}")
            time.sleep(POLL_SECONDS)


def _cluster_info(port: int) -> bytes:
    with socket.create_connection((HOST, port), timeout=5) as connection:
        connection.sendall(b"CLUSTER INFO\r\n")
        stream = connection.makefile("rb")
        return stream.read(int(stream.readline()[1:]))


def _ping(port: int) -> bytes:
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.makefile("rb").readline().rstrip()
    except OSError:
        return b""


def _program(name: str) -> str:
    found = redis_program(name)
    if found is None:
        raise ServerError(f"{name} {REDIS_AT_LEAST}.0 or later is missing: run `deploy/local/servers install`")
    return found
