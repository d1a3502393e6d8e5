"""The ways to a Redis that settings can name."""

import pytest
import redis

from simhash.errors import IndexMisconfigured, IndexMismatch, IndexUnreachable
from simhash.signature.profiles import DEFAULT, DEFAULT_1, SEGMENTED, profile
from tests.busy import kept_busy
from tests.servers import running_redis, running_sentinel
from worker.files.embedded import embedded_redis
from worker.index.configured import configured_relation
from worker.index.stores import connect, connected_index, found_index, judging_profile
from worker.settings import load


def test_a_redis_is_reached_by_its_socket():
    with embedded_redis(None) as server:
        path = server.connection_pool.connection_kwargs["path"]
        with connect(load({"redis_url": f"unix://{path}?db=1"})) as client:
            assert client.ping()


def test_what_loses_an_index_or_makes_it_large_is_warned_of(redis_server, tmp_path, caplog):
    unlike = {"appendonly": "no", "hash-max-listpack-entries": "64"}
    with running_redis(tmp_path, unlike) as server:
        connected_index(load({"redis_url": server.url}), DEFAULT)
    keeps_nothing, large = [record.getMessage() for record in caplog.records]
    assert keeps_nothing.startswith("Redis: appendonly is no: set it to yes")
    assert large.startswith("Redis: hash-max-listpack-entries is 64: set it to 128 or more")
    caplog.clear()
    connected_index(load({"redis_url": redis_server.url, "index_name": "warned-of"}), DEFAULT)
    assert caplog.records == []


def test_a_primary_that_nobody_knows_is_said_in_few_words():
    with pytest.raises(IndexUnreachable) as caught:
        found_index(load({"redis_url": "redis+sentinel://:sesame@127.0.0.1:1,127.0.0.1:2/dedup"}))
    said = "Redis does not answer: no primary 'dedup' is named by its Sentinels (127.0.0.1:1, 127.0.0.1:2)"
    assert str(caught.value) == said


def test_a_redis_that_is_no_sentinel_is_said_to_be_none(redis_server):
    with pytest.raises(IndexMisconfigured) as caught:
        found_index(load({"redis_url": f"redis+sentinel://:sesame@{redis_server.address}/dedup"}))
    said = f"what answers at {redis_server.address} is a Redis and no Sentinel: name it by a redis:// or rediss:// URL"
    assert str(caught.value) == f"{said}, or name the Sentinels (as a rule at port 26379)"


@pytest.mark.parametrize("login", ["", "?sentinel_password=other"])
def test_sentinels_that_refuse_the_login_are_said_to_refuse_it(redis_server, tmp_path, login):
    with running_sentinel(redis_server, tmp_path) as sentinel:
        with redis.Redis.from_url(f"redis://{sentinel.address}") as client:
            client.execute_command("ACL", "SETUSER", "default", "resetpass", ">sesame")
        with pytest.raises(IndexMisconfigured) as caught:
            found_index(load({"redis_url": sentinel.url + login}))
        said = f"the Sentinels ({sentinel.address}) refuse the login (redis_url: sentinel_username, sentinel_password)"
        assert str(caught.value) == said
        beside_another = sentinel.url.replace(sentinel.address, f"{sentinel.address},127.0.0.1:1") + login
        with pytest.raises(IndexUnreachable, match="and some refuse the login"):
            found_index(load({"redis_url": beside_another}))  # which is down, and may know a primary in a moment
        with connect(load({"redis_url": f"{sentinel.url}?sentinel_password=sesame"})) as client:
            assert client.ping()


@pytest.fixture
def locked(cluster):
    """Its nodes ask for a password."""
    for node in cluster:
        with redis.Redis.from_url(node.url) as client:
            client.config_set("requirepass", "sesame")
    yield cluster
    for node in cluster:
        with redis.Redis.from_url(node.url, password="sesame") as client:
            client.config_set("requirepass", "")


@pytest.mark.parametrize("login", ["", ":other@"])
def test_a_cluster_that_refuses_the_login_is_not_said_to_be_silent(locked, login):
    with pytest.raises(IndexMisconfigured, match="Redis refuses the login"):
        found_index(load({"redis_url": f"redis+cluster://{login}{','.join(node.address for node in locked)}"}))


