"""A worker that sends itself a signal at the n-th time it takes a step: `python -m tests.faulty_worker judged:2 9`.

Several such moments are separated by commas.
"""

import os
import sys
from collections import Counter

from prometheus_client import CollectorRegistry

from worker import logs
from worker.errors import exit_code_of, report
from worker.settings import load
from worker.stream.consumer import run_consumer
from worker.stream.status import Status


def main() -> None:
    stop_at, number = sys.argv[1], int(sys.argv[2])
    moments = {(step, int(count)) for step, _, count in (m.partition(":") for m in stop_at.split(",") if m)}
    taken: Counter[str] = Counter()

    def on_step(name: str) -> None:
        taken[name] += 1
        if (name, taken[name]) in moments:
            os.kill(os.getpid(), number)

    logs.configure("info", "text")
    try:
        run_consumer(load({}), CollectorRegistry(), Status(), on_step)
    except Exception as error:
        report(error)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
