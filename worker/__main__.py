"""The entry of `simhash-dedup`, also `python -m worker`: Ctrl-C while it is being loaded ends it without a word."""

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Load the commands, which takes a second or so, and run the one that is asked for."""
    heard = signal.getsignal(signal.SIGINT) == signal.default_int_handler  # else whoever started us wants it ignored
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from worker.cli import main as run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
