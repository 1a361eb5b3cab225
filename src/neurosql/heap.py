"""Large blocks of memory stay with the program.

glibc asks the system for each block beyond 32 MiB and gives it back when it is freed. A training step on images of 128
pixels does that hundreds of times, and the system clears every page anew: a third of the time on a CPU. The program
keeps such blocks instead. It does so for its own processes only: a library has no business with its caller's heap.
"""

from __future__ import annotations

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**30
"""Bytes from which on a block goes back to the system as soon as it is freed."""
BY_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Variables by which somebody has chosen an allocator, or how it works."""


def keep_blocks() -> bool:
    """Have this process keep blocks of up to `LARGEST` bytes; False where that can't be done, or was chosen already."""
    if sys.platform != "linux" or any(name in os.environ for name in BY_THE_USER):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Another C library, such as musl.
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # Older versions refuse more than 32 MiB; their threshold then grows up to that by itself.
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