def test_a_slot_that_nobody_has_is_waited_for_though_a_node_refuses_the_login(cluster, name):
    """The nodes that answer may name its primary in a moment."""
    open_one, shut = cluster[0], cluster[1]
    with redis.Redis.from_url(shut.url) as client:
        client.config_set("requirepass", "sesame")
    url = f"redis+cluster://{open_one.address}"
    try:
        with connect(load({"redis_url": url, "index_name": name})) as client:
            pool = client.connection_pool
            pool._slot = 1 << 14  # beyond all that there are
            pool._nodes = [tuple(place) for place in (open_one.address.split(":"), shut.address.split(":"))]
            with pytest.raises(redis.ConnectionError, match="some refuse to say"):
                pool.primary()
    finally:
        with redis.Redis.from_url(shut.url, password="sesame") as client:
            client.config_set("requirepass", "")


def test_a_node_that_a_script_keeps_busy_is_passed_over(cluster, name):
    """Another one knows where the index lies."""
    one = {"index_name": name, "redis_url": f"redis+cluster://{cluster[0].address}"}
    with connect(load(one)) as client:
        _, port = client.connection_pool.primary()
    busy, other = [node for node in cluster if not node.address.endswith(f":{port}")]
    with redis.Redis.from_url(busy.url) as client, kept_busy(client):
        both = {"redis_url": f"redis+cluster://{busy.address},{other.address}"}
        with connect(load(one | both)) as asking:
            assert asking.ping()


def settings_of(redis_server, name, **given):
    return load({"redis_url": redis_server.url, "index_name": name, "documents": 1000, **given})


def test_a_new_index_is_of_the_newest_version_of_a_profile(redis_server, name):
    settings = settings_of(redis_server, name)
    assert judging_profile(settings) == DEFAULT
    assert connected_index(settings, DEFAULT).spec.profile["version"] == 2
    assert judging_profile(settings) == DEFAULT


def test_an_index_of_an_older_version_goes_on_as_it_is(redis_server, name):
    older = settings_of(redis_server, name, profile="default/1")
    connected_index(older, judging_profile(older))
    settings = settings_of(redis_server, name)
    found = judging_profile(settings)
    assert found == DEFAULT_1
    assert connected_index(settings, found).spec.relation == configured_relation(older, DEFAULT_1)


@pytest.mark.parametrize(("made", "told"), [("default/1", "default/2"), ("default", "default/1"), ("default", "loose")])
def test_a_worker_of_another_profile_is_refused_and_told_what_to_do(redis_server, name, made, told):
    first = settings_of(redis_server, name, profile=made)
    connected_index(first, judging_profile(first))
    settings = settings_of(redis_server, name, profile=told)
    theirs, ours = profile(made), judging_profile(settings)
    with pytest.raises(IndexMismatch) as caught:
        connected_index(settings, ours)
    assert ours.label != theirs.label
    assert (
        f"it is one of profile {theirs.label}, this worker judges by {ours.label}. --profile {theirs.label} goes on"
        in str(caught.value)
    )


def test_a_profile_of_ones_own_is_not_taken_for_a_shipped_one(redis_server, name, tmp_path):
    (tmp_path / "mine.toml").write_text('base = "segmented"')
    older = settings_of(redis_server, name, profile="default/1")
    connected_index(older, judging_profile(older))
    assert judging_profile(settings_of(redis_server, name, profile="segmented")) == SEGMENTED
    assert judging_profile(settings_of(redis_server, name, profile=str(tmp_path / "mine.toml"))).name == "mine"


@pytest.mark.parametrize("there", [False, True])
def test_a_redis_that_goes_away_between_any_two_commands_of_opening_is_said_not_to_answer(
    redis_server, name, monkeypatch, there
):
    settings, send = settings_of(redis_server, name), redis.Connection.send_packed_command
    if there:
        connected_index(settings, DEFAULT)
    left = [0]

    def sent(self, command, check_health=True):
        left[0] -= 1
        if left[0] < 0:
            raise redis.ConnectionError("gone")
        return send(self, command, check_health)

    monkeypatch.setattr("redis.retry.sleep", lambda _: None)
    monkeypatch.setattr(redis.Connection, "send_packed_command", sent)
    for count in range(1000):
        left[0] = count
        try:
            connected_index(settings, judging_profile(settings))
        except IndexUnreachable:
            continue
        break
    assert 8 < count < 1000
