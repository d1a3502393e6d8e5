"""`docker compose up`, as far as that goes without an engine: a stand-in runs those services that are ours, in their
order, each with its command and environment, on a Kafka and a Redis of their own (tests/docker.py).

What the file says of containers is held in tests/kafka/test_deploy.py.
"""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from benchmarks.samples import read_pages
from deploy.local.ports import HOST
from tests.docker import SERVICES, started
from tests.servers import running_kafka, running_redis
from tests.stream import ROOT, Stream, until

PARTITIONS = 12
COMMANDS = {
    command: int((re.findall(r"worker=(\d)", command) or "1")[0])
    for place in ("README.md", "docker-compose.yml")
    for command in re.findall(r"docker compose up(?: --scale worker=\d)?", (ROOT / place).read_text())
}
"""What a reader is told to say, and how many workers that starts."""


@pytest.fixture
def places(tmp_path):
    """What the services name, and where it is here."""
    with running_kafka(tmp_path / "kafka") as kafka, running_redis(tmp_path / "redis") as store:
        yield {"kafka:9092": kafka.bootstrap_servers, "redis:6379": f"{HOST}:{store.port}"}


@pytest.fixture
def environment(tmp_path, places):
    """In which `docker` is the stand-in."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u -m tests.docker "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PLACES": json.dumps(places)}


def is_healthy(url):
    """As the image's HEALTHCHECK asks."""
    try:
        return urllib.request.urlopen(url, timeout=3).status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_both_commands_are_told_to_readers():
    assert {*COMMANDS.values()} == {1, 3}
    assert "/healthz" in (ROOT / "deploy/Dockerfile").read_text()


@pytest.mark.parametrize(("command", "workers"), COMMANDS.items())
def test_what_it_starts_judges_pages(command, workers, places, environment):
    stream = Stream("compose", places["kafka:9092"], "", PARTITIONS, "pages")
    pages = read_pages()[:90]
    with subprocess.Popen(command.split(), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as compose:
        try:
            urls = [compose.stdout.readline().split()[1] for _ in range(workers)]
            until(lambda: all(map(is_healthy, urls)), "workers that make progress")
            stream.send([(page["url"].encode(), json.dumps(page).encode()) for page in pages])
            until(lambda: len(stream.committed("verdicts")) == len(pages), "a verdict for each page")
        finally:
            compose.terminate()
    assert compose.returncode == 0
    judged = sorted(json.loads(row.value)["url"] for row in stream.committed("verdicts"))
    assert judged == sorted(page["url"] for page in pages)
    check = {**SERVICES["worker"], "command": ["verify", "--with-input", "--index"]}
    assert started(check, places).wait() == 0
