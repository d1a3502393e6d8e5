"""Sentinel URLs: what they say, and what is wrong with others, without a word of the password."""

import pytest

from worker.errors import SettingsError
from worker.index.redis_url import sentinel_address
from worker.settings import load, written


def test_a_sentinel_url_has_all_that_is_needed():
    found = sentinel_address("redis+sentinel://me:p%40ss@one:26380,two/dedup/3?sentinel_password=other")
    assert found.sentinels == (("one", 26380), ("two", 26379))
    assert found.service == "dedup"
    assert found.login == {"username": "me", "password": "p@ss", "db": 3}
    assert found.sentinel_login == {"password": "other"}


def test_tls_is_for_redis_and_sentinels_alike():
    found = sentinel_address("rediss+sentinel://[::1]:5000/dedup?ssl_ca_certs=/ca.pem")
    assert found.sentinels == (("::1", 5000),)
    assert found.login == {"ssl": True, "ssl_ca_certs": "/ca.pem", "db": 0}
    assert found.sentinel_login == {"ssl": True, "ssl_ca_certs": "/ca.pem"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://me:secret@one:1", "names a service"),
        ("redis+sentinel://me:secret@one:x/dedup", "host:port"),
        ("redis+sentinel://me:secret@one:1,/dedup", "host:port"),
        ("redis+sentinel://me:secret@one:70000/dedup", "host:port"),
        ("redis+sentinel://me:secret@one:1/dedup/db", "number of a database"),
        ("redis+sentinel://me:secret@one:1/dedup?what=1", "no option what"),
        ("redis+sentinel://me:secret@one:1/dedup?ssl_ca_certs=x", "options of TLS"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(url, said):
    with pytest.raises(SettingsError, match=said) as caught:
        load({"redis_url": url})
    assert "secret" not in str(caught.value)


def test_passwords_are_masked():
    settings = load({"redis_url": "redis+sentinel://me:secret@one:1,two:2/dedup?sentinel_password=other"})
    assert written(settings.redis_url) == "redis+sentinel://me:***@one:1,two:2/dedup?sentinel_password=***"


def test_replicas_are_waited_for_within_one_call():
    with pytest.raises(SettingsError, match="shorter than redis_timeout"):
        load({"wait_replicas": "1", "wait_timeout": "5s", "redis_timeout": "5s"})
