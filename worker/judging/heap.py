"""The C library's heap: what large pages have left free goes back to the system. Without glibc, nothing is done."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

LARGE_BLOCK_BYTES = 1 << 19
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
