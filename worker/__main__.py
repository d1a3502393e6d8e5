"""The entry of `simhash-dedup`, also `python -m worker`: Ctrl-C while it is being loaded ends it without a word."""

import os
import signal
import sys
from importlib.util import find_spec

import simhash

INTERRUPTED = 130
UNFIT = 2
ONE_THREAD = "OPENBLAS_NUM_THREADS"
"""NumPy's linear algebra starts a thread for each core: a tenth of a second of processor, and address space, for each
process. What is multiplied here is small, and what works at once are processes."""


def main() -> None:
    """Load the command that is asked for, which takes up to a second, and run it."""
    heard = signal.getsignal(signal.SIGINT) == signal.default_int_handler  # else whoever started us wants it ignored
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    os.environ.setdefault(ONE_THREAD, "1")
    if reason := _unfit():
        sys.stderr.write(f"simhash-dedup: {reason}\n")
        sys.exit(UNFIT)
    from worker.cli import main as run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _unfit() -> str | None:
    """What keeps the commands from being loaded; said before a traceback would say it in other words."""
    if "RedisIndex" not in getattr(simhash, "__all__", ()):
        return (
            f"{simhash.__file__} is another package's (1e0ng's `simhash`), installed over ours: "
            "pip uninstall simhash, then pip install --force-reinstall 'simhash-dedup[worker]'"
        )
    if find_spec("click") is None:
        return "only the library is installed; the command needs more: pip install 'simhash-dedup[worker]'"
    return None


if __name__ == "__main__":
    main()
