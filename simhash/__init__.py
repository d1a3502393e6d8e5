"""Near-duplicate detection of web pages by simhash (Manku, Jain, Das Sarma, WWW 2007): the library.

    from simhash import MemoryIndex, distance, fingerprint

    distance(fingerprint(one_text), fingerprint(another))      # bits that differ, of 64
    index = MemoryIndex()
    index.add("https://example.org/a", one_text)               # Unique(seq=1)
    index.add("https://example.org/b", another)                # Duplicate(distance=…, match=…), or Unique(seq=2)

What stands in `__all__` is what people import; it is loaded when it is first asked for, so that `import simhash` takes
no time. It knows no Kafka, no clock and no environment; `worker` is the pipeline built on it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from simhash.errors import SimhashError
    from simhash.index.interface import Duplicate, Record, Retention, Unique
    from simhash.index.memory import MemoryIndex
    from simhash.index.redis.index import RedisIndex
    from simhash.relation.hamming import distance, near
    from simhash.shortcuts import fingerprint, main_text
    from simhash.signature.profile_file import read_profile
    from simhash.signature.profiles import PROFILES, Profile, Signature, profile

__all__ = [
    "PROFILES",
    "Duplicate",
    "MemoryIndex",
    "Profile",
    "Record",
    "RedisIndex",
    "Retention",
    "Signature",
    "SimhashError",
    "Unique",
    "distance",
    "fingerprint",
    "main_text",
    "near",
    "profile",
    "read_profile",
]

_MODULES = {
    "simhash.errors": ("SimhashError",),
    "simhash.index.interface": ("Duplicate", "Record", "Retention", "Unique"),
    "simhash.index.memory": ("MemoryIndex",),
    "simhash.index.redis.index": ("RedisIndex",),
    "simhash.relation.hamming": ("distance", "near"),
    "simhash.signature.profile_file": ("read_profile",),
    "simhash.signature.profiles": ("PROFILES", "Profile", "Signature", "profile"),
    "simhash.shortcuts": ("fingerprint", "main_text"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_NAMESAKES = ("Simhash", "SimhashIndex")
"""What people import from the other package that is called `simhash`."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name in _NAMESAKES:
        raise ImportError(
            f"this `simhash` is simhash-dedup's and has no `{name}`: that is 1e0ng's package of the same name. "
            "Here it is `fingerprint(text)` and `MemoryIndex()`"
        )
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'simhash' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _warn_of_namesake() -> None:
    """Both packages write `simhash/__init__.py`: the one that was installed last is the one that is imported."""
    for place in sys.path:
        if found := next(Path(place or ".").glob("simhash-[0-9]*-info"), None):
            warn(
                f"another package called `simhash` (1e0ng's) is installed in {found.parent}; both are imported by that "
                "name, and one overwrites the other. Keep one: pip uninstall simhash, then install simhash-dedup again",
                stacklevel=3,
            )
            return


_warn_of_namesake()
