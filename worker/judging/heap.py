"""The heap: what large pages have left free goes back to the system (with glibc), and cycles are seldom looked for."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

LARGE_BLOCK_BYTES = 1 << 19
OBJECTS_BETWEEN = 20_000
"""So many new objects, a few batches of pages, before cycles among them are looked for. Python's own 700 are a batch's
beginning: all that is under way would be looked through again and again."""
_M_MMAP_THRESHOLD = -3
"""Of <malloc.h>."""


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell (no /proc)."""
    with suppress(FileNotFoundError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def give_memory_back() -> None:
    """Return what is free: the C library would keep it, 400 MB after 10 MB of tags."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_large_blocks_back() -> None:
    """Have blocks above LARGE_BLOCK_BYTES returned as soon as they are free, from now on.

    The C library would learn from the first of them to keep all of up to 32 MB, with holes between.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def look_for_cycles_seldom() -> None:
    """From now on: pages hold none."""
    gc.set_threshold(OBJECTS_BETWEEN, *gc.get_threshold()[1:])
