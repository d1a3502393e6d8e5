"""Redis behind Sentinels: redis+sentinel://[user:password@]host:port,host:port/service[/db][?sentinel_password=...].

User and password are those of Redis; `sentinel_username` and `sentinel_password` those of the Sentinels, where they
have one. With rediss+sentinel:// both are spoken to over TLS. Sentinels are asked for the primary at each connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from simhash.errors import IndexMisconfigured

SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
SENTINEL_PORT = 26379
_OPTIONS = {"sentinel_username", "sentinel_password", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs"}


class _Sentinels(Sentinel):
    """Says which Sentinels it asked when none names a primary, or what answers is none.

    The driver names them with all their options, and knows a server that is no Sentinel by its answer alone.
    """

    def discover_master(self, service: str) -> tuple[str, int]:
        driver: Any = super()  # which gives it no types
        try:
            found: tuple[str, int] = driver.discover_master(service)
            return found
        except MasterNotFoundError as error:
            raise MasterNotFoundError(f"no primary {service!r} is named by its Sentinels ({self._asked})") from error
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


class _Connection(_Asking, SentinelManagedConnection):
    """In the clear."""


class _SSLConnection(_Asking, SentinelManagedSSLConnection):
    """Over TLS."""


@dataclass(frozen=True)
class SentinelAddress:
    """Where the Sentinels are, what they are asked for, and how to log in.

    Attributes:
        sentinels: their hosts and ports.
        service: what they call the primary.
        login: user name, password, database and TLS of Redis, as the driver names them.
        sentinel_login: the same of the Sentinels.
    """

    sentinels: tuple[tuple[str, int], ...]
    service: str
    login: Mapping[str, Any]
    sentinel_login: Mapping[str, Any]


def sentinel_address(url: str) -> SentinelAddress:
    """The parts of a Sentinel URL.

    Raises:
        ValueError: it is none; the text quotes neither user nor password.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    options = options_in(parts.query)
    if not service:
        raise ValueError("a Sentinel URL names a service: redis+sentinel://host:port,host:port/service/db")
    if not (database or "0").isdecimal():
        raise ValueError("behind the service of a Sentinel URL stands the number of a database")
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ValueError(f"a Sentinel URL has no option {', '.join(unknown)}")
    tls: dict[str, Any] = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if parts.scheme == "rediss+sentinel":
        tls["ssl"] = True
    elif tls:
        raise ValueError("options of TLS belong to rediss+sentinel://")
    return SentinelAddress(
        tuple(_host_and_port(each) for each in hosts.split(",")),
        service,
        _given(username=unquote(user), password=unquote(password)) | tls | {"db": int(database or 0)},
        _given(username=options.get("sentinel_username"), password=options.get("sentinel_password")) | tls,
    )


def options_in(query: str) -> dict[str, str]:
    """What stands behind the question mark of a URL.

    Raises:
        ValueError: something else than options; the text does not quote it.
    """
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise ValueError("behind the ? of a Redis URL stand options: name=value&name=value") from None


def sentinel_client(url: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the primary that the Sentinels name at each connection.

    Args:
        options: timeouts and the like, for Redis and Sentinels alike.

    Raises:
        ValueError: see `sentinel_address`.
    """
    address = sentinel_address(url)
    made: Any = _Sentinels  # typed as little as what it is made of
    sentinels = made(address.sentinels, sentinel_kwargs=dict(options) | dict(address.sentinel_login))
    login = dict(address.login)
    kind = _SSLConnection if login.pop("ssl", False) else _Connection
    found: redis.Redis = sentinels.master_for(address.service, **options, **login, connection_class=kind)
    return found


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":") if ":" in text else (text.strip(), "", str(SENTINEL_PORT))
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("the Sentinels of a URL are host:port, separated by commas")
    return host.strip("[]"), int(port)


def _given(**values: str | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
