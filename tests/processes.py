"""What a process writes, and the processes below one, by /proc: to see that none is left behind."""

import subprocess
from pathlib import Path

from tests.stream import until


def written_until(process: "subprocess.Popen[str]", text: str) -> list[str]:
    """The lines that a process writes to its standard error, up to one with this text."""
    assert process.stderr
    lines = [""]
    while text not in lines[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], f"it ended without {text!r}:\n{''.join(lines)}"
    return lines


def descendants(pid: int) -> set[int]:
    """The process ids of all children, their children and so on."""
    parents = {}
    for directory in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(directory.name))
        if fields:
            parents[int(directory.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def runs(pid: int) -> bool:
    """Whether it is there and no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def command_line(pid: int) -> bytes:
    """What was executed, its words ended by NULs; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_until_gone(pids: set[int]) -> None:
    """Wait for the end of all of them."""
    until(lambda: not any(map(runs, pids)), f"the end of {pids}")


def _stat(pid: int) -> list[str]:
    """State, parent and so on; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
