"""A server that cannot hold an index is refused by every command that opens one; a command that reads may look."""

from contextlib import contextmanager

import pytest
import redis
from click.testing import CliRunner

from simhash.errors import IndexMisconfigured
from simhash.tables import design
from tests.pages import entry, relation
from worker.cli.main import commands

URL = entry(0, 7).url
READING = [
    ["index", "stats"],
    ["index", "check"],
    ["index", "claims"],
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


@contextmanager
def evicting(backend):
    """The server, or one primary, drops keys when its memory is full, or says so."""
    nodes = [redis.Redis(host=n.host, port=n.port) for n in backend.client.get_primaries()] if backend.clustered else []
    node = nodes[-1] if nodes else backend.client
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
