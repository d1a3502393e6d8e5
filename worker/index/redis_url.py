"""What `redis_url` may say, by its scheme, and what is wrong with others. No message quotes user or password.

Redis behind Sentinels is redis+sentinel://[user:password@]host:port,host:port/service[/db][?sentinel_password=...].
User and password are those of Redis; `sentinel_username` and `sentinel_password` those of the Sentinels, where they
have one. With rediss+sentinel:// both are spoken to over TLS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

CLUSTER_SCHEME = "+cluster"
"""What the URL of a Redis Cluster has behind redis or rediss; several host:port may follow, separated by commas."""
SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
SENTINEL_PORT = 26379
_CLUSTER_SCHEMES = (f"redis{CLUSTER_SCHEME}://", f"rediss{CLUSTER_SCHEME}://")
_SCHEMES = ("redis://", "rediss://", "unix://", *SENTINEL_SCHEMES, *_CLUSTER_SCHEMES)
_REDIS_PORT = 6379
_NODE = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?")

# What the driver takes from a URL. Not what would change its answers' form (decode_responses), and not what it takes
# for text where it needs another kind of value.
OF_ALL = {
    "client_name",
    "db",
    "max_connections",
    "password",
    "protocol",
    "retry_on_timeout",
    "socket_timeout",
    "username",
}
OF_PRIMARIES = {"health_check_interval"}
OF_SOCKETS = {"socket_connect_timeout", "socket_keepalive"}
OF_TLS = {
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
}
_OF_SENTINELS = {
    "sentinel_username",
    "sentinel_password",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
}


@dataclass(frozen=True)
class ClusterAddress:
    """The nodes that a cluster URL names, the first of them as a URL of its own that the driver reads.

    Attributes:
        first: with user, password and options.
        others: their hosts and ports.
    """

    first: str
    others: tuple[tuple[str, int], ...]


def check_url(url: str) -> None:
    """Refuse a URL that is none, or says what nobody heeds.

    Raises:
        ValueError: what is wrong with it.
    """
    if not url.startswith(_SCHEMES):
        raise ValueError(f"a Redis URL begins with {', '.join(_SCHEMES)}")
    scheme, _, rest = url.partition("://")
    if set(rest.rpartition("@")[0]) & set("/?#@"):
        raise ValueError("in a password, write / ? # and @ as %2F %3F %23 and %40")
    if url.startswith(SENTINEL_SCHEMES):
        sentinel_address(url)
        return
    place, _, query = rest.rpartition("@")[2].partition("?")
    options = options_in(query)
    _check_options(scheme, options)
    if scheme == "unix":
        return
    database = place.partition("/")[2]
    if database and not database.isdecimal():  # which the driver takes for database 0
        raise ValueError("behind the host of a Redis URL stands the number of a database: redis://host:port/0")
    if CLUSTER_SCHEME in scheme:
        if int(options.get("db") or database or 0):
            raise ValueError("a Redis Cluster has no other database than 0: name none")
        cluster_address(url)


def cluster_address(url: str) -> ClusterAddress:
    """The parts of a cluster URL.

    Raises:
        ValueError: it names no nodes.
    """
    scheme, _, rest = url.partition("://")
    login, at, places = rest.rpartition("@")
    hosts, tail = re.split(r"(?=[/?]|$)", places, maxsplit=1)
    first, *others = (_node(place) for place in hosts.split(","))
    host, port = f"[{first[0]}]" if ":" in first[0] else first[0], first[1]
    return ClusterAddress(f"{scheme.removesuffix(CLUSTER_SCHEME)}://{login}{at}{host}:{port}{tail}", tuple(others))


def _node(place: str) -> tuple[str, int]:
    found = _NODE.fullmatch(place.strip())
    port = int(found["port"] or _REDIS_PORT) if found else 0
    if not found or not 0 < port < 65536:
        raise ValueError("a cluster URL names nodes, separated by commas: redis+cluster://host:port,host:port")
    return found["host"].strip("[]"), port


def _check_options(scheme: str, options: Mapping[str, str]) -> None:
    known = options_of(scheme)
    for name, value in options.items():
        if name in OF_TLS - known:
            raise ValueError(f"{name} belongs to a URL with TLS: rediss:// or rediss+cluster://")
        if name not in known:
            raise ValueError(f"a URL with {scheme}:// has no option {name}; it can have {', '.join(sorted(known))}")
        if name == "db" and not value.isdecimal():
            raise ValueError("db is the number of a database: 0")
        if name == "protocol" and value not in ("2", "3"):
            raise ValueError("protocol is 2 or 3")


def options_of(scheme: str) -> Set[str]:
    """The options that a URL of this scheme can have behind its question mark."""
    known = OF_ALL if CLUSTER_SCHEME in scheme else OF_ALL | OF_PRIMARIES
    if scheme == "unix":
        return known
    return known | OF_SOCKETS | (OF_TLS if scheme.startswith("rediss") else set())


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
    if unknown := sorted(options.keys() - _OF_SENTINELS):
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


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":") if ":" in text else (text.strip(), "", str(SENTINEL_PORT))
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("the Sentinels of a URL are host:port, separated by commas")
    return host.strip("[]"), int(port)


def _given(**values: str | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
