"""Other packages, measured by scripts of this folder in a virtual environment of their own.

Their own, because one of them imports as `simhash` too. It is made on demand below `.cache`, and again when
their requirements change. A script reads its options as one JSON object from standard input and prints one, or goes on
to answer each further line with one (`asking`); it imports nothing of this project. What is written in Rust is a
program in `crates`, which answers in the same way; cargo builds it below `.cache` too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

Ask = Callable[[dict[str, object]], dict[str, Any]]
"""Puts a question to a running script and waits for its answer; raises PeerError where it ended instead."""

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
KEPT_REQUIREMENTS = HERE / "kept-requirements.txt"
CRATES = HERE / "crates" / "Cargo.toml"
CACHE = HERE.parents[1] / ".cache"


class PeerError(Exception):
    """A peer's script failed; the message ends with what it wrote."""


def run(
    script: str,
    options: dict[str, object],
    progress: Callable[[str], None],
    requirements: Path = REQUIREMENTS,
    core: int | None = None,
) -> dict[str, Any]:
    """What `benchmarks/peers/<script>.py` has measured.

    Args:
        core: the only one that it may use.

    Raises:
        PeerError: the environment cannot be made, or the script failed.
    """
    python = environment(progress, requirements)
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    done = _run([*pinned, str(python), "-I", str(HERE / f"{script}.py")], json.dumps(options))
    found: dict[str, Any] = json.loads(done.splitlines()[-1])
    return found


@contextmanager
def asking(
    script: str, options: dict[str, object], progress: Callable[[str], None]
) -> Iterator[tuple[dict[str, Any], Ask]]:
    """Start `benchmarks/peers/<script>.py`, which answers questions, one JSON object a line each, until the end.

    Yields its answer to the options, and what asks it.

    Raises:
        PeerError: the environment cannot be made, or the script failed.
    """
    with _conversation([str(environment(progress)), "-I", str(HERE / f"{script}.py")], options) as answers:
        yield answers


@contextmanager
def asking_crates(options: dict[str, object], progress: Callable[[str], None]) -> Iterator[tuple[dict[str, Any], Ask]]:
    """The same with the program in `crates`.

    Raises:
        PeerError: there is no cargo, or the program cannot be built.
    """
    with _conversation([str(crates(progress))], options) as answers:
        yield answers


@contextmanager
def _conversation(command: list[str], options: dict[str, object]) -> Iterator[tuple[dict[str, Any], Ask]]:
    with TemporaryFile("w+") as said, _started(command, said) as peer:
        assert peer.stdin
        assert peer.stdout
        questions, answers = peer.stdin, peer.stdout

        def ask(question: dict[str, object]) -> dict[str, Any]:
            with suppress(BrokenPipeError):  # what it said on its way out is told below
                print(json.dumps(question), file=questions, flush=True)
            if answer := answers.readline():
                found: dict[str, Any] = json.loads(answer)
                return found
            said.seek(0)
            raise PeerError(f"`{' '.join(command)}` ended:\n{said.read()[-2000:]}")

        yield ask(options), ask


def _started(command: list[str], said: IO[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, text=True)


def environment(progress: Callable[[str], None], requirements: Path = REQUIREMENTS) -> Path:
    """The Python that has the peers; the environment is made when it is not there."""
    digest = hashlib.blake2b(requirements.read_bytes(), digest_size=4).hexdigest()
    directory = CACHE / f"peers-{digest}"
    python, ready = directory / "bin" / "python", directory / "ready"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "peers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two benchmarks at once must not make it twice
        if not ready.exists():
            _make(directory, requirements, progress)
            ready.touch()
    return python


def crates(progress: Callable[[str], None]) -> Path:
    """The program of the Rust peers; cargo builds what has changed of it."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise PeerError("the peers written in Rust need cargo")
    progress("building the peers written in Rust")
    target = CACHE / "peers-crates"
    _run([cargo, "build", "--quiet", "--release", "--manifest-path", str(CRATES), "--target-dir", str(target)])
    return target / "release" / "peers"


def _make(directory: Path, requirements: Path, progress: Callable[[str], None]) -> None:
    progress(f"installing the peers of {requirements.name}")
    _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(directory)])
    # Compiled is what is imported, when it is: all of it takes as long as the rest.
    pip = [sys.executable, "-m", "pip", "--python", str(directory), "install", "--no-compile", "--no-deps"]
    _run([*pip, "--quiet", "--disable-pip-version-check", "--requirement", str(requirements)])


def _run(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"`{' '.join(command)}` failed:\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout
