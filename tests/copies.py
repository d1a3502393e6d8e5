"""Processes of ours that begin as copies of one that has loaded everything: a second of processor time less for each.

    start("worker.__main__", ["verify"], environment, stdout, stderr)      as `python -m worker verify`
    monkeypatch.setattr(children, "subprocess", FOR_CHILDREN)              the children that fingerprint pages, too

In all else such a process is like another: it has a number, signals, an environment and files of its own, and an end.
`python -m tests.copies` is the one that is copied. It does nothing but load, and fork for each request that comes; it
has no threads. A copy's parent is a copy too: it waits for the end, and tells it. Copies ask for copies where all ask.
"""

from __future__ import annotations

import gc
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
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO, Any

from simhash.signature.profiles import profile
from worker.judging import children
from worker.judging.fingerprinters import WARM_UP
from worker.stopping import STOPPING

ROOT = Path(__file__).parent.parent
LOADED = ("tests.faulty_worker", "worker.cli.main", "worker.cli.dlq", "worker.cli.index", "worker.cli.verify")
"""What most of them run."""
Done = subprocess.CompletedProcess[str]
_NUMBER = struct.Struct("<i")
_LARGEST_REQUEST = 1 << 17
REAL_CHILDREN = "TESTS_REAL_CHILDREN"
"""Where a copy has this in its environment its fingerprinting children are none: they descend from it."""
_asking: socket.socket | None = None
"""The connection to the process that is copied; that ends when nobody has it any more."""


class Process:
    """A copy that runs, or has ended; what of `subprocess.Popen` the tests call."""

    def __init__(self, told: int) -> None:
        self._told = told
        self.pid = self._number(None)
        self.returncode: int | None = None

    def _number(self, seconds: float | None) -> int:
        """The next number that its parent tells; subprocess.TimeoutExpired if none comes."""
        if not select.select([self._told], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired("a copy", seconds or 0)
        (number,) = _NUMBER.unpack(os.read(self._told, _NUMBER.size))
        return int(number)

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that ended it); None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait so many seconds for its end, and give its exit code; subprocess.TimeoutExpired while it runs."""
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
    with open(os.devnull) as nothing:
        return _ask(module, "main", arguments, environment, [nothing.fileno(), stdout.fileno(), stderr.fileno()])


def _start_child(_: Sequence[str], stdin: int, stdout: int) -> Process:
    """As `worker.judging.children` calls `subprocess.Popen`."""
    return _ask("tests.copies", "fingerprint", [], os.environ, [stdin, stdout, 2])


FOR_CHILDREN = SimpleNamespace(Popen=_start_child, TimeoutExpired=subprocess.TimeoutExpired)
"""What `worker.judging.children` needs of `subprocess`."""


def _ask(
    module: str, function: str, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> Process:
    told, tells = os.pipe()
    request = json.dumps([module, function, [*arguments], dict(environment)]).encode()
    original = _original()
    socket.send_fds(original, [request], [*files, tells, original.fileno()])
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


def _original() -> socket.socket:
    global _asking
    if _asking is None:
        _asking, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        subprocess.Popen([sys.executable, "-m", "tests.copies"], cwd=ROOT, stdin=its)
        its.close()
    return _asking


def main() -> None:
    """Load, and be copied."""
    for name in LOADED:
        import_module(name)
    profile("default").signature_of_html(WARM_UP, b"")
    # Else each copy would look through all of it at its end, and have pages of its own for it: .1 s.
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the copies' parents: nobody waits for them
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 5)
        if not request:
            return None
        if os.fork() == 0:
            requests.close()
            return _run(*json.loads(request), *files)
        for file in files:
            os.close(file)


def fingerprint() -> None:
    """What `worker.judging.children` runs, as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    children.serve()


def _run(
    module: str,
    function: str,
    arguments: list[str],
    environment: dict[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    tells: int,
    asking: int,
) -> None:
    global _asking
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for file in (stdin, stdout, stderr, asking):
            os.close(file)
        with suppress(BrokenPipeError):  # whoever asked has ended before
            os.write(tells, _NUMBER.pack(pid))
            _, status = os.waitpid(pid, 0)
            os.write(tells, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os._exit(0)
    os.close(tells)
    for number, file in enumerate((stdin, stdout, stderr)):
        os.dup2(file, number)
        os.close(file)
    _asking = socket.socket(fileno=asking)
    os.environ.clear()
    os.environ.update(environment)
    if REAL_CHILDREN not in environment:
        vars(children)["subprocess"] = FOR_CHILDREN
    sys.argv = [module, *arguments]
    getattr(import_module(module), function)()


if __name__ == "__main__":
    main()
