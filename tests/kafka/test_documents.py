"""The commands of the documents that speak to Kafka: run as they stand there, on a broker of the tests."""

import os
import signal
from contextlib import suppress

import pytest

from tests.documents import KAFKA, blocks, named, pages_with, run_console, speaks_to_kafka, workplace

PAGES = [path for path in pages_with("console") if any(map(speaks_to_kafka, blocks(path, "console")))]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_the_commands_of_a_page_print_what_stands_below_them(
    path, tmp_path, kafka_server, redis_server, name, monkeypatch
):
    broker = kafka_server.bootstrap_servers
    settings = {
        "BOOTSTRAP_SERVERS": broker,
        "REDIS_URL": redis_server.url,
        "INDEX_NAME": name,
        "METRICS_ADDRESS": "off",
    }
    for setting, value in settings.items():
        monkeypatch.setenv(f"SIMHASH_DEDUP_{setting}", value)
    try:
        run_console(path, workplace(tmp_path), {KAFKA: broker}, kafka=True)
    finally:
        end_worker(tmp_path / "worker.pid")


def end_worker(noted):
    """A page whose output was another has not come to its `kill`."""
    with suppress(OSError):
        os.kill(int(noted.read_text()), signal.SIGTERM)
