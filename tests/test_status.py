"""The watchdog: a process whose loop stands still ends; one that has just begun does not."""

import subprocess
import sys

from tests.stream import ROOT
from worker.status import STUCK_EXIT_CODE

STUCK = """
import time
from worker.status import Status, watch
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
