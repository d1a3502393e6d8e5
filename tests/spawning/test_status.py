"""The watchdog: a process whose loop stands still ends; one that has just begun does not. And who reads a status."""

import multiprocessing
import subprocess
import sys

from tests.stream import ROOT
from worker.stream.status import STUCK_EXIT_CODE, Status

STUCK = """
import time
from worker.stream.status import Status, watch
status = Status()
status._progress.value -= 1000  # as the consumer left it that was here before
watch(status, 0.5)
time.sleep(0.2)
print("working", flush=True)
time.sleep(60)
"""


def test_a_loop_that_stands_still_ends_its_process_but_not_for_what_was_before_it():
    done = subprocess.run([sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (STUCK_EXIT_CODE, "working\n")
    assert "has stood still" in done.stderr


def go_round(status, begun):
    begun.set()
    while True:
        status.progress()


def test_a_consumer_that_is_killed_while_it_writes_its_status_stops_nobody_else():
    context = multiprocessing.get_context("fork")
    for _ in range(20):
        status, begun = Status(), context.Event()
        consumer = context.Process(target=go_round, args=(status, begun))
        consumer.start()
        assert begun.wait(30)
        consumer.kill()
        consumer.join()
        supervisor = context.Process(target=status.stuck_for)
        supervisor.start()
        supervisor.join(30)
        answered = supervisor.exitcode == 0
        supervisor.kill()
        supervisor.join()
        assert answered
