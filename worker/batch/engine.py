"""Spark: started, given tasks, watched, stopped; the one file that imports it.

A stage is a list of tasks, each an argument of one function, and its result a short value; what is large goes out as a
broadcast and comes back as a file. Spark tries a task four times.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from worker.errors import SettingsError, WorkerError

T = TypeVar("T")
R = TypeVar("R")

TRIES = 4
WATCH_SECONDS = 0.2
END_SECONDS = 20.0
TOO_OLD = "UnsupportedClassVersionError"
"""What a Java says of programs for newer ones."""
NOT_THERE = re.compile(r"(\S+/bin/java): No such file")
LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")


class StageStopped(Exception):
    """A stage was stopped before its end."""


class TaskFailed(WorkerError):
    """A task failed as often as it may be tried."""


@dataclass(frozen=True)
class EngineSettings:
    """How Spark is started.

    Attributes:
        master: None: what spark-submit or its configuration says, all cores of this machine where they say nothing.
        memory: of the driver's and of each executor's Java process, as Spark writes it ("2g").
        directory: where Spark may write, and its log.
    """

    master: str | None
    memory: str
    directory: Path

    @property
    def log(self) -> Path:
        """What Spark says; nobody else reads it."""
        return self.directory / "spark.log"


class Engine:
    """A Spark context; of those that are not closed a process can have one.

    Raises:
        SettingsError: PySpark or Java is missing, or the master is none.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        try:
            from py4j.protocol import Py4JError
            from pyspark import SparkConf, SparkContext
            from pyspark.errors import PySparkException
            from pyspark.java_gateway import launch_gateway
        except ImportError as error:
            raise SettingsError(
                f"Spark for Python is not installed ({error}): pip install 'simhash-dedup[spark]'"
            ) from error
        _silence_py4j()
        self._kept: Any = SparkContext
        given = SparkConf(loadDefaults=False).setAll(list(_given(settings).items()))
        with settings.log.open("wb") as log:
            try:
                self._gateway = launch_gateway(given, {"stdout": log, "stderr": subprocess.STDOUT})
            except (PySparkException, OSError) as error:
                raise SettingsError(_why_not_started(settings.log, str(error))) from error
        conf = SparkConf(_jvm=self._gateway.jvm)
        master = _retrying(conf.get("spark.master") or "local[*]")
        conf.setMaster(master)
        for name, value in _defaults(settings, master).items():
            conf.setIfMissing(name, value)
        try:
            self._context = SparkContext(conf=conf, gateway=self._gateway)
        except (Py4JError, PySparkException, OSError) as error:
            said = _last_said(settings.log) if isinstance(error, OSError) else _first_line(error)
            self._end_java()
            raise SettingsError(f"Spark does not start at {master}: {said}") from error
        self._context.setLogLevel("WARN")  # below spark-submit its log is ours
        if master.startswith("local") and self._context.pythonExec == "python3":
            self._context.pythonExec = sys.executable
        self._failures = (Py4JError, PySparkException)
        self._stages = 0

    @property
    def cores(self) -> int:
        """How many tasks run at once, as far as Spark knows at its start."""
        return self._context.defaultParallelism

    def broadcast(self, value: object) -> Any:
        """A value for all tasks, to be read there as `.value`; given up by `.unpersist()`."""
        return self._context.broadcast(value)

    def run(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        stopping: threading.Event,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[R]:
        """The function's results on all tasks, in order.

        Args:
            on_progress: called with the number of tasks that are done, now and then.

        Raises:
            TaskFailed: a task failed every time.
            Stopped: `stopping` was set before the end.
        """
        if stopping.is_set():
            raise StageStopped
        if not tasks:
            return []
        self._stages += 1
        stage = _Stage(self._context, f"stage-{self._stages}", function, tasks)
        stage.start()
        while stage.is_alive():
            stage.join(WATCH_SECONDS)
            on_progress(stage.done())
            if stopping.is_set():
                self._context.cancelAllJobs()
                stage.join(END_SECONDS)
                raise StageStopped
        if stage.failure and self._context._jsc.sc().isStopped():
            raise SettingsError(
                f"Spark at {self._context.master} has ended the application: a master that cannot be reached, or that"
                f" gave it up ({self._settings.log.name}: {_last_said(self._settings.log)})"
            ) from stage.failure
        if isinstance(stage.failure, self._failures):
            raise TaskFailed(f"a task failed {TRIES} times: {_cause(stage.failure)}") from stage.failure
        if stage.failure:
            raise stage.failure
        return stage.results

    def close(self) -> None:
        """End Spark and its processes."""
        try:
            self._context.stop()
        finally:
            self._end_java()

    def _end_java(self) -> None:
        # PySpark would ask the Java that has ended for the next context too.
        self._kept._gateway = self._kept._jvm = None
        process = getattr(self._gateway, "proc", None)
        self._gateway.shutdown()
        if process is None:  # spark-submit's own, which ends after us
            return
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Stage(threading.Thread):
    """Tasks under way: in a thread, because the call that waits for them hears no signal."""

    def __init__(self, context: Any, name: str, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        super().__init__(name=name, daemon=True)
        self.results: list[Any] = []
        self.failure: BaseException | None = None
        self._context = context
        self._function = function
        self._tasks = tasks

    def run(self) -> None:
        try:
            self._context.setJobGroup(self.name, self.name, interruptOnCancel=True)
            self.results = self._context.parallelize(self._tasks, len(self._tasks)).map(self._function).collect()
        except BaseException as error:
            self.failure = error

    def done(self) -> int:
        """Tasks that are done so far."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self.name)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage)


def _silence_py4j() -> None:
    """What it has to say comes as an exception too. It logs some of it as itself and some as nobody."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4js)


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _given(settings: EngineSettings) -> dict[str, str]:
    """What is said to Java as it starts, and wins over its configuration."""
    said = {"spark.driver.memory": settings.memory}
    return said | ({"spark.master": settings.master} if settings.master else {})


def _retrying(master: str) -> str:
    """A local master that tries tasks again, as all others do."""
    found = LOCAL.fullmatch(master)
    return f"local[{found[1] or '1'},{TRIES}]" if found else master


def _defaults(settings: EngineSettings, master: str) -> dict[str, str]:
    """What holds where neither spark-submit nor Spark's configuration says anything."""
    said = {
        "spark.app.name": "simhash-dedup batch",
        "spark.executor.memory": settings.memory,
        "spark.task.maxFailures": str(TRIES),
        "spark.ui.showConsoleProgress": "false",
    }
    if not master.startswith("local"):
        return said
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    return said | here | {"spark.local.dir": str(settings.directory)}


def _why_not_started(log: Path, error: str) -> str:
    said = log.read_text(errors="replace")
    if found := NOT_THERE.search(said):
        return f"Spark needs Java 17 and {found[1]} is not there, where JAVA_HOME points"
    if shutil.which("java") is None:
        return "Spark needs Java 17 and there is none on the PATH: apt-get install openjdk-17-jre-headless"
    if TOO_OLD in said:
        return "Spark needs Java 17 and this one is older: install openjdk-17-jre-headless, and set JAVA_HOME to it"
    return f"Spark does not start: {_last_said(log) or error}"


def _last_said(log: Path) -> str:
    """The last error in Spark's log, else its last line; never a place in Java's code."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line and not line[0].isspace()]
    wrong = [line for line in lines if " ERROR " in line or "Exception" in line]
    return next(iter([*wrong[-1:], *lines[-1:]]), "")


def _first_line(error: BaseException) -> str:
    """What was wrong, by what caused it in the first place."""
    java = getattr(error, "java_exception", None)
    while java is not None and (cause := java.getCause()) is not None:
        java = cause
    text = str(error if java is None else java.toString())
    return next((line for line in text.splitlines() if line.strip()), "")


def _cause(error: BaseException) -> str:
    """The last line of the task's traceback, which is somewhere in what Spark says."""
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line.strip() for line in text.splitlines()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt): ", line)]
    python = [line for line in raised if not line.startswith(("org.", "java.", "py4j."))]
    return (python or raised or lines)[0]
