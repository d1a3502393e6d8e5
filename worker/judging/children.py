"""Child processes that can be lost: each works alone, on a pipe of its own, and nothing is shared that one could break.

A child is given tasks one after the other and answers them in order. It says when it begins one, so that it is known
what it was at when it ended: that task fails (`ChildLost`, or `TimeoutError` when the child was ended for having taken
too long), what it had not begun goes to another one. A child that is lost while it has nothing to do costs nobody
anything. The first is started at once, each other one when there is a task that none is free for: loading what it needs
takes a child half a second, which is longer than a few pages take.

    children = Children(2, partial(make_work, recipe), seconds=20.0)   # work = make_work(recipe), made in each child
    children.schedule(argument).result()                               # work(argument)
    children.close()

A thread of the parent looks after each child; another ends those that take too long. Why not the pools of
multiprocessing or pebble: their children share one pipe and its lock, so a child that is killed at the wrong moment
stops all the others, and the server that forks them is one more process that may be lost.

Signals that stop a worker are for the worker: a service manager or a terminal tells all processes of a service, and
must not take away the children from under it. They end when it closes them, or when it ends, however it does.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from worker.errors import ChildrenFail
from worker.stopping import STOPPING

Work = Callable[[Any], Any]
MakeWork = Callable[[], Work]

LARGEST_AHEAD_BYTES = 2 << 20
"""A task up to here is handed over while the one before is under way: no child waits for a parent that is busy. A
larger one would count against the memory that the one before may take."""
START_SECONDS = 60.0
START_TRIES, START_PAUSE_SECONDS, LONGEST_START_PAUSE_SECONDS = 10, 0.1, 1.0
END_SECONDS = 1.0
HANDED_OUT_MOST = 5
"""A task that so many children did not live to begin is what ends them: they read it before they can say so."""
MOST_TICK_SECONDS = 0.2
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from worker.judging.children import serve; serve()"
_READY, _BEGUN, _DONE, _NO_MEMORY = range(4)
_BEGUN_ANSWER = pickle.dumps((_BEGUN, None))
_ENDED_BY_PARENT = 0


class ChildLost(Exception):
    """The child that had this task has ended."""


@dataclass
class _Task:
    argument: bytes
    future: Future[Any]
    handed_out: int = 0


class _Child:
    """A process, its pipes, and the moment at which it is ended if it has not answered by then."""

    def __init__(self) -> None:
        tasks, self._tasks = _pipe()
        self._answers, answers = _pipe()
        places = [place or os.getcwd() for place in sys.path]
        self.overdue = False
        self.deadline: float | None = time.monotonic() + START_SECONDS
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, json.dumps(places)],
                stdin=tasks.fileno(),
                stdout=answers.fileno(),
            )
        except OSError:
            self._close_pipes()
            raise
        finally:
            tasks.close()
            answers.close()

    def send(self, data: bytes) -> None:
        self._tasks.send_bytes(data)

    def receive(self) -> tuple[int, Any]:
        kind, value = self._answers.recv()
        return kind, value

    def kill(self) -> None:
        self._process.kill()

    def gone(self) -> str:
        """End it, if it does not end by itself now that nothing can come any more; how it did."""
        self._close_pipes()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._process.kill()
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _close_pipes(self) -> None:
        self._tasks.close()
        self._answers.close()


def _pipe() -> tuple[Connection, Connection]:
    read, write = os.pipe()
    return Connection(read, writable=False), Connection(write, readable=False)


class Children:
    """Up to `count` processes that do to each argument what `make_work()` gives.

    Args:
        make_work: called in each child once; it, and what it is given, are pickled.
        seconds: a child that is longer than this at one task is ended.
        tasks_each: a child is replaced after so many tasks.
    """

    def __init__(self, count: int, make_work: MakeWork, seconds: float, tasks_each: int) -> None:
        self._make_work = pickle.dumps(make_work)
        self._seconds = seconds
        self._tasks_each = tasks_each
        self._waiting: deque[_Task] = deque()
        self._has_begun = False
        self._free = 0  # children that have nothing to do, and those that are being started
        lock = threading.Lock()
        self._changed, self._wanted = threading.Condition(lock), threading.Condition(lock)
        self._closed = threading.Event()
        self._failure: ChildrenFail | None = None
        self._alive: set[_Child] = set()
        keepers = [threading.Thread(target=self._keep, name=f"child-{n}", daemon=True) for n in range(count)]
        self._threads = [*keepers, threading.Thread(target=self._watch, name="children", daemon=True)]
        for thread in self._threads:
            thread.start()

    def schedule(self, argument: object) -> Future[Any]:
        """Have one of them work on `argument`.

        The future raises ChildLost, TimeoutError or MemoryError: this task failed; ChildrenFail: all of them will.
        """
        task = _Task(pickle.dumps(argument, pickle.HIGHEST_PROTOCOL), Future())
        with self._changed:
            if self._failure:
                task.future.set_exception(self._failure)
            else:
                self._waiting.append(task)
                (self._wanted if self._is_one_wanted() else self._changed).notify()
        return task.future

    def close(self) -> None:
        """End the children and wait for their end; tasks that are not done are dropped."""
        with self._changed:
            self._closed.set()
            self._waiting.clear()
            for child in self._alive:
                child.kill()
            self._notify_all()
        for thread in self._threads:
            thread.join()

    def _is_one_wanted(self) -> bool:
        """Whether there is a task that no child is free for."""
        return not self._has_begun or len(self._waiting) > self._free

    def _notify_all(self) -> None:
        self._changed.notify_all()
        self._wanted.notify_all()

    def _keep(self) -> None:
        """Keep one child at work, from when one is wanted, until all is closed."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # of this thread, and so of the children that it starts
        failed = 0
        while self._wait_until_one_is_wanted():
            try:
                child = self._started()
            except (OSError, EOFError) as error:
                failed += 1
                self._count_free(-1)
                if failed == START_TRIES:
                    self._give_up(error)
                    break
                self._closed.wait(min(START_PAUSE_SECONDS * 2**failed, LONGEST_START_PAUSE_SECONDS))
                continue
            failed = 0
            self._hand_out(child)

    def _wait_until_one_is_wanted(self) -> bool:
        """False when all is closed."""
        with self._changed:
            self._wanted.wait_for(lambda: self._closed.is_set() or self._is_one_wanted())
            self._has_begun = True
            self._free += 1
            return not self._closed.is_set()

    def _count_free(self, more: int) -> None:
        with self._changed:
            self._free += more

    def _started(self) -> _Child:
        """A child that is ready to work. Raises OSError or EOFError: it could not be started, or ended before."""
        child = _Child()
        with self._changed:
            self._alive.add(child)
            if self._closed.is_set():
                child.kill()
        try:
            child.send(self._make_work)
            child.receive()
            self._set_deadline(child, busy=False)
        except (OSError, EOFError) as error:
            raise EOFError(f"ended before it was ready: {self._end(child)}") from error
        return child

    def _hand_out(self, child: _Child) -> None:
        """Give it tasks and take its answers, until it has had its share or is lost."""
        under_way: deque[_Task] = deque()
        begun = False
        left = self._tasks_each
        try:
            while True:
                while left and (task := self._next(under_way)):
                    left -= 1
                    if not under_way:
                        self._set_deadline(child, busy=True)
                    under_way.append(task)
                    child.send(task.argument)
                if not under_way:
                    break
                kind, value = child.receive()
                begun = kind == _BEGUN
                if not begun:
                    done = under_way.popleft()
                    if not under_way:
                        self._count_free(1)
                    _settle(done.future, kind, value)
                self._set_deadline(child, busy=bool(under_way))
        except (OSError, EOFError):
            pass
        if not under_way:
            self._count_free(-1)
        self._take_back(under_way, begun, child.overdue, self._end(child))

    def _next(self, under_way: deque[_Task]) -> _Task | None:
        """The next task; None when there is none to hand out beside those `under_way`, or all is closed."""
        with self._changed:
            if not under_way:
                self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
                self._free -= bool(self._waiting)
                return self._waiting.popleft() if self._waiting else None
            if len(under_way) > 1 or not self._is_one_wanted():
                return None
            return self._waiting.popleft() if len(self._waiting[0].argument) <= LARGEST_AHEAD_BYTES else None

    def _set_deadline(self, child: _Child, busy: bool) -> None:
        with self._changed:
            child.deadline = time.monotonic() + self._seconds if busy else None

    def _take_back(self, under_way: deque[_Task], begun: bool, overdue: bool, end: str) -> None:
        """What a child had not begun is handed out again, before all else; what it was at has failed."""
        for task in under_way:
            task.handed_out += 1
        if under_way and (begun or under_way[0].handed_out == HANDED_OUT_MOST):
            error = TimeoutError() if overdue else ChildLost(end)
            if not self._closed.is_set():
                under_way.popleft().future.set_exception(error)
        with self._changed:
            self._waiting.extendleft(reversed(under_way))
            self._notify_all()

    def _end(self, child: _Child) -> str:
        with self._changed:
            self._alive.discard(child)
        return child.gone()

    def _give_up(self, error: BaseException) -> None:
        with self._changed:
            self._failure = ChildrenFail(f"the processes that fingerprint pages do not start: {error}")
            for task in self._waiting:
                task.future.set_exception(self._failure)
            self._waiting.clear()

    def _watch(self) -> None:
        """End children that take too long. Time in which this process stood still is nobody's."""
        tick = min(MOST_TICK_SECONDS, self._seconds / 10)
        now = time.monotonic()
        while not self._closed.wait(tick):
            before, now = now, time.monotonic()
            with self._changed:
                for child in self._alive:
                    if child.deadline is None:
                        continue
                    if now - before > 5 * tick:
                        child.deadline += now - before
                    if now > child.deadline:
                        child.overdue = True
                        child.kill()


