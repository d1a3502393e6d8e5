"""`run --processes 2`: both consume, one port shows both, the killed one comes back, and none is left behind."""

import errno
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from random import Random

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import descendants, runs, wait_until_gone
from tests.servers import running_redis
from tests.stream import ROOT, Stream, json_page, texts, until
from worker.errors import WorkerError
from worker.stream.supervisor import METRICS_BYTES, SCRATCH, ConsumersCollector, _reserve


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Supervisor:
    def __init__(self, stream, log=subprocess.DEVNULL):
        self.address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "worker", "run", "--processes", "2", "--metrics-address", self.address]
        self.process = subprocess.Popen(command, env=stream.environment(), cwd=ROOT, stderr=log, start_new_session=True)

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    def metric(self, name):
        families = text_string_to_metric_families(self.get("/metrics"))
        return sum(s.value for family in families for s in family.samples if s.name == name)

    def consumers(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        return {pid for pid, command in commands.items() if b"spawn_main" in command}


@pytest.fixture(scope="module")
def stream(kafka_server, redis_server):
    made = Stream(f"s{os.getpid()}", kafka_server.bootstrap_servers, redis_server.url, partitions=4)
    made.create()
    return made


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory for temporary files of what this test starts."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def supervisor(stream, tmp_path, temporary):
    with (tmp_path / "log").open("wb") as log:
        made = Supervisor(stream, log)
    yield made
    left = descendants(made.process.pid)
    made.process.kill()
    made.process.wait()
    wait_until_gone(left)


def fill(stream, count, seed):
    stream.send([json_page(1000 * seed + n, text) for n, text in enumerate(texts(count, Random(seed)))])


def test_consumers_share_the_work_and_one_port_and_a_killed_one_is_replaced(stream, supervisor, temporary, tmp_path):
    fill(stream, 100, seed=1)
    stream.wait_for(100)
    until(lambda: supervisor.metric("simhash_dedup_pages_total") == 100, "all pages are counted")
    assert supervisor.metric("simhash_dedup_consumer_lag") >= 0
    until(lambda: supervisor.get("/readyz") == "ok\n", "both are ready")
    assert supervisor.get("/healthz") == "ok\n"
    until(lambda: supervisor.metric("simhash_dedup_index_documents") > 0, "the documents are counted")
    first = supervisor.consumers()
    assert len(first) == 2
    os.kill(min(first), signal.SIGKILL)
    until(lambda: supervisor.consumers() - first, "a new consumer")
    until(lambda: supervisor.get("/readyz") == "ok\n", "both are ready again")
    fill(stream, 50, seed=2)
    stream.wait_for(150)
    assert set(stream.answers().values()) == {1}
    until(lambda: supervisor.metric("simhash_dedup_pages_total") == 150, "the killed one's pages are still counted")
    check_that_metrics_have_their_room(temporary)
    left = descendants(supervisor.process.pid)
    # To all of them, as a service manager does, and from the supervisor again: each finishes what it has.
    os.killpg(supervisor.process.pid, signal.SIGTERM)
    assert supervisor.process.wait(60) == 0
    assert not any(map(runs, left))
    assert list(temporary.iterdir()) == []
    assert (tmp_path / "log").read_text().count("stopped: all that was judged is committed") == 2


def check_that_metrics_have_their_room(temporary):
    """Two processes' files, though there were three, and no holes: whoever writes into one on a full disk is killed."""
    files = list(temporary.glob(f"{SCRATCH}*/*.db"))
    assert sorted(file.name for file in files) == sorted(f"{kind}_{n}.db" for kind in METRICS_BYTES for n in range(2))
    for stat in (file.stat() for file in files):
        assert stat.st_blocks * 512 >= stat.st_size


def test_where_there_is_no_room_for_metrics_a_consumer_says_so(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(WorkerError, match=f"no room for metrics in {tmp_path} .*No space left on device"):
        _reserve(tmp_path, "0")


def test_consumers_go_on_when_redis_was_restarted(kafka_server, name, tmp_path):
    with running_redis(tmp_path / "redis") as server, (tmp_path / "log").open("wb") as log:
        made = Stream(name, kafka_server.bootstrap_servers, server.url, partitions=4)
        made.create()
        fill(made, 100, seed=4)
        supervisor = Supervisor(made, log)
        try:
            made.wait_for(100)
            server.restart()
            fill(made, 50, seed=5)
            made.wait_for(150)
            until(lambda: supervisor.get("/readyz") == "ok\n", "both are ready again")
            supervisor.process.terminate()
            assert supervisor.process.wait(60) == 0
        finally:
            supervisor.process.kill()
    assert set(made.answers().values()) == {1}
    written = (tmp_path / "log").read_text()
    assert "is started again" not in written
    assert "restarted or failed over" in written


def test_a_killed_supervisor_leaves_no_process_behind_and_no_file_beyond_the_next(stream, supervisor, temporary):
    fill(stream, 100, seed=3)
    until(lambda: supervisor.metric("simhash_dedup_pages_total") >= 100, "all have worked, with children of their own")
    left = descendants(supervisor.process.pid)
    assert len(left) >= 5
    supervisor.process.kill()
    supervisor.process.wait()
    wait_until_gone(left)
    again = Supervisor(stream)
    until(lambda: again.get("/readyz") == "ok\n", "the next one is ready")
    again.process.terminate()
    assert again.process.wait(60) == 0
    assert list(temporary.iterdir()) == []


def test_a_consumer_that_needs_an_operator_ends_all(stream):
    """Another group on the same index stands at the beginning, below the mark: exit code 6 of one is that of all."""
    again = Stream(
        stream.name, stream.bootstrap_servers, stream.redis_url, 4, settings={"group_id": f"{stream.name}.2"}
    )
    refused = Supervisor(again)
    assert refused.process.wait(60) == 6


def test_metrics_of_a_consumer_that_is_just_starting_are_read_a_moment_later(tmp_path, monkeypatch):
    """Its file is there, and still empty."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ConsumersCollector(str(tmp_path)))
    file = tmp_path / "counter_1.db"
    file.touch()
    monkeypatch.setattr("worker.stream.supervisor.time.sleep", lambda _: MmapedDict(str(file)).close())
    assert list(registry.collect()) == []


def test_an_index_ages_while_its_consumers_run_and_what_is_on_disk_is_found(kafka_server, redis_server, name, tmp_path):
    """The processes that fill the archive are killed on their way; verify finds all as promised over both."""
    ages = {"archive": str(tmp_path), "max_documents": "10", "archive_pages": "5"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=4, settings=ages)
    made.create()
    with (tmp_path / "log").open("wb") as log:
        supervisor = Supervisor(made, log)
        try:
            fill(made, 100, seed=6)
            made.wait_for(100)
            until(lambda: supervisor.metric("simhash_dedup_archive_pages") >= 25, "the oldest are on disk")
            for process in supervisor.consumers():
                os.kill(process, signal.SIGKILL)
            fill(made, 60, seed=7)
            made.send([json_page(9000 + n, text) for n, text in enumerate(texts(100, Random(6)))])
            made.wait_for(260)
            until(lambda: supervisor.metric("simhash_dedup_archive_pages") >= 45, "they go on")
            supervisor.process.terminate()
            assert supervisor.process.wait(60) == 0
        finally:
            supervisor.process.kill()
    made.check()
    again = [v for v in made.verdicts() if int(v["id"]) >= 9000]
    assert {v["verdict"] for v in again} == {"duplicate"}
    # Inspect asks for a fingerprint, which short pages lack, and sees no bands.
    copy = next(v for v in again if v["match"]["kind"] == "exact" and v["fingerprint"])
    url = copy["match"]["url"]
    assert f"seq {copy['match']['seq']}  {url}" in made.command("inspect", copy["fingerprint"]).stdout
    assert made.command("index", "delete", url).returncode == 0
    assert made.command("index", "delete", url).returncode == 1, "it is gone"
