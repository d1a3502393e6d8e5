"""Processes of ours that begin as copies of one that has loaded everything: a second of processor time less for each.

    start("worker.__main__", ["verify"], environment, stdout, stderr)      as `python -m worker verify`

In all else such a process is like another: it has a number, signals, an environment and files of its own, and an end.
`python -m tests.copies` is the one that is copied. It does nothing but load, and fork for each request that comes; it
has no threads. A copy's parent is a copy too: it waits for the end, and tells it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

ROOT = Path(__file__).parent.parent
LOADED = ("tests.faulty_worker", "worker.cli.main", "worker.cli.dlq", "worker.cli.index", "worker.cli.verify")
"""What most of them run."""
Done = subprocess.CompletedProcess[str]
_NUMBER = struct.Struct("<i")
_LARGEST_REQUEST = 1 << 17


class Process:
    """A copy that runs, or has ended; what of `subprocess.Popen` the tests call."""

    def __init__(self, told: int) -> None:
        self._told = told
        self.pid = self._number(None)
        self.returncode: int | None = None

    def _number(self, seconds: float | None) -> int:
        """The next number that its parent tells; TimeoutError if none comes."""
        if not select.select([self._told], [], [], seconds)[0]:
            raise TimeoutError
        (number,) = _NUMBER.unpack(os.read(self._told, _NUMBER.size))
        return int(number)

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that ended it); None while it runs."""
        with suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait so many seconds for its end, and give its exit code; TimeoutError while it runs."""
        if self.returncode is None:
            self.returncode = self._number(timeout)
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
) -> Process:
    """Run the `main` of a module as a program of its own."""
    told, tells = os.pipe()
    request = json.dumps([module, [*arguments], dict(environment)]).encode()
    socket.send_fds(_original(), [request], [stdout.fileno(), stderr.fileno(), tells])
    os.close(tells)
    return Process(told)


def run(module: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float) -> Done:
    """Run such a program to its end, for so many seconds at most."""
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        process = start(module, arguments, environment, stdout, stderr)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        return Done([module, *arguments], code, *map(_whole, (stdout, stderr)))


def _whole(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


@cache
def _original() -> socket.socket:
    """The connection to the process that is copied; that ends when nobody has it any more."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen([sys.executable, "-m", "tests.copies"], cwd=ROOT, stdin=its)
    its.close()
    return ours


def main() -> None:
    """Load, and be copied."""
    for name in LOADED:
        import_module(name)
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the copies' parents: nobody waits for them
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 3)
        if not request:
            return None
        if os.fork() == 0:
            requests.close()
            return _run(*json.loads(request), *files)
        for file in files:
            os.close(file)


def _run(module: str, arguments: list[str], environment: dict[str, str], stdout: int, stderr: int, tells: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        os.close(stdout)
        os.close(stderr)
        os.write(tells, _NUMBER.pack(pid))
        _, status = os.waitpid(pid, 0)
        os.write(tells, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os._exit(0)
    os.close(tells)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    import_module(module).main()


if __name__ == "__main__":
    main()
