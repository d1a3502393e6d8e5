"""`docker compose up --scale worker=3`, as far as that goes without an engine: those services of the compose file that
are ours, in their order, each with its command and environment, on a Kafka and a Redis of their own.

What the file says of containers is held in tests/unit/test_deploy.py.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from benchmarks.samples import read_pages
from deploy.local.ports import HOST, free_port
from tests.servers import running_kafka, running_redis
from tests.stream import ROOT, Stream, until

SERVICES = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
WORKERS, PARTITIONS = 3, 12


@pytest.fixture
def places(tmp_path):
    """What the services name, and where it is here."""
    with running_kafka(tmp_path / "kafka") as kafka, running_redis(tmp_path / "redis") as store:
        yield {"kafka:9092": kafka.bootstrap_servers, "redis:6379": f"{HOST}:{store.port}"}


def started(name, places, *command):
    """A service, its metrics at a port of its own; or another command in its place."""
    service, port = SERVICES[name], free_port()
    given = dict(service["environment"])
    for there, here in {**places, "0.0.0.0:9108": f"{HOST}:{port}"}.items():
        given = {setting: value.replace(there, here) for setting, value in given.items()}
    program = [str(Path(sys.executable).parent / "simhash-dedup"), *(command or service["command"])]
    return subprocess.Popen(program, env=os.environ | given, stderr=subprocess.PIPE, text=True), port


def is_healthy(port):
    """As the image's HEALTHCHECK asks."""
    try:
        return urllib.request.urlopen(f"http://{HOST}:{port}/healthz", timeout=3).status == 200
    except (urllib.error.URLError, OSError):
        return False


def ended(process):
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said


def test_the_services_do_their_work_in_their_order(places):
    assert "/healthz" in (ROOT / "deploy/Dockerfile").read_text()
    ended(started("topics", places)[0])
    stream = Stream("compose", places["kafka:9092"], "", PARTITIONS, "pages")
    pages = read_pages()[:90]
    with ExitStack() as stack:
        workers = [started("worker", places) for _ in range(WORKERS)]
        for process, _ in workers:
            stack.enter_context(process)
            stack.callback(process.kill)
        until(lambda: all(is_healthy(port) for _, port in workers), "workers that make progress")
        stream.send([(page["url"].encode(), json.dumps(page).encode()) for page in pages])
        until(lambda: len(stream.committed("verdicts")) == len(pages), "a verdict for each page")
        for process, _ in workers:
            process.send_signal(signal.SIGTERM)
        for process, _ in workers:
            ended(process)
    assert sorted(json.loads(row.value)["url"] for row in stream.committed("verdicts")) == sorted(
        page["url"] for page in pages
    )
    ended(started("worker", places, "verify", "--with-input", "--index")[0])
