"""The local Kafka and Redis: they start, survive what tests do to them, and leave no process behind."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from deploy.local import cli, installing, ports
from deploy.local.ports import HIGHEST, LOWEST
from deploy.local.processes import ServerError
from tests.documents import NOTHING_INSTALLED, copied_tree
from tests.servers import KafkaServer, RedisServer, running_cluster, running_kafka, running_redis, start_redis

ROOT = Path(__file__).parents[2]
COMMAND = str(ROOT / "deploy" / "local" / "servers")


def servers(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, COMMAND, *arguments[:1], "--dir", str(directory), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def produce(server: KafkaServer, transactional_id: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send("pages", value)
    producer.commit_transaction()
    producer.close()


def consume(server: KafkaServer, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        "pages",
        bootstrap_servers=server.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=90_000,  # a fetch that is not answered is given up after 30 s
    )
    values = [message.value for _, message in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def test_a_killed_kafka_starts_again_with_its_committed_records(tmp_path: Path) -> None:
    with running_kafka(tmp_path) as server:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        admin.create_topics([NewTopic(name="pages", num_partitions=1, replication_factor=1)])
        admin.close()
        produce(server, "first", b"one", b"two")
        server.kill()
        assert server.pid is None
        server.start()
        produce(server, "second", b"three")
        assert consume(server, 3) == [b"one", b"two", b"three"]


def test_a_server_of_a_python_package_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: Any) -> None:
    """As an activated venv puts it first on the path: it would die with FATAL CONFIG FILE ERROR."""
    venv = tmp_path / "bin"
    venv.mkdir()
    (venv / "redis-server").write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=00000000:0 malloc=libc'\n")
    (venv / "redis-server").chmod(0o755)
    monkeypatch.setenv("PATH", f"{venv}:{os.environ['PATH']}")
    with running_redis(tmp_path) as server:
        assert server.answers()
    monkeypatch.setenv("PATH", str(venv))
    assert "redis-server" in {need.program for need in installing.missing()}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_redis_that_ended_starts_again_with_its_data_on_its_port(tmp_path: Path, end: str) -> None:
    with running_redis(tmp_path) as server:
        client = redis.Redis.from_url(server.url)
        client.set("page", "seen")
        {"stop": server.stop, "kill": server.kill}[end]()
        with pytest.raises(redis.ConnectionError):
            redis.Redis.from_url(server.url).ping()
        server.start()
        assert client.get("page") == b"seen"


def test_a_paused_redis_answers_nobody_until_it_goes_on(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        hasty = redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None)
        server.pause()
        with pytest.raises(redis.TimeoutError):
            hasty.ping()
        server.resume()
        assert redis.Redis.from_url(server.url).ping()


def test_a_paused_server_can_be_stopped(tmp_path: Path) -> None:
    server = start_redis(tmp_path)
    server.pause()
    assert server.stop()
    assert server.pid is None


def test_a_redis_can_have_other_settings(tmp_path: Path) -> None:
    with running_redis(tmp_path, {"maxmemory-policy": "allkeys-lru"}) as server:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


def test_a_cluster_of_three_primaries_takes_keys_of_every_slot(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as nodes:
        client = redis.RedisCluster.from_url(nodes[0].url)
        for number in range(100):
            client.set(f"page:{number}", number)
        sizes = [redis.Redis.from_url(node.url).dbsize() for node in nodes]
        assert sum(sizes) == 100
        assert all(sizes)


def test_ports_are_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert LOWEST <= RedisServer(tmp_path).port <= HIGHEST < lowest_outgoing


def test_starting_a_running_server_leaves_it_alone(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        before = server.pid
        assert RedisServer(tmp_path).start() is False
        assert server.pid == before
        with pytest.raises(ServerError, match="already runs on port"):
            RedisServer(tmp_path, server.port + 1).start()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "one") as server,
        pytest.raises(ServerError, match=f"{server.port} is taken"),
    ):
        RedisServer(tmp_path / "two", server.port).start()


def test_a_record_of_a_former_process_does_not_hit_a_stranger(tmp_path: Path) -> None:
    """The number of a dead server may belong to somebody else by now: to this very process, say."""
    server = start_redis(tmp_path)
    server.stop()
    record = tmp_path / "redis.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"pid": os.getpid()}))
    left_over = RedisServer(tmp_path)
    assert left_over.pid is None
    assert left_over.stop() is False


def test_a_record_cut_off_by_a_crash_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "redis.json").write_text('{"pid": 1')
    assert RedisServer(tmp_path).pid is None


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="Bad directive"):
        start_redis(tmp_path, {"no-such-setting": "1"})


def test_the_servers_of_a_killed_test_run_end_with_it(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tests.servers import start_redis;"
        "server = start_redis(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    server = RedisServer(tmp_path)
    try:
        assert ended_within(server.pid, seconds=10)
    finally:
        server.kill()


def ended_within(pid: int | None, seconds: float) -> bool:
    """Whether a process is gone, or goes soon: the kernel's signal may still be on its way."""
    if pid is None:
        return True
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(handle, "rb"):
        return bool(select.select([handle], [], [], seconds)[0])


