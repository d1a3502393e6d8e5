"""What `redis_url` may say, by its scheme, and what is wrong with others. No message quotes user or password."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass

from worker.index.sentinel import SENTINEL_SCHEMES, options_in, sentinel_address

CLUSTER_SCHEME = "+cluster"
"""What the URL of a Redis Cluster has behind redis or rediss; several host:port may follow, separated by commas."""
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
