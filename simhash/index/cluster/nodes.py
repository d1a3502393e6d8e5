"""The connection to a Redis Cluster: scripts run where their keys lie, redirections followed, errors translated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from itertools import groupby
from typing import Any

import redis
from redis.exceptions import AskError, ClusterError, MovedError, NoScriptError, RedisClusterException, TryAgainError

from simhash.errors import IndexFault, IndexMisconfigured, IndexServerChanged, IndexUnreachable
from simhash.index.cluster.groups import Operation
from simhash.index.cluster.ledger import SERVER_BYTES, Kept, Ledger
from simhash.index.cluster.placement import Placement
from simhash.index.faults import translated
from simhash.index.layout import literal

_FOLDER = resources.files("simhash.index.cluster")
PARTS = ("claims", "taking", "filling", "migrating", "looking")
CLAIMS = "\n".join(_FOLDER.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in PARTS)
GROUP = _FOLDER.joinpath("group.lua").read_text(encoding="utf-8")
_HASHES = """
local found = {}
for n = 1, #KEYS do found[n] = redis.call('HGETALL', KEYS[n]) end
return found
"""
FIRST_KEY = 2
SCANNED_AT_ONCE = 500
_PASSING = (ClusterError, TryAgainError, AskError)
"""A cluster that is being formed, fails over or moves slots: later it answers."""
_REFUSED = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
"""Why the driver finds no node that it may use."""
_TAKEN_OVER = ("TAKEN", "BARRED")
_UNSETTLED = "UNSETTLED"


class TakenOver(Exception):
    """Another worker has taken over what this one was at: what was written so far is its to finish."""


class Unsettled(IndexServerChanged):
    """A group has another server than the claim slot says, or lacks calls: it must be looked at (`Keeper.settle`)."""


class Nodes:
    """The primaries of a cluster. One thread uses it.

    Raises (all methods): IndexFault, as `translated_on_cluster` says; TakenOver: the script refuses this nonce.
    """

    def __init__(self, client: redis.RedisCluster) -> None:
        self._client: Any = client  # its types say "bytes or str" of every answer; ours are all bytes
        self.ledger = Ledger()
        self._shas: dict[str, str] = {}

    @property
    def client(self) -> Any:
        """The connection itself."""
        return self._client

    def claims(self, keys: Sequence[str], arguments: Sequence[bytes | str | int]) -> Any:
        """Call claims.lua."""
        return self.script(CLAIMS, keys, arguments)

    def script(self, source: str, keys: Sequence[str], arguments: Sequence[bytes | str | int]) -> Any:
        """Call a script whose keys lie in one slot."""
        return self._each([[self._sha(source), len(keys), *keys, *arguments]])[0]

    def hashes(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Whole hashes of one slot, at one moment."""
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in self.script(_HASHES, keys, [])]

    def read(self, placement: Placement, operations: Sequence[Operation]) -> list[Any]:
        """What each operation finds, in their order."""
        return self._grouped(placement, operations, "", b"")

    def write(self, placement: Placement, operations: Sequence[Operation], nonce: int, barred: Sequence[int]) -> None:
        """Write for the holder of `nonce`; in each group written to, first bar former holders."""
        self._grouped(placement, operations, str(nonce), _bars(nonce, barred))

    def bar(self, placement: Placement, nonce: int, barred: Sequence[int]) -> None:
        """Bar former holders from all groups."""
        bars = _bars(nonce, barred)
        if not bars:
            return
        calls = [self._call(placement, group, [], str(nonce), bars, []) for group in range(placement.groups)]
        for group, (count,) in enumerate(self._each(calls)):
            self.ledger.wrote(group, count)

    def look(self, placement: Placement, kept: Sequence[Kept]) -> list[Kept]:
        """What each group's server and count are now; one that has another server than before is written to."""
        sha = self._sha(GROUP)
        calls = [[sha, 1, placement.written(g), "?", "", k.calls, k.server.hex()] for g, k in enumerate(kept)]
        return [Kept(bytes.fromhex(server.decode()), count) for server, count in self._each(calls)]

    def servers(self) -> set[bytes]:
        """How the replication ids of all primaries begin."""
        with translated_on_cluster():
            found = [self._client.info("replication", target_nodes=node) for node in self._client.get_primaries()]
        return {bytes.fromhex(each["master_replid"])[:SERVER_BYTES] for each in found}

    def place(self, key: str) -> str:
        """The address of the primary that has a key."""
        name: str = self._client.get_node_from_key(key).name
        return name

    def acknowledged(
        self, placement: Placement, claims: tuple[Sequence[str], Sequence[object]], wanted: int, wait_ms: int
    ) -> int:
        """How many replicas, of each primary at least, have all that was written to it so far, within the time.

        A primary is written to, if it still is the server that it was, and WAIT follows on the same connection.

        Args:
            claims: keys and arguments of a call to the claim slot that writes.
            wanted: more are not waited for.
        """
        keys, arguments = claims
        calls: dict[str, tuple[Any, list[object]]] = {}
        for group in range(placement.groups):
            key, kept = placement.written(group), self.ledger.expected(group)
            node = self._client.get_node_from_key(key)
            calls.setdefault(node.name, (node, [self._sha(GROUP), 1, key, "!", "", kept.calls, kept.server.hex()]))
        slot = self._client.get_node_from_key(keys[0])
        end = time.monotonic() + wait_ms / 1000
        found = []
        for node, call in [(slot, [self._sha(CLAIMS), len(keys), *keys, *arguments]), *calls.values()]:
            left = max(1, int(1000 * (end - time.monotonic())))
            found.append(self._touched(node, call, wanted, left))
        return min(found)

    def _touched(self, node: Any, call: Sequence[object], wanted: int, wait_ms: int) -> int:
        with translated_on_cluster():
            for _ in range(2):
                pipe = self._client.get_redis_connection(node).pipeline(transaction=False)
                pipe.execute_command("EVALSHA", *call)
                pipe.execute_command("WAIT", wanted, wait_ms)
                refused, acknowledged = pipe.execute(raise_on_error=False)
                if not isinstance(refused, NoScriptError):
                    break
                self._load_again()
            if isinstance(refused, MovedError):
                self._client.nodes_manager.initialize()
            for answer in (refused, acknowledged):
                if isinstance(answer, Exception):
                    raise answer
            return int(acknowledged)

    def field(self, key: str, field: str | bytes) -> bytes | None:
        """A field of a hash."""
        with translated_on_cluster():
            found: bytes | None = self._client.hget(key, field)
            return found

    def set_field(self, key: str, field: str | bytes, value: str | bytes) -> None:
        """Set a field of a hash."""
        self.set_fields(key, {field: value})

    def set_fields(self, key: str, fields: Mapping[Any, str | bytes | int]) -> None:
        """Set fields of a hash."""
        with translated_on_cluster():
            self._client.hset(key, mapping=fields)

    def drop_field(self, key: str, field: str) -> None:
        """Remove a field of a hash."""
        with translated_on_cluster():
            self._client.hdel(key, field)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys of one slot."""
        with translated_on_cluster():
            self._client.unlink(*keys)

    def hash(self, key: str) -> dict[bytes, bytes]:
        """A whole hash."""
        with translated_on_cluster():
            found: dict[bytes, bytes] = self._client.hgetall(key)
            return found

    def fields(self, key: str) -> Iterator[tuple[bytes, bytes]]:
        """All fields of a hash with their values, a few at a time."""
        with translated_on_cluster():
            yield from self._client.hscan_iter(key, count=SCANNED_AT_ONCE)

    def members(self, key: str) -> Iterator[bytes]:
        """All members of a sorted set, a few at a time."""
        with translated_on_cluster():
            yield from (member for member, _ in self._client.zscan_iter(key, count=SCANNED_AT_ONCE))

    def short(self, keys: Sequence[str], scan: str) -> list[Any]:
        """All that is in each key, by the command that scans its kind; None: it is longer than one step gives."""
        with translated_on_cluster():
            pipe = self._client.pipeline()
            for key in keys:
                node = self._client.get_node_from_key(key)
                pipe.execute_command(scan, key, 0, "COUNT", SCANNED_AT_ONCE, target_nodes=node)
            return [None if cursor else found for cursor, found in pipe.execute()]

    def is_member(self, key: str, member: bytes) -> bool:
        """Whether a sorted set has this member."""
        with translated_on_cluster():
            return self._client.zscore(key, member) is not None

    def count(self, key: str) -> int:
        """How many members a sorted set has."""
        with translated_on_cluster():
            return int(self._client.zcard(key))

    def sizes(self, keys: Sequence[str], count: str) -> Iterator[tuple[str, int, int]]:
        """Of each key the entries, by a command that counts them, and the bytes."""
        with translated_on_cluster():
            pipe = self._client.pipeline()
            for key in keys:
                for command in (count, "MEMORY USAGE"):
                    pipe.execute_command(command, key, target_nodes=self._client.get_node_from_key(key))
            found = pipe.execute()
        for key, entries, size in zip(keys, found[::2], found[1::2], strict=True):
            yield key, entries, size or 0

    def memory(self) -> list[tuple[str, dict[str, Any]]]:
        """What INFO memory says on each primary, by its address."""
        with translated_on_cluster():
            found = [(node, self._client.info("memory", target_nodes=node)) for node in self._client.get_primaries()]
        return [(node.name, memory) for node, memory in found]

    def keys(self, start: str, middle: str = "") -> Iterator[str]:
        """All keys that begin with `start` and have `middle` behind it, on all primaries."""
        pattern = f"{literal(start)}*{literal(middle)}{'*' if middle else ''}"
        with translated_on_cluster():
            for key in self._client.scan_iter(pattern, count=1000):
                yield key.decode()

    def ping(self) -> None:
        """Raise unless every primary answers."""
        with translated_on_cluster():
            self._client.ping(target_nodes=self._client.PRIMARIES)

    def _grouped(self, placement: Placement, operations: Sequence[Operation], nonce: str, bars: bytes) -> list[Any]:
        """One call a group; results in the order of the operations."""
        order = sorted(range(len(operations)), key=lambda n: operations[n].spot.group)
        groups = [(group, list(part)) for group, part in groupby(order, key=lambda n: operations[n].spot.group)]
        calls = []
        for group, part in groups:
            keys, arguments = [operations[n].spot.key for n in part], [operations[n].argument for n in part]
            calls.append(self._call(placement, group, keys, nonce, bars, arguments))
        results: list[Any] = [None] * len(operations)
        for (group, part), found in zip(groups, self._each(calls), strict=True):
            if nonce:
                self.ledger.wrote(group, found.pop())
            for n, result in zip(part, found, strict=True):
                results[n] = result
        return results

    def _call(
        self, placement: Placement, group: int, keys: Sequence[str], nonce: str, bars: bytes, arguments: Sequence[bytes]
    ) -> list[Any]:
        """A call of group.lua."""
        kept = self.ledger.expected(group)
        all_keys = [placement.barred(group), placement.written(group), *keys]
        server = kept.server.hex() if nonce else ""
        return [self._sha(GROUP), len(all_keys), *all_keys, nonce, bars, kept.calls, server, *arguments]

    def _sha(self, script: str) -> str:
        if script not in self._shas:
            with translated_on_cluster():
                self._shas[script] = self._client.script_load(script)
        return self._shas[script]

    def _each(self, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """The results of script calls, sent to all nodes at once."""
        with translated_on_cluster():
            results = self._sent(calls)
            if any(isinstance(result, NoScriptError) for result in results):
                self._load_again()
                # Repeated whole: every call may be made twice, and one that was refused did nothing.
                again = [n for n, result in enumerate(results) if isinstance(result, NoScriptError)]
                for n, result in zip(again, self._sent([calls[n] for n in again]), strict=True):
                    results[n] = result
            for result in results:
                if isinstance(result, Exception):
                    raise result
            return results

    def _sent(self, calls: Sequence[Sequence[Any]]) -> list[Any]:
        pipe = self._client.pipeline()
        for call in calls:
            # Named, or the driver asks a server for the keys of each call. It follows redirections all the same.
            node = self._client.get_node_from_key(call[FIRST_KEY])
            pipe.execute_command("EVALSHA", *call, target_nodes=node)
        found: list[Any] = pipe.execute(raise_on_error=False)
        return found

    def _load_again(self) -> None:
        """A primary has joined, or has been restarted."""
        for script in self._shas:
            self._client.script_load(script)


def _bars(nonce: int, former: Sequence[int]) -> bytes:
    return b"".join(each.to_bytes(6) for each in dict.fromkeys(former) if each != nonce)


@contextmanager
def translated_on_cluster() -> Iterator[None]:
    """Turn the driver's errors into IndexFaults, or TakenOver."""
    try:
        with translated():
            yield
    except RedisClusterException as error:
        if isinstance(error.__cause__, _REFUSED):
            with translated():
                raise error.__cause__ from None
        if "not enabled" in str(error):
            raise IndexMisconfigured("this Redis is no cluster: name it by a redis:// or rediss:// URL") from error
        raise IndexUnreachable(f"the Redis Cluster cannot be used now: {error}") from error
    except IndexFault as error:
        if type(error.__cause__) is ClusterError:  # the driver has followed as many redirections as it may
            raise IndexUnreachable(
                "the Redis Cluster cannot be used now: its nodes send a key to one another; if this stays, a slot is "
                "assigned wrongly: `redis-cli --cluster check`, then `fix`"
            ) from error
        if isinstance(error.__cause__, _PASSING):
            raise IndexUnreachable(f"the Redis Cluster cannot be used now: {error.__cause__}") from error
        if isinstance(error.__cause__, redis.ResponseError) and str(error.__cause__).startswith(_TAKEN_OVER):
            raise TakenOver(str(error.__cause__)) from error
        if isinstance(error.__cause__, redis.ResponseError) and str(error.__cause__).startswith(_UNSETTLED):
            raise Unsettled(f"a primary of the Redis Cluster has changed: {error.__cause__}") from error
        raise