def test_the_command_starts_shows_and_stops_both(tmp_path: Path) -> None:
    started = servers("start", directory=tmp_path)
    try:
        assert started.returncode == 0, started.stderr
        assert servers("start", directory=tmp_path).stdout.count("already running") == 2
        assert servers("status", directory=tmp_path).stdout.count("answers at 127.0.0.1:") == 2
        settings = servers("env", directory=tmp_path).stdout
        assert "export SIMHASH_DEDUP_BOOTSTRAP_SERVERS=127.0.0.1:" in settings
        assert "export SIMHASH_DEDUP_REDIS_URL=redis://127.0.0.1:" in settings
    finally:
        stopped = servers("stop", directory=tmp_path)
    assert stopped.stdout.splitlines() == ["kafka: stopped", "redis: stopped"]
    status = servers("status", directory=tmp_path)
    assert status.stdout.count("not running") == 2
    assert status.returncode == cli.NOT_RUNNING
    assert servers("env", directory=tmp_path).returncode == 1


def test_a_command_run_with_both_has_their_addresses_and_leaves_none(tmp_path: Path) -> None:
    show = 'echo "$SIMHASH_DEDUP_BOOTSTRAP_SERVERS $SIMHASH_DEDUP_REDIS_URL"; exit 7'
    done = servers("with", "sh", "-c", show, directory=tmp_path)
    kafka, url = done.stdout.split()
    assert done.returncode == 7
    assert kafka.startswith("127.0.0.1:")
    assert url.startswith("redis://127.0.0.1:")
    assert servers("status", directory=tmp_path).stdout.count("not running") == 2


def test_a_command_run_with_both_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    started = "sleep 60 & echo ready; wait"
    command = [sys.executable, COMMAND, "with", "--dir", str(tmp_path), "sh", "-c", started]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=30)  # ends when the last one that could still write, `sleep`, is gone
    assert process.returncode == 128 + signal.SIGTERM
    assert servers("status", directory=tmp_path).stdout.count("not running") == 2


def test_a_port_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "HIGHEST", LOWEST + 199)
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    monkeypatch.setattr(ports, "_reserved", [])
    drawn = [ports.free_port() for _ in range(50)]
    other = subprocess.run([sys.executable, "-c", DRAWING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len({*drawn, *json.loads(other.stdout)}) == 100


DRAWING = """
from deploy.local import ports
ports.HIGHEST = ports.LOWEST + 199
ports.is_free = lambda _: True
print([ports.free_port() for _ in range(50)])
"""


def test_the_stream_demo_judges_the_sample(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path)
    command = ["make", "stream-demo"]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | NOTHING_INSTALLED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ pages +412 ", done.stdout, re.M), done.stdout
    assert re.search(r"^ rejected +0 ", done.stdout, re.M), done.stdout


def test_install_has_nothing_to_do_where_all_is_here() -> None:
    assert installing.install() == []


def test_install_names_what_is_missing_and_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="missing: java") as error:
        installing.install(tmp_path / "cache")
    assert "sudo apt-get install" in str(error.value)
    assert all(need.package in str(error.value) for need in (*installing.NEEDS, installing.MAVEN))


def test_a_jar_with_other_content_is_noticed(tmp_path: Path) -> None:
    for name in installing.expected_sums():
        (tmp_path / name).symlink_to(installing.CACHE / name)
    assert installing.jars_are_complete(tmp_path)
    broken = tmp_path / next(iter(installing.expected_sums()))
    broken.unlink()
    broken.write_bytes(b"not a jar")
    assert not installing.jars_are_complete(tmp_path)
