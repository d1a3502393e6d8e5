"""Memory of a worker: its processes stay small on real pages, and after the longest ones that are let in."""

import json
from pathlib import Path

import pytest

from benchmarks.samples import page_values, read_pages
from tests.processes import descendants
from tests.stream import Stream, until, working

MIB = 1 << 20
MOST_RESIDENT = 250 * MIB
"""Of each process, with the default profile."""
LONGEST = 10 * MIB - 200


def words() -> str:
    """10 MiB of different words: as many features as a page can have."""
    return " ".join(f"word{number * 7_919:08x}" for number in range(800_000))[:LONGEST]


def han() -> str:
    """10 MiB of Han, in UTF-8."""
    return "".join(chr(0x4E00 + number * 7_919 % 20_000) for number in range(LONGEST // 3))


LONG_PAGES = {
    "words": lambda: {"text": words()},
    "Han": lambda: {"html": f"<p>{han()[:-10]}"},
    "elements": lambda: {"html": '<div class="a">x</div>\n' * 430_000},
}


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
    made.create()
    return made


def test_a_worker_stays_below_250_mb_on_pages_and_after_the_longest(stream):
    pages = read_pages()[:60]
    worker = stream.worker()
    with working(worker):
        stream.send(list(page_values(pages, len(pages))))
        stream.wait_for(len(pages))
        assert largest(worker.process.pid, "VmHWM") < MOST_RESIDENT
        for number, make in enumerate(LONG_PAGES.values(), start=1):
            url = f"http://long.example/{number}"
            stream.send([(url.encode(), json.dumps({"url": url} | make(), ensure_ascii=False).encode())])
            stream.wait_for(len(pages) + number)
            until(lambda: largest(worker.process.pid, "VmRSS") < MOST_RESIDENT, "memory is given back", 20)
        assert worker.stop()[0] == 0
    assert len(stream.verdicts()) == len(pages) + len(LONG_PAGES)
