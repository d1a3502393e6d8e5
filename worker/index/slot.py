"""A Redis Cluster as the one server that holds an index: redis+cluster://host:port,host:port.

An index lies under one hash tag, so in one slot, so on one primary. A connection asks the cluster for that primary
whenever it connects, and is closed when its server says that the slot is elsewhere (MOVED): after a slot was moved or a
primary failed over, the next connection finds the new one. ASK is never followed: while a slot is moving, its keys lie
on two servers, and neither could judge a page. Such an answer is an unreachable server; whoever asked waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import redis
from redis.crc import key_slot

from simhash.errors import IndexFault, IndexUnreachable
from simhash.index.redis.faults import translated
from worker.index.redis_url import cluster_address

_ELSEWHERE = (redis.exceptions.MovedError, redis.exceptions.AskError)


class _Pool(redis.ConnectionPool):
    """Connections to the primary of a slot, wherever it is.

    Args:
        slot: its number.
        nodes: hosts and ports to ask first.
    """

    follows_slot = True

    def __init__(self, slot: int, nodes: list[tuple[str, int]], **options: Any) -> None:
        self._slot = slot
        self._nodes = nodes
        super().__init__(**options, pool=self)
        self._asking = {name: value for name, value in options.items() if name != "connection_class"}
        self._tls = options["connection_class"] is _SlotSSLConnection

    def primary(self) -> tuple[str, int]:
        """Where the slot is now.

        Raises:
            redis.ConnectionError: nobody says.
            IndexFault: all nodes refuse to say, as for a wrong password.
        """
        nodes, faults = list(self._nodes), list[IndexFault]()
        for host, port in nodes:
            try:
                with translated(), redis.Redis(**self._asking | {"host": host, "port": port, "ssl": self._tls}) as node:
                    slots: Any = node.execute_command("CLUSTER SLOTS")
            except IndexFault as fault:
                faults.append(fault)
                continue
            found = list(_primaries(slots, host))
            self._nodes = list(dict.fromkeys([*(place for *_, place in found), *self._nodes]))
            for first, last, place in found:
                if first <= self._slot <= last:
                    return place
        refused = [fault for fault in faults if not isinstance(fault, IndexUnreachable)]
        if len(refused) == len(nodes):
            raise refused[0]
        asked = ", ".join(f"{host}:{port}" for host, port in self._nodes)
        besides = f", and some refuse to say ({refused[0]})" if refused else ""
        said = f"no node of the cluster ({asked}) names a primary for slot {self._slot}{besides}"
        raise redis.ConnectionError(said) from (faults[-1] if faults else None)


def _primaries(slots: Any, asked: str) -> Iterator[tuple[int, int, tuple[str, int]]]:
    """First and last slot of each range, and its primary; one that does not know its own host is the one asked."""
    ranges = slots.values() if isinstance(slots, dict) else slots
    for each in ranges:
        if isinstance(each, dict):
            raise redis.ConnectionError("CLUSTER SLOTS has an answer of another form than expected")
        first, last, (host, port, *_), *_ = each
        name = host.decode() if isinstance(host, bytes) else host
        yield first, last, (name or asked, port)


class _Following:
    """A connection that looks for its server whenever it connects."""

    _sock: Any
    host: str
    port: int

    def __init__(self, *arguments: Any, pool: _Pool, **options: Any) -> None:
        self._pool = pool
        made: Any = super()
        made.__init__(*arguments, **options)

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        if not self._sock:
            self.host, self.port = self._pool.primary()
        made: Any = super()
        made.connect_check_health(*arguments, **options)

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        made: Any = super()
        try:
            return made.read_response(*arguments, **options)
        except _ELSEWHERE as error:
            made.disconnect()
            raise redis.ConnectionError(f"the index's slot of the cluster is elsewhere, or moving: {error}") from error


class _SlotConnection(_Following, redis.Connection):
    """In the clear."""


class _SlotSSLConnection(_Following, redis.SSLConnection):
    """Over TLS."""


def slot_client(url: str, key: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the primary that holds this key.

    Args:
        options: timeouts and the like.

    Raises:
        ValueError: see `worker.index.redis_url.cluster_address`.
    """
    address = cluster_address(url)
    parsed: Any = redis.connection  # its types are not given
    named: dict[str, Any] = dict(parsed.parse_url(address.first))
    tls = named.pop("connection_class", None) is redis.SSLConnection
    nodes = [(str(named.pop("host")), int(named.pop("port", 6379))), *address.others]
    kind = _SlotSSLConnection if tls else _SlotConnection
    return redis.Redis(
        connection_pool=_Pool(key_slot(key.encode()), nodes, **dict(options) | named | {"connection_class": kind})
    )
