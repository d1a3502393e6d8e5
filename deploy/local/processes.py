"""One server process: started, recorded in its directory, waited for, signalled, stopped.

Knows neither Kafka nor Redis: they say what to run and when it is ready. The record, `<name>.json`, is what a
later command finds the process by. It holds the process's start time beside its number, so that a record
left over from a crash never makes us signal a stranger that was given the same number.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.local.ports import HOST, free_port, is_free

START_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.02


class ServerError(Exception):
    """A server could not be started or stopped; the message says why, with the end of its log."""


@dataclass(frozen=True, slots=True)
class Record:
    """The last process of a server: its number, its start time in clock ticks since boot, its port."""

    pid: int
    started: int
    port: int


class Server(ABC):
    """A server in a directory of its own, on the loopback address.

    `port` 0 is the port of the last run in this directory, or a free one. With `dies_with_parent` the kernel
    kills the server when the thread that called `start` ends, however it ends; otherwise it outlives us.
    """

    name: str

    def __init__(self, directory: Path, port: int = 0, *, dies_with_parent: bool = False) -> None:
        self.directory = directory.absolute()
        self.dies_with_parent = dies_with_parent
        self._child: subprocess.Popen[bytes] | None = None
        self._last = self._read_record()
        self.port = port or (self._last.port if self._last else free_port())

    @abstractmethod
    def prepare(self) -> None:
        """Write what the server reads at start; runs before each start."""

    @abstractmethod
    def command(self) -> list[str]:
        """What to execute."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server answers a real request of its clients now."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The running process, or None."""
        record = self._read_record()
        return record.pid if record and _start_time(record.pid) == record.started else None

    def start(self) -> bool:
        """Start and wait until it answers; False when it already ran. Raises ServerError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self.pid is not None:
                return self._already_running()
            if not is_free(self.port):
                raise ServerError(f"{self.name}: port {self.port} is taken")
            self.prepare()
            self._spawn()
            self._wait_until_it_answers()
        return True

    def stop(self) -> bool:
        """End it in order, by force after 20 s; False when it did not run. Leaves its data."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """End it by SIGKILL, as a crash would; False when it did not run."""
        return self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP) and wait until it stands: connections stay open, nothing is answered.

        The signal alone is not enough. One thread must be given a core before it can stop the others, which
        go on to answer until then: 18 ms on a busy machine, and a broker ends a transaction in two.
        """
        pid = self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not stands(pid):
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not stand still within {STOP_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS / 10)

    def resume(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = 15, characters: int = 500) -> str:
        """The end of its log. Kafka names thousands of partitions in one line."""
        if not self.log_file.exists():
            return "(no log)"
        return "\n".join(line[:characters] for line in self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _already_running(self) -> bool:
        record = self._read_record()
        if record and record.port != self.port:
            raise ServerError(f"{self.name} already runs on port {record.port}, not {self.port}: stop it first")
        return False

    def _spawn(self) -> None:
        prefix = _death_signal_prefix() if self.dies_with_parent else []
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C reaches the command or the tests, which then stop the servers.
            self._child = subprocess.Popen(
                [*prefix, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        started = _start_time(self._child.pid)
        if started is None:
            raise ServerError(f"{self.name} ended at once\n{self.log_tail()}")
        self._write_record(Record(self._child.pid, started, self.port))

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.pid is None:
                raise ServerError(f"{self.name} ended while starting; the end of {self.log_file}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self._end_process(signal.SIGKILL)
                raise ServerError(f"{self.name} gave no answer within {START_SECONDS:.0f} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def _end(self, how: signal.Signals) -> bool:
        if not self.directory.exists():
            return False
        with self._locked():
            return self._end_process(how)

    def _end_process(self, how: signal.Signals) -> bool:
        pid = self.pid
        if pid is None:
            return False
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, how)
            # A frozen process takes no notice of SIGTERM until it goes on.
            signal.pidfd_send_signal(handle, signal.SIGCONT)
            if not _ended(handle, STOP_SECONDS):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                _ended(handle, STOP_SECONDS)
        finally:
            os.close(handle)
        self._reap()
        return True

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None

    def _signal(self, which: signal.Signals) -> int:
        pid = self.pid
        if pid is None:
            raise ServerError(f"{self.name} is not running")
        os.kill(pid, which)
        return pid

    @property
    def _record_file(self) -> Path:
        return self.directory / f"{self.name}.json"

    def _read_record(self) -> Record | None:
        try:
            return Record(**json.loads(self._record_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # none yet, or cut off by a crash while it was written: nothing runs by it

    def _write_record(self, record: Record) -> None:
        self._record_file.write_text(json.dumps(asdict(record)) + "\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two commands on one directory take turns."""
        with (self.directory / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _death_signal_prefix() -> list[str]:
    # Not preexec_fn: it runs Python between fork and exec, which can deadlock where threads run.
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerError("setpriv is missing: apt-get install util-linux")
    return [setpriv, "--pdeathsig", "KILL", "--"]


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a living process; None for none and for a zombie."""
    state, *fields = _stat(Path(f"/proc/{pid}"))
    return None if state in "ZX" else int(fields[18])


def stands(pid: int) -> bool:
    """Whether every thread of a process that has not ended is stopped (SIGSTOP)."""
    return all(_stat(thread)[0] in "TX" for thread in Path(f"/proc/{pid}/task").iterdir())


def _stat(task: Path) -> list[str]:
    """State and following fields of a process or thread; state X when it is gone."""
    try:
        stat = (task / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]
    # The second field is the program's name in brackets and may itself hold spaces and brackets.
    return stat.rpartition(")")[2].split()


def _ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
