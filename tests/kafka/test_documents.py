"""The commands and examples of the documents that speak to Kafka: run as they stand there, on a broker of the tests."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, KafkaConsumer

from tests.documents import (
    KAFKA,
    PAGES,
    ROOT,
    blocks,
    named,
    our_commands,
    pages_with,
    run_console,
    said_commands,
    speaks_to_kafka,
    stand_ins,
    stand_ins_of_workers,
    workplace,
)
from tests.processes import written_until
from tests.stream import Stream, json_page, until
from worker.records.page import Limits, decode_page
from worker.settings import PREFIX

OF_KAFKA = [path for path in pages_with("console") if any(map(speaks_to_kafka, blocks(path, "console")))]


@pytest.mark.parametrize("path", OF_KAFKA, ids=named)
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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A workplace with all that the commands name, but for their settings."""
    return stand_ins_of_workers(workplace(tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize("path", [path for path in pages_with("sh") if our_commands(path, alone=False)], ids=named)
def test_the_commands_of_a_page_that_need_servers_end_well(path, files, kafka_server, redis_server, name):
    """On a stream whose pages are judged, or with a worker that judges them."""
    settings = {"hosts_topic": "hosts"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, 2, settings=settings)
    done = stream.command("topics")
    assert done.returncode == 0, done.stdout + done.stderr
    stream.send([json_page(n, f"Page {n} of a stream whose words are its own: {n * n}.") for n in range(COUNT)])
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in stream.given().items())
    (files / "dedup.toml").write_text("".join(lines))
    commands = [words[1:] for words in our_commands(path, alone=False)]
    if commands[0][0] != "run":
        ends_well(["run"], stream, files)
    for words in commands:
        ends_well(words, stream, files)


COUNT = 40


def ends_well(words, stream, place):
    """Run a command of ours as it stands there; one that goes on until it is told to end does its work first."""
    environment = stream.environment()
    if "--config" in words:
        environment = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    command = [str(Path(sys.executable).parent / "simhash-dedup"), *words]
    with subprocess.Popen(command, env=environment, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        try:
            if words[0] == "run":
                written_until(process, "is ours")
                stream.wait_for(COUNT)
                process.send_signal(signal.SIGTERM)
            elif "--follow" in words:
                until(lambda: stream.committed(stream.settings["hosts_topic"]), "hosts in the topic")
                process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, f"{words}\n{said}"


PUT_IN = {
    "A B --pages FILE": "https://a.example/0 https://a.example/0 --pages asked.jsonl",
    "A B": "samples/README.md samples/README.md",
    "--out DIR": "--out made",
    "base DIR": "base made",
    "export FILE": "export exported.jsonl",
    "--pages FILE": "--pages asked.jsonl",
    "INPUT": "tuesday.jsonl",
    "INPUT…": "asked.jsonl",
    "N": "1000000",
    "PAGES": "asked.jsonl",
    "URL": "https://a.example/1",
    "URL…": "https://a.example/2 https://a.example/3",
    "URL-OR-FINGERPRINT": "https://a.example/0",
    "VERDICTS": "told.jsonl",
    "VERDICTS…": "monday.jsonl",
}
"""What a reader puts in for the words in capitals."""
NAMES = {"batch", "evaluate", "file", "index delete", "index migrate", "index resume", "index rewind", "plan", "report"}
"""Commands that sentences call by their name: they need more words to be run."""
LIFE = (
    "--",
    "plan",
    "run --print",
    "topics",
    "run",
    "",
    "index base",
    "index resume",
    "index rewind",
    "index delete",
    "rebuild",
)
"""What commands begin with, in the order in which an index meets them; the empty one stands for all others."""


def whole_commands():
    """The commands that stand in sentences, each once.

    One with an ellipsis of its own is a part, and left out; `batch` is run by the tests that have Spark.
    """
    found = {command for path in PAGES for command in said_commands(path) if "…" not in command.split()}
    ours = [command for command in found - NAMES if not command.startswith("batch ")]
    return sorted(ours, key=lambda command: (of_a_life(command), command))


def of_a_life(command):
    """When it is run."""
    return max(range(len(LIFE)), key=lambda n: (command.startswith(LIFE[n]), len(LIFE[n])))


LETTERS = 13
"""One more than the offset of the dead letter that docs/operations.md has an operator show."""


def test_the_whole_commands_of_sentences_end_well(files, kafka_server, redis_server, name, say, monkeypatch):
    """In the life of one index, beside a stream of which some pages are too large."""
    stand_ins(files)
    for directory in ("old", "again"):
        (files / directory).mkdir()
    settings = {"max_page_bytes": "4000", "max_documents": "20", "archive": str(files / "old"), "batch_pages": "32"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, 2, settings=settings)
    settings["hosts_topic"] = f"{name}.hosts"
    done = stream.command("topics")
    assert done.returncode == 0, done.stdout + done.stderr
    urls = [f"https://a.example/{n}" for n in range(COUNT - LETTERS)]
    pages = [json.dumps({"url": url, "text": " ".join(f"{url}{n}" for n in range(50))}) for url in urls]
    (files / "asked.jsonl").write_text("\n".join(pages))
    stream.send([(None, json.dumps({"url": "https://a.example/", "text": "n" * 5000}).encode())] * LETTERS, partition=0)
    stream.send([(None, page.encode()) for page in pages])
    put_in = PUT_IN | {"TOPIC": stream.input_topic, "pages": stream.input_topic}
    shown = re.compile("|".join(rf"(?<!\S){re.escape(words)}(?!\S)" for words in put_in))
    monkeypatch.chdir(files)
    for command in dict.fromkeys(shown.sub(lambda found: put_in[found[0]], each) for each in whole_commands()):
        if command == "rebuild":
            settings |= {"index_name": f"{name}.again", "archive": str(files / "again")}
        if command == "run":
            ends_well([command], stream, files)
            continue
        for variable, value in stream.environment().items():
            monkeypatch.setenv(variable, value)
        code, told, wrong = say(*command.split())
        assert code == 0, f"{command}\n{told}\n{wrong}"


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
    found = [decode_page(record.key, record.value, "json", Limits(10**7, 10**4, 10**4)) for record in records]
    assert [page.url for page in found] == ["https://a.example/", "https://a.example/plain"]
    assert [page.content for page in found] == [item["body"], b"plain"]
    assert [record.key for record in records] == [page.url.encode() for page in found]
