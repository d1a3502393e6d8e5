"""A server that cannot hold an index is refused by every command that opens one; a command that reads may look."""

import re
from contextlib import contextmanager
from importlib import resources
from random import Random

import pytest
import redis
from click.testing import CliRunner

from simhash.errors import IndexMisconfigured, IndexServerChanged, IndexUnreachable
from simhash.index import Retention
from simhash.index.redis.opening import open_index
from simhash.relation.tables import design
from tests.pages import PAGES, banded, crowd, entry, relation
from tests.processes import until
from tests.servers import running_redis, running_replica
from worker.cli.main import commands

URL = entry(0, 7).url
READING = [
    ["index", "stats"],
    ["index", "check"],
    ["index", "base"],
    ["index", "export", "/dev/null"],
    ["index", "delete", "--dry-run", URL],
    ["inspect", URL],
]
WRITING = [["index", "delete", URL], ["index", "migrate", "--design", "10"]]
TELLING = [["index", "accept"], ["index", "rewind", "pages"], ["index", "migrate", "--abandon"]]


def run(*arguments):
    return CliRunner().invoke(commands, list(map(str, arguments)))


@pytest.mark.parametrize("arguments", [*READING, *WRITING, *TELLING], ids=" ".join)
def test_a_node_of_a_cluster_is_said_to_be_one_whatever_is_asked_of_it(cluster, name, arguments):
    for node in cluster:
        with pytest.raises(IndexMisconfigured, match=r"part of a cluster: name it by a redis\+cluster:// URL"):
            raise run(*arguments, "--redis-url", node.url, "--index-name", name).exception


def test_a_replica_is_read_and_not_written_to(tmp_path, name):
    """Even one that takes writes: its primary never has them."""
    with running_redis(tmp_path / "primary") as primary, running_replica(primary, tmp_path / "replica") as replica:
        client = redis.Redis.from_url(primary.url)
        open_index(client, name, {}, relation(design("4")), 1000).check_and_insert([entry(0, 7)], {})
        theirs = redis.Redis.from_url(replica.url)
        theirs.config_set("replica-read-only", "no")
        until(lambda: theirs.exists(f"{{{name}}}:meta"), "the replica has the index")
        flags = ("--redis-url", replica.url, "--index-name", name)
        assert run("index", "stats", *flags).exit_code == 0
        with pytest.raises(IndexUnreachable, match=r"this Redis is a replica of .*: name its primary"):
            open_index(theirs, name, {}, relation(design("4")), 1000)
        index = open_index(client, name, {}, relation(design("4")), 1000)
        index.check_and_insert([entry(1, 1 << 40)], {})
        client.replicaof(*replica.url.rpartition("/")[0].removeprefix("redis://").split(":"))
        client.config_set("replica-read-only", "no")
        with pytest.raises(IndexServerChanged):
            index.check_and_insert([entry(2, 2 << 40)], {})


@contextmanager
def evicting(backend):
    """The server drops keys when its memory is full, or says so."""
    node = backend.client
    node.config_set("maxmemory-policy", "allkeys-lru")
    try:
        yield
    finally:
        node.config_set("maxmemory-policy", "noeviction")


def test_a_server_that_drops_keys_is_read_and_not_written_to(backend, name, tmp_path):
    index = backend.open(name, relation(design("4")))
    index.check_and_insert([entry(0, 7)], {})
    flags = ("--redis-url", backend.url, "--index-name", name)
    takedowns = tmp_path / "takedowns.jsonl"
    with evicting(backend):
        for arguments in READING:
            done = run(*arguments, *flags)
            assert done.exit_code == 0, (arguments, done.output, done.exception)
        for arguments in WRITING:
            with pytest.raises(IndexMisconfigured, match="maxmemory-policy allkeys-lru"):
                raise run(*arguments, *flags, *(["--takedowns", takedowns] * ("delete" in arguments))).exception
        assert (index.documents(), takedowns.exists()) == (1, False)
    for arguments in WRITING:
        assert run(*arguments, *flags).exit_code == 0, arguments


@pytest.fixture
def user(client, name):
    """A user of the server who may do everything; the URL by which it logs in, and what takes a right from it."""
    client.acl_setuser(name, enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"])
    place = client.connection_pool.connection_kwargs
    yield (
        f"redis://{name}:secret@{place['host']}:{place['port']}/0",
        lambda right: client.execute_command("ACL", "SETUSER", name, *right.split()),
    )
    client.acl_deluser(name)


@pytest.mark.parametrize(
    ("right", "named"),
    [
        ("-hset", "HSET"),
        ("-zadd", "ZADD"),
        ("-hdel", "HDEL"),
        ("resetkeys ~other*", "[Nn]o permissions to access (one of the keys|a key)"),
    ],
)
def test_a_user_who_may_not_do_all_that_scripts_do_is_refused_before_anything_is_written(
    client, name, user, right, named
):
    url, take = user
    index = open_index(client, name, {}, relation(design("4")), 100)
    index.check_and_insert([entry(0, 7)], {})
    before = {key: client.dump(key) for key in client.scan_iter(f"{{{name}}}*", count=10_000)}
    take(right)
    with redis.Redis.from_url(url) as limited, pytest.raises(IndexMisconfigured, match=named):
        open_index(limited, name, {}, relation(design("4")), 100)
    assert {key: client.dump(key) for key in client.scan_iter(f"{{{name}}}*", count=10_000)} == before


def test_the_rights_that_are_asked_for_are_enough(client, name, user):
    """A user with the commands that the script names, and a few of the client's own, does all that a worker does."""
    url, take = user
    commands = "evalsha script|load info eval scan hgetall watch multi exec exists get"
    script = set(re.findall(r"call\('([A-Z]+)'", source()))
    named = set(re.findall(r"\{'([A-Z]+)'", source()))
    assert script <= named
    take(f"resetkeys ~{{{name}}}* -@all +{' +'.join([*commands.split(), *named])}".lower().replace(name.lower(), name))
    with redis.Redis.from_url(url) as limited:
        index = open_index(limited, name, {}, relation(design("4"), bands=2), 100, Retention(max_documents=20))
        index.check_and_insert(banded(crowd(60, Random(1)), 2, Random(2)), {PAGES: 0})
        index.check_and_insert([entry(60, 7, 0)], {PAGES: 60})
        assert index.documents() == 20


def source():
    return resources.files("simhash.index.redis").joinpath("lua", "index.lua").read_text(encoding="utf-8")
