"""The rights that a process which reads strangers' files gives up, and the pipe that it answers through."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

PIPE = 2**20
HANDLES = 64
"""Files that a process may have open at once."""


def restrict(memory: int) -> None:
    """Give up the rights that reading files does not need, as far as the system lets a process do that.

    No file can be written, few can be open at once, memory is limited to `memory` bytes more than now, no core is
    dumped, no program that this process starts has more rights than it, and there is no network.
    """
    with suppress(ImportError):
        import resource

        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": HANDLES}
        with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
            limits["RLIMIT_AS"] = int(file.read().split()[0]) * resource.getpagesize() + memory
        for name, most in limits.items():
            with suppress(AttributeError, ValueError, OSError):
                kind = getattr(resource, name)
                hard = resource.getrlimit(kind)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (most, most))
    if sys.platform == "linux":
        _without_network()


def _without_network() -> None:
    """Enter a network of this process's own, which leads nowhere. Only root can do that in its own name."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        library = ctypes.CDLL(None)
        no_new_privileges, new_user, new_network = 38, 0x10000000, 0x40000000
        library.prctl(no_new_privileges, 1, 0, 0, 0)
        library.unshare(new_network if os.geteuid() == 0 else new_user | new_network)


def widen(pipe: Any) -> None:
    """Let a pipe hold more than the usual 64 KiB, if the system can: the two sides then wait less often."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE)
