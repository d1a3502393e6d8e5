"""What the figures were measured on: processor, memory, versions, load; and on which of its processors."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "simhash-dedup",
    "numpy",
    "xxhash",
    "jieba",
    "rjieba",
    "resiliparse",
    "redis",
    "kafka-python",
    "msgspec",
    "pyspark",
)


def load_average() -> float:
    """The machine's load over the last minute: what others were doing while a figure was taken."""
    return os.getloadavg()[0]


def description() -> dict[str, object]:
    """The machine and the versions, JSON-able."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "redis_server": _first_line("redis-server", "--version"),
        "java": _first_line("java", "-version"),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


@contextmanager
def on_one_processor(*others: int) -> Iterator[None]:
    """Keep this process and the main threads of others on one processor meanwhile."""
    before = {process: os.sched_getaffinity(process) for process in (os.getpid(), *others)}
    one = {min(before[os.getpid()])}
    try:
        for process in before:
            os.sched_setaffinity(process, one)
        yield
    finally:
        for process, processors in before.items():
            os.sched_setaffinity(process, processors)


def lines(described: dict[str, object]) -> list[str]:
    """The description for people."""
    return [f"{name}: {_plain(value)}" for name, value in described.items()]


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {found}" for name, found in value.items())
    return str(value)


def _processor() -> str:
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    return next((row.partition(":")[2].strip() for row in rows if row.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "missing"
    return (done.stdout + done.stderr).partition("\n")[0]
