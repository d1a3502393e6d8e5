"""A release's tag, held to the versions in the tree and to the changelog: `python -m deploy.release v0.2.0 > notes.md`.

Prints the version's section of CHANGELOG.md, the notes of the release. Ends with exit code 1 and a line for each thing
that does not fit the tag; the workflow that builds a release begins with it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_HEADING = r"^## {version} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version, without its heading; empty where it says nothing."""
    found = re.search(_HEADING.format(version=re.escape(version)), changelog, re.M | re.S)
    return found[1].strip() if found else ""


def unreleased(changelog: str) -> str:
    """What stands under Unreleased: nothing, when a version was just made of it."""
    found = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    return found[1].strip() if found else ""


def faults(tag: str, root: Path = ROOT) -> Iterator[str]:
    """What of the tree in `root` does not fit the tag, a line each."""
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        yield f"a release's tag is v1.2.3 or v1.2.3rc1, not {tag}"
    for name, found in versions(root).items():
        if found != version:
            yield f"{name} has version {found}, the tag says {version}"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not notes(changelog, version):
        yield f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD` with something in it"
    if unreleased(changelog):
        yield "CHANGELOG.md still has lines under Unreleased: they belong to this version"


def versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file names."""
    crate = _toml(root / "native" / "Cargo.toml")["package"]
    locked = _toml(root / "native" / "Cargo.lock")["package"]
    return {
        "pyproject.toml": _toml(root / "pyproject.toml")["project"]["version"],
        "native/Cargo.toml": crate["version"],
        "native/Cargo.lock": next(each["version"] for each in locked if each["name"] == crate["name"]),
    }


def _toml(path: Path) -> Any:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def main(tag: str) -> None:
    """Print the notes of the release, or what does not fit."""
    if found := list(faults(tag)):
        sys.exit("\n".join(f"release: {fault}" for fault in found))
    sys.stdout.write(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag.removeprefix("v")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m deploy.release TAG")
    main(sys.argv[1])
