"""Memory of a worker: its processes stay small on real pages, and on the longest and dearest ones that come."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import xxhash
from kafka import KafkaProducer

from benchmarks.samples import page_values, read_pages
from tests.copies import REAL_CHILDREN
from tests.numpy_only import IN_NUMPY
from tests.processes import descendants
from tests.stream import ERRORS, Stream, json_page, until, working
from worker.judging.fingerprinters import Fingerprinters, PageLimits
from worker.judging.judge import Prepared, Recipe
from worker.records.page import Limits
from worker.records.passing import RawRecord, Source
from worker.settings import Settings

MIB = 1 << 20
MOST_RESIDENT = 250 * MIB
"""Of each process, with the default profile, at its highest."""
LONGEST = 10 * MIB - 200


@pytest.fixture(scope="module", autouse=True)
def quick_children():
    """None: real ones are measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(REAL_CHILDREN, "yes")
        yield


def words() -> str:
    """10 MiB of different words, and a last character that makes Python keep four bytes for each."""
    return " ".join(f"{number * 7_919:x}" for number in range(1_500_000))[: LONGEST - 9] + " \U0001f600"


def han(characters: int) -> str:
    """Random Han characters, of which few pairs occur twice: about as many features as there can be."""
    points = np.random.default_rng(1).integers(0x4E00, 0x9FA0, characters, dtype=np.uint16)
    return points.tobytes().decode("utf-16-le")


def in_bytes(raw: bytes) -> dict[str, str]:
    return {"html_base64": base64.b64encode(raw).decode()}


LONG_PAGES = {
    "words": lambda: {"text": words()},
    "Han in UTF-8": lambda: {"html": f"<p>{han(LONGEST // 3 - 9)}"},
    "Han in UTF-16": lambda: in_bytes(f"<p>{han(LONGEST // 2 - 9)}".encode("utf-16")),
    "broken windows-1252": lambda: in_bytes(("<p>" + "très à la façon " * (LONGEST // 17)).encode("windows-1252")),
    "paragraphs of one letter": lambda: {"html": "<p>x" * 2_600_000},
    "paragraphs of nothing": lambda: {"html": "<p>" * 3_000_000},
    "elements with attributes": lambda: {"html": '<div class="a">x</div>\n' * 430_000},
    # 20 kB; a parser would open the link again in each paragraph, with all its attributes.
    "a link that is never closed": lambda: {
        "html": "<p><a " + " ".join(f"a{number}" for number in range(3_000)) + "></p>" + "<p>x" * 900
    },
}


def test_without_the_kernel_a_child_reads_the_pages_of_most_features_too():
    limits = Settings()
    recipe = Recipe(IN_NUMPY, "json", Limits(limits.max_page_bytes, 1 << 13, 1 << 14))
    children = Fingerprinters(recipe, 1, PageLimits(60.0, limits.page_memory))
    try:
        for number, name in enumerate(("Han in UTF-16", "Han in UTF-8", "words")):
            value = json.dumps({"url": f"http://long.example/{name}"} | LONG_PAGES[name](), ensure_ascii=False).encode()
            pending = children.submit([RawRecord(Source("pages", 0, number, None), None, value)])
            until(lambda pending=pending: pending.ready(1.0), f"{name} is read", 120)
            (outcome,) = pending.results()
            assert isinstance(outcome, Prepared), outcome
            assert outcome.signature.fingerprint is not None
    finally:
        children.close()


def memory(pid: int, line: str) -> int:
    """Bytes by a line of /proc/<pid>/status: VmRSS is what it has, VmHWM the most it ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(row.split()[1]) << 10 for row in status.splitlines() if row.startswith(f"{line}:"))


def largest(worker: int, line: str) -> int:
    """The same of the largest process of a worker."""
    return max(memory(pid, line) for pid in (worker, *descendants(worker)))


@pytest.fixture
def stream(kafka_server, redis_server, name):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"page_deadline": "120s"})
    assert made.command("topics", "--partitions", "1").returncode == 0
    return made


def test_a_worker_stays_below_250_mb_whatever_comes(stream):
    pages = read_pages()[:60]
    records = list(page_values(pages, len(pages)))
    for number, make in enumerate(LONG_PAGES.values()):
        url = f"http://long.example/{number}"
        records.append((url.encode(), json.dumps({"url": url} | make(), ensure_ascii=False).encode()))
    stream.send(records)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(len(records))
        highest = {pid: memory(pid, "VmHWM") for pid in (worker.process.pid, *descendants(worker.process.pid))}
        assert max(highest.values()) < MOST_RESIDENT, highest
        # A consumer at rest has 85 MiB, and kafka-python keeps a buffer of twice the largest request for ever.
        until(lambda: largest(worker.process.pid, "VmRSS") < 0.6 * MOST_RESIDENT, "memory is given back", 20)
        assert worker.stop()[0] == 0
    assert len(stream.verdicts()) == len(records)


def test_it_does_however_much_its_records_are_when_they_are_unpacked(stream):
    """Some kB on their way, read in one fetch: 30 records of 9 MiB, and one of 80."""
    stream.settings["batch_pages"] = "200"
    sizes = [9 * MIB] * 20 + [80 * MIB] + [9 * MIB] * 10
    servers = stream.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers, compression_type="zstd", max_request_size=1 << 30)
    for size in sizes:
        producer.send(stream.input_topic, key=b"large", value=b" " * size, headers=[("kept", b"1")]).get(60)
    producer.send(stream.input_topic, value=json_page(1, "behind them stands a page " * 9)[1]).get(60)
    producer.close()
    worker = stream.worker()
    with working(worker):
        stream.wait_for(len(sizes) + 1)
        highest = {pid: memory(pid, "VmHWM") for pid in (worker.process.pid, *descendants(worker.process.pid))}
        assert worker.stop()[0] == 0
    assert max(highest.values()) < MOST_RESIDENT, highest
    assert [verdict["id"] for verdict in stream.verdicts()] == ["1"]
    letters = stream.committed(stream.dead_letter_topic)
    assert [int(dict(row.headers)[ERRORS + "offset"]) for row in letters] == [*range(len(sizes))]
    letter = letters[20]
    assert letter.key == b"large"
    assert letter.value == f"{80 * MIB} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(b' ' * 80 * MIB)}".encode()
    headers = dict(letter.headers)
    assert (headers["kept"], headers[ERRORS + "value"]) == (b"1", b"digest")
    assert b"83,886,080 bytes, far more than max_page_bytes" in headers[ERRORS + "exception.message"]
    stream.check()
