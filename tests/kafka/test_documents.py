"""The commands and examples of the documents that speak to Kafka: run as they stand there, on a broker of the tests."""

import os
import runpy
import signal
from contextlib import suppress
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, KafkaConsumer

from tests.documents import KAFKA, ROOT, blocks, named, pages_with, run_console, speaks_to_kafka, workplace
from worker.records.page import Limits, decode_page

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


def test_scrapys_items_become_pages_that_the_worker_reads(kafka_server, name):
    """Scrapy itself is not among the tests' packages: what it calls is called here."""
    broker = kafka_server.bootstrap_servers
    with KafkaAdminClient(bootstrap_servers=broker) as admin:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    pipeline = runpy.run_path(str(ROOT / "docs" / "examples" / "scrapy_pipeline.py"))["Pages"]
    pages = pipeline.from_crawler(SimpleNamespace(settings={"PAGES_BROKER": broker, "PAGES_TOPIC": name}))
    item = {"url": "https://a.example/", "body": "<p>中文网页".encode("gb18030"), "content_type": b"text/html"}
    assert pages.process_item(item) is item
    pages.process_item({"url": "https://a.example/plain", "body": b"plain"})
    pages.close_spider()
    with KafkaConsumer(name, bootstrap_servers=broker, auto_offset_reset="earliest") as consumer:
        records = [next(consumer) for _ in range(2)]
    found = [decode_page(record.key, record.value, "json", Limits(10**7, 10**4, 10**4, 10**4)) for record in records]
    assert [page.url for page in found] == ["https://a.example/", "https://a.example/plain"]
    assert [page.content for page in found] == [item["body"], b"plain"]
    assert [record.key for record in records] == [page.url.encode() for page in found]
