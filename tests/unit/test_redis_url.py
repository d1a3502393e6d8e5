"""What a Redis URL may say: all of it reaches the driver, the rest is refused, and no password is told."""

import pytest
import redis
from redis.cluster import REDIS_ALLOWED_KEYS

from worker.errors import SettingsError
from worker.index.redis_url import cluster_address, options_of
from worker.index.stores import connect
from worker.settings import load

VALUES = {
    "client_name": "w",
    "db": "1",
    "health_check_interval": "3",
    "max_connections": "5",
    "password": "open",
    "protocol": "3",
    "retry_on_timeout": "yes",
    "socket_connect_timeout": "2.5",
    "socket_keepalive": "no",
    "socket_timeout": "2.5",
    "ssl_cert_reqs": "none",
    "ssl_check_hostname": "no",
    "username": "me",
}


@pytest.mark.parametrize(
    ("scheme", "place"), [("redis", "h:1"), ("rediss", "h:1"), ("unix", "/run/redis.sock")], ids=lambda part: part
)
def test_the_driver_takes_every_option_that_is_allowed(scheme, place):
    for option in options_of(scheme):
        pool = connect(load({"redis_url": f"{scheme}://{place}?{option}={VALUES.get(option, 'x')}"})).connection_pool
        assert option == "max_connections" or option in pool.connection_kwargs
        pool.make_connection()


@pytest.mark.parametrize("scheme", ["redis+cluster", "rediss+cluster"])
def test_the_driver_of_clusters_heeds_every_option_that_is_allowed(scheme):
    assert options_of(scheme) <= set(REDIS_ALLOWED_KEYS)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:sesame@h:1/0?foo=bar", "a URL with redis:// has no option foo; it can have client_name, db, "),
        ("redis://:sesame@h:1/0?decode_responses=1", "has no option decode_responses"),
        ("unix://:sesame@/run/redis.sock?socket_keepalive=1", "a URL with unix:// has no option socket_keepalive"),
        ("redis+cluster://:sesame@h:1?foo=1", "a URL with redis+cluster:// has no option foo"),
        ("redis+cluster://:sesame@h:1?health_check_interval=1", "has no option health_check_interval"),
        ("redis://h:1?ssl_ca_certs=/ca.pem&password=sesame", "ssl_ca_certs belongs to a URL with TLS"),
        ("redis://h:1?password=sesame&db=one", "db is the number of a database"),
        ("redis://h:1?password=sesame&protocol=9", "protocol is 2 or 3"),
        ("redis://h:1?sesame", "behind the ? of a Redis URL stand options: name=value&name=value"),
        ("redis+sentinel://h:1/dedup?sesame", "behind the ? of a Redis URL stand options: name=value&name=value"),
        ("redis+cluster://:sesame@h:1,g:2/3", "a Redis Cluster has no other database than 0"),
        ("redis+cluster://:sesame@h:1?db=3", "a Redis Cluster has no other database than 0"),
        ("redis+cluster://", "a cluster URL names nodes, separated by commas: redis+cluster://host:port,host:port"),
        ("redis+cluster://:sesame@/0", "a cluster URL names nodes"),
        ("redis+cluster://:sesame@h:1,", "a cluster URL names nodes"),
        ("redis+cluster://:sesame@h:99999", "a cluster URL names nodes"),
    ],
)
def test_what_nobody_would_heed_is_refused_by_name_without_the_password(url, said):
    with pytest.raises(SettingsError) as caught:
        load({"redis_url": url})
    assert str(caught.value).startswith("redis_url (flag --redis-url): ")
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "first", "others"),
    [
        ("redis+cluster://h:1", "redis://h:1", ()),
        ("redis+cluster://h/0", "redis://h:6379/0", ()),
        (
            "rediss+cluster://me:p%40ss@h:1,g,[::1]:3/0?protocol=2",
            "rediss://me:p%40ss@h:1/0?protocol=2",
            (("g", 6379), ("::1", 3)),
        ),
        ("redis+cluster://[::1]:3?db=0", "redis://[::1]:3?db=0", ()),
    ],
)
def test_a_cluster_url_names_its_nodes(url, first, others):
    load({"redis_url": url})
    found = cluster_address(url)
    assert (found.first, found.others) == (first, others)
    redis.Redis.from_url(found.first)
