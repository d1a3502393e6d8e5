"""Redis behind Sentinels, which are asked for the primary at each connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from simhash.errors import IndexMisconfigured
from worker.index.redis_url import SENTINEL_PORT, sentinel_address


class _Sentinels(Sentinel):
    """Says which Sentinels it asked when none names a primary, when all refuse the login, or what answers is none.

    The driver names them with all their options, each beside its error, and knows a server that is no Sentinel by its
    answer alone.
    """

    def discover_master(self, service: str) -> tuple[str, int]:
        driver: Any = super()  # which gives it no types
        try:
            found: tuple[str, int] = driver.discover_master(service)
            return found
        except MasterNotFoundError as error:
            refused = "refuse the login (redis_url: sentinel_username, sentinel_password)"
            refusing = str(error).count(redis.AuthenticationError.__name__)
            if refusing == len(self.sentinels):
                raise IndexMisconfigured(f"the Sentinels ({self._asked}) {refused}") from error
            besides = f", and some {refused}" if refusing else ""
            said = f"no primary {service!r} is named by its Sentinels ({self._asked}){besides}"
            raise MasterNotFoundError(said) from error
        except redis.ResponseError as error:
            if "unknown command" not in str(error):
                raise
            raise IndexMisconfigured(
                f"what answers at {self._asked} is a Redis and no Sentinel: name it by a redis:// or rediss:// URL, or "
                f"name the Sentinels (as a rule at port {SENTINEL_PORT})"
            ) from error

    @property
    def _asked(self) -> str:
        options = [each.connection_pool.connection_kwargs for each in self.sentinels]
        return ", ".join(f"{each['host']}:{each['port']}" for each in options)


class _Asking:
    """A connection that asks the Sentinels whenever it connects.

    The driver's own does so when its pool hands it out. One that is kept, as for WAIT, is never handed out again: it
    would come back to the primary of before, for good.
    """

    _sock: Any
    host: str
    port: int
    connection_pool: Any

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        if not self._sock:
            self.host, self.port = self.connection_pool.get_master_address()
        made: Any = super()
        made.connect_check_health(*arguments, **options)


class _SentinelConnection(_Asking, SentinelManagedConnection):
    """In the clear."""


class _SentinelSSLConnection(_Asking, SentinelManagedSSLConnection):
    """Over TLS."""


def sentinel_client(url: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the primary that the Sentinels name at each connection.

    Args:
        options: timeouts and the like, for Redis and Sentinels alike.

    Raises:
        ValueError: see `worker.index.redis_url.sentinel_address`.
    """
    address = sentinel_address(url)
    made: Any = _Sentinels  # typed as little as what it is made of
    sentinels = made(address.sentinels, sentinel_kwargs=dict(options) | dict(address.sentinel_login))
    login = dict(address.login)
    kind = _SentinelSSLConnection if login.pop("ssl", False) else _SentinelConnection
    found: redis.Redis = sentinels.master_for(address.service, **options, **login, connection_class=kind)
    return found
