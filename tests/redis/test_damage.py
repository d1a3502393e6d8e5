"""What somebody else wrote into an index is one line, which says where, and never a traceback."""

import pytest

from simhash.index.redis.opening import open_index
from simhash.relation.tables import design
from tests.pages import entry, relation

PAGES = "pages"


@pytest.fixture
def flags(client, redis_server, name):
    """An index with a page in it, as the command finds it."""
    open_index(client, name, {}, relation(design("4")), 1000).check_and_insert([entry(0, 7)], {})
    return "--redis-url", redis_server.url, "--index-name", name


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("design", b"{", "is damaged: "),
        ("bands", b"many", "is damaged: "),
        ("profile", b"\xff", "is damaged: "),
        ("capacity", None, "is damaged: it has no capacity"),
        ("generation", None, "is damaged: it has no generation"),
        ("format", b"none", "has format none, this program reads"),
        ("documents", b"x", "documents in the meta"),
    ],
)
def test_a_damaged_meta_is_one_line(client, name, flags, say, field, value, said):
    meta = f"{{{name}}}:meta"
    client.hdel(meta, field) if value is None else client.hset(meta, field, value)
    for command in (["index", "accept"], ["index", "check"], ["inspect", "0" * 16]):
        code, out, err = say(*command, *flags)
        if field == "documents" and command != ["index", "accept"]:
            continue  # they do not look at it
        assert (code, out, "Traceback" in err) == (5, "", False), command
        (line,) = err.splitlines()
        assert said in line


def test_a_damaged_mark_is_one_line(client, name, flags, say, tmp_path):
    client.hset(f"{{{name}}}:j:{PAGES}:0", "mark", "x")
    for command in (
        ["index", "rewind", PAGES],
        ["index", "stats"],
        ["index", "export", str(tmp_path / "export.jsonl")],
    ):
        code, _, err = say(*command, *flags)
        assert (code, "Traceback" in err) == (5, False), err
        assert "is damaged: b'x' is no number" in err
