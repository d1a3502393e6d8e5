"""Wall time, processor time and percentiles. Processor time is what to compare by where others use the machine too."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Stopwatch:
    """Seconds of wall time and of this process's processor time since it was made."""

    _wall: float = field(default_factory=time.perf_counter)
    _cpu: float = field(default_factory=time.process_time)

    @property
    def wall(self) -> float:
        """Seconds passed."""
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        """Seconds of processor time that this process took meanwhile."""
        return time.process_time() - self._cpu


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` % of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def tree_cpu_seconds(root: int) -> dict[int, float]:
    """Processor seconds so far of a process and of each living descendant, by process number."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        fields = _stat(entry) if entry.name.isdecimal() else None
        if fields:
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            seconds[pid] = (int(fields[11]) + int(fields[12])) * TICK_SECONDS
    return {pid: spent for pid, spent in seconds.items() if root in _ancestors(pid, parents)}


def _stat(process: Path) -> list[str] | None:
    """The fields of /proc/<pid>/stat behind the program's name, which may itself hold spaces."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    """The process itself and all above it."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found