def _settle(future: Future[Any], kind: int, value: object) -> None:
    if kind == _NO_MEMORY:
        future.set_exception(MemoryError())
    else:
        future.set_result(value)


def serve() -> None:
    """The child: work off what comes on standard input, answer on what was standard output."""
    answers = Connection(os.dup(1), readable=False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints is no answer
    tasks = Connection(os.dup(0), writable=False)
    come: SimpleQueue[bytes] = SimpleQueue()
    # Before anything is loaded: its stack must not count against a limit of memory that the work sets.
    threading.Thread(target=_read, args=(tasks, come), daemon=True).start()
    work: Work = pickle.loads(come.get())()
    answers.send((_READY, None))
    while True:
        argument = come.get()
        answers.send_bytes(_BEGUN_ANSWER)
        answers.send_bytes(pickle.dumps(_answer(work, argument), pickle.HIGHEST_PROTOCOL))
        del argument


def _answer(work: Work, argument: bytes) -> tuple[int, Any]:
    try:
        return _DONE, work(pickle.loads(argument))
    except MemoryError:
        return _NO_MEMORY, None


def _read(tasks: Connection, come: SimpleQueue[bytes]) -> None:
    """Take what comes as soon as it comes; when the parent is gone, so are we, whatever we are at."""
    with suppress(BaseException):
        while True:
            come.put(tasks.recv_bytes())
    os._exit(_ENDED_BY_PARENT)
