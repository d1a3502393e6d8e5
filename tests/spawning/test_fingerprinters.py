"""Children that hang, die or run out of memory on a page: it is tried once more alone, the others are not touched."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simhash.signature.profiles import DEFAULT
from tests.processes import descendants
from tests.stream import ROOT, until
from worker.judging import judge
from worker.judging.fingerprinters import CHUNK_PAGES, Fingerprinters, PageLimits
from worker.judging.judge import Prepared, Recipe, Rejected
from worker.records.page import Limits
from worker.records.passing import RawRecord, Source

RECIPE = Recipe(DEFAULT, "json", Limits(page=1 << 20, url=1 << 10, key=1 << 10))
DEADLINE_SECONDS = 2.0


@pytest.fixture(scope="module", autouse=True)
def quick_children():
    """None: real ones are what is tested."""


class PanicException(BaseException):
    """As a parser in Rust raises it: no Exception."""

    def __reduce__(self):
        raise pickle.PicklingError("import of module 'pyo3_runtime' failed")


def prepare(record, recipe):
    """What the children of these tests do: as a page's text says, or the real thing."""
    match record.value:
        case bytes(text) if text.startswith(b"hang "):
            Path(os.fsdecode(text[5:])).write_text(str(os.getpid()))
            signal.sigwait([signal.SIGUSR1])
        case b"hang":
            signal.sigwait([signal.SIGUSR1])
        case b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"leave":
            os._exit(3)
        case b"no memory":
            raise MemoryError
        case b"panic without memory":
            raise PanicException("PyObject pointer is null")
        case b"panic":
            raise PanicException("index out of bounds")
        case b"exit":
            sys.exit(0)
        case b"interrupt":
            raise KeyboardInterrupt
        case b"print":
            os.write(1, b"a native library says something")
        case b"odd":
            raise ZeroDivisionError("an accident")
    return judge.prepare(record, recipe)


def record(offset, value):
    return RawRecord(Source("t", 0, offset, None), None, value)


def good(offset):
    return record(offset, b'{"url":"http://x/%d","text":"some text"}' % offset)


def outcomes(pool, records):
    pending = pool.submit(records)
    while not pending.ready(1.0):
        pass
    return pending.results()


@pytest.fixture(scope="module")
def pool():
    made = Fingerprinters(RECIPE, processes=2, limits=PageLimits(DEADLINE_SECONDS), prepare=prepare)
    yield made
    made.close()


def test_results_come_in_the_order_of_the_records(pool):
    found = outcomes(pool, [good(n) for n in range(5 * CHUNK_PAGES + 3)])
    assert [o.source.offset for o in found] == list(range(5 * CHUNK_PAGES + 3))
    assert all(isinstance(o, Prepared) for o in found)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (b"hang", "TimeoutError", "longer than page_deadline = 2 s, twice"),
        (b"die", "ChildLost", "ended its process, twice"),
        (b"leave", "ChildLost", "ended its process, twice"),
        (b"panic without memory", "MemoryError", "page_memory"),
        (b"no memory", "MemoryError", "needed more memory than page_memory = 167,772,160 bytes, twice"),
    ],
)
def test_a_page_that_takes_its_child_down_is_rejected_and_its_neighbours_are_not(pool, value, error, message):
    records = [good(0), record(1, value), *(good(n) for n in range(2, 40))]
    found = outcomes(pool, records)
    assert [o.source.offset for o in found] == list(range(40))
    rejected = [o for o in found if isinstance(o, Rejected)]
    assert [(o.source.offset, o.stage, o.error, o.by_chance) for o in rejected] == [(1, "extract", error, True)]
    assert message in rejected[0].message


def test_an_unforeseen_failure_rejects_the_page_and_no_other(pool):
    good_one, odd = outcomes(pool, [good(0), record(1, b"odd")])
    assert isinstance(good_one, Prepared)
    assert (odd.stage, odd.error, odd.by_chance) == ("fingerprint", "ZeroDivisionError", False)
    assert "an accident" in odd.message


def test_a_panic_of_a_parser_rejects_the_page_and_no_other(pool):
    good_one, odd = outcomes(pool, [good(0), record(1, b"panic")])
    assert isinstance(good_one, Prepared)
    assert (odd.stage, odd.error, odd.by_chance) == ("fingerprint", "PanicException", False)
    assert "index out of bounds" in odd.message


@pytest.mark.parametrize(("value", "error"), [(b"exit", "SystemExit"), (b"interrupt", "KeyboardInterrupt")])
def test_a_parser_that_wants_to_end_the_program_rejects_its_page_and_no_other(pool, value, error):
    before = descendants(os.getpid())
    found = outcomes(pool, [good(0), record(1, value), good(2)])
    assert [type(o) for o in found] == [Prepared, Rejected, Prepared]
    assert (found[1].stage, found[1].error, found[1].by_chance) == ("fingerprint", error, False)
    assert descendants(os.getpid()) == before


def test_what_a_library_prints_is_no_answer(pool):
    (found,) = outcomes(pool, [record(0, b"print")])
    assert "not JSON" in found.message


def test_a_batch_without_records_is_ready_at_once(pool):
    assert outcomes(pool, []) == []


def test_close_ends_a_child_that_hangs(tmp_path):
    pid_file = tmp_path / "pid"
    pool = Fingerprinters(RECIPE, processes=1, limits=PageLimits(600.0), prepare=prepare)
    (found,) = outcomes(pool, [good(0)])
    assert isinstance(found, Prepared)
    pool.submit([record(0, b"hang " + bytes(pid_file))])
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text(), "the child hangs"))
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


TOLD_TO_ALL = """
import os, signal, sys
from tests.processes import descendants
from tests.spawning.test_fingerprinters import DEADLINE_SECONDS, RECIPE, good, outcomes
from worker.judging.fingerprinters import Fingerprinters, PageLimits
from worker.judging.judge import Prepared

def tell_all(number):
    for pid in descendants(os.getpid()):
        os.kill(pid, number)

def is_at_work():
    return all(isinstance(outcome, Prepared) for outcome in outcomes(pool, [good(n) for n in range(70)]))

if __name__ == "__main__":
    number = signal.Signals[sys.argv[1]]
    pool = Fingerprinters(RECIPE, 2, PageLimits(DEADLINE_SECONDS))
    tell_all(number)  # the server has hardly begun
    assert is_at_work()
    before = descendants(os.getpid())
    tell_all(number)
    assert is_at_work()
    assert descendants(os.getpid()) == before
    pool.close()
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_that_all_processes_of_a_service_are_told_leaves_the_children_at_work(number):
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TO_ALL, number], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
