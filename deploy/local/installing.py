"""What the servers need on this machine: Debian packages through apt-get, Kafka's jars through Maven.

Both go through the clients as the machine has them set up. The jars are checked against jars.sha256, so that
every machine runs the same broker; a complete cache asks nobody anything.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.processes import ServerError

CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
POM = Path(__file__).parent / "kafka" / "pom.xml"
SUMS = Path(__file__).parent / "kafka" / "jars.sha256"
JAVA_AT_LEAST = 17
REDIS_AT_LEAST = 7
"""Below, a server refuses some of the settings in redis.conf. Python packages bring such ones into a venv's path."""
POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True, slots=True)
class Need:
    """A program and the Debian package that brings it."""

    program: str
    package: str


NEEDS = (
    Need("java", "openjdk-17-jre-headless"),
    Need("redis-server", "redis-server"),
    Need("redis-cli", "redis-tools"),
    Need("promtool", "prometheus"),
    Need("chromium", "chromium"),
    Need("kcat", "kcat"),
)
MAVEN = Need("mvn", "maven")


def install(cache: Path = CACHE, *, dry_run: bool = False) -> list[str]:
    """Bring what is missing; return what was done, a line each. ServerError names what it could not."""
    done = []
    absent = missing(cache)
    if absent:
        packages = [need.package for need in absent]
        command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
        _refuse_unless_apt_is_ours(absent, command)
        done.append(" ".join(command))
        if not dry_run:
            _apt(command)
    if not jars_are_complete(cache):
        done.append(f"mvn dependency:copy-dependencies into {cache}")
        if not dry_run:
            _fetch_jars(cache.absolute())
    return done


def missing(cache: Path = CACHE) -> list[Need]:
    """The programs that are not here; Maven counts only while the jars are not complete."""
    needs = NEEDS if jars_are_complete(cache) else (*NEEDS, MAVEN)
    return [need for need in needs if not _is_here(need)]


def jars_are_complete(cache: Path) -> bool:
    """Whether every jar is in the cache with the content it should have (43 MB, 0.1 s)."""
    return all(_sum(cache / name) == expected for name, expected in expected_sums().items())


def require_jars(cache: Path) -> None:
    """Raise ServerError unless every jar is there; looks at the names only, as each start does."""
    absent = [name for name in expected_sums() if not (cache / name).exists()]
    if absent:
        raise ServerError(f"{len(absent)} of Kafka's jars are not in {cache}: run `deploy/local/servers install`")


def expected_sums() -> dict[str, str]:
    """Each jar's name and SHA-256, in hexadecimal."""
    lines = (line.split() for line in SUMS.read_text().splitlines())
    return {name: digest for digest, name in lines}


def redis_program(name: str) -> str | None:
    """The first program of that name on the path that is new enough; None: there is none."""
    found = (shutil.which(name, path=directory) for directory in os.get_exec_path())
    return next((program for program in found if program and _redis_version(program) >= REDIS_AT_LEAST), None)


def _redis_version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\b(?:v=|redis-cli )(\d+)\.", said)
    return int(match[1]) if match else 0


def _is_here(need: Need) -> bool:
    if need.program.startswith("redis-"):
        return redis_program(need.program) is not None
    found = shutil.which(need.program)
    return found is not None and (need.program != "java" or _java_version(found) >= JAVA_AT_LEAST)


def _java_version(program: str) -> int:
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0


def _refuse_unless_apt_is_ours(absent: list[Need], command: list[str]) -> None:
    if shutil.which("apt-get") and os.geteuid() == 0:
        return
    names = ", ".join(f"{need.program} (Debian package {need.package})" for need in absent)
    raise ServerError(f"missing: {names}\ninstall with: sudo {' '.join(command)}")


def _apt(command: list[str]) -> None:
    with _no_services_started():
        _run(["apt-get", "update", "--quiet"])
        _run(command)


@contextmanager
def _no_services_started() -> Iterator[None]:
    """Debian starts a service as it is installed, on its standard port: this is its own way to say no."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _fetch_jars(cache: Path) -> None:
    with _fresh_jars(cache) as fresh:
        wrong = [name for name, expected in expected_sums().items() if _sum(fresh / name) != expected]
        if wrong:
            raise ServerError(
                f"not what {SUMS.name} says: {', '.join(wrong)}; "
                "if pom.xml was changed on purpose: deploy/local/servers renew-sums"
            )
        if cache.exists():
            shutil.rmtree(cache)
        fresh.rename(cache)


def renew_sums(cache: Path = CACHE) -> None:
    """Write jars.sha256 anew from what Maven brings for the present pom.xml."""
    with _fresh_jars(cache) as fresh:
        lines = [f"{_sum(jar)}  {jar.name}\n" for jar in sorted(fresh.glob("*.jar"))]
    SUMS.write_text("".join(lines))


@contextmanager
def _fresh_jars(cache: Path) -> Iterator[Path]:
    """A directory beside the cache with what Maven brings: the cache is replaced whole, or not at all.

    The class path is a whole directory, so a jar of an older version must not stay beside the newer.
    """
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent, prefix="kafka-") as directory:
        fresh = Path(directory) / "jars"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        _run(["mvn", "--batch-mode", "--quiet", "--file", str(POM), *goal])
        yield fresh


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise ServerError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
