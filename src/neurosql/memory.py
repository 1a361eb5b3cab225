"""How much memory this process may still take: of the machine, its container, its ulimit and the user's own limit.

The environment variable NEUROSQL_MEMORY, such as 4G or 500M, is a limit of the user's own for the whole process.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from neurosql.errors import InputError

VARIABLE = "NEUROSQL_MEMORY"
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
NO_LIMIT = 1 << 60


def figure(size: float) -> str:
    """A number of bytes in words: 0.9 GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def available() -> int:
    """Bytes that this process may still take."""
    return max(0, min(_machine(), *_containers(), *_ulimits(), _own_limit() - used(), NO_LIMIT))


def used() -> int:
    """Bytes that this process holds in memory now; 0 if that can't be known."""
    return _status().get("VmRSS", 0)


def require(size: int, what: str, instead: str) -> None:
    """Refuse what needs more memory than there is, with both figures and what to do instead."""
    free = available()
    if size > free:
        raise InputError(f"{what} would take about {figure(size)} of memory, and {figure(free)} are free: {instead}")


def _own_limit() -> int:
    """The limit that the user has set."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return NO_LIMIT
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", given.lower())
    if found is None or not float(found[1]):
        raise InputError(f"{VARIABLE} must be a size such as 4G or 500M, got {given!r}")
    return int(float(found[1]) * UNITS[found[2]])


def _machine() -> int:
    """What the machine has left, with what it would give back."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return NO_LIMIT


def _containers(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What each control group of this process, of version 1 or 2, and those above it have left."""
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0" and not controllers:
            top, limit, current, reclaimed = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top = root / "memory"
            limit, current, reclaimed = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # Inside a container the path may be that of the host: then only the top is there.
        path = top / place.lstrip("/")
        for folder in (path, *path.parents):
            with suppress(OSError, ValueError):
                left = int((folder / limit).read_text("ascii")) - int((folder / current).read_text("ascii"))
                yield left + _reclaimed(folder / "memory.stat", reclaimed)
            if folder == top:
                break


def _reclaimed(path: Path, name: str) -> int:
    """Bytes of files that are kept in memory only as long as nobody needs it."""
    with suppress(OSError, ValueError):
        for line in path.read_text("ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _ulimits() -> Iterator[int]:
    """What `ulimit -v` and `ulimit -d` leave."""
    if sys.platform == "win32":
        return
    import resource

    taken = _status()
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield most - taken.get(name, 0)


def _status() -> dict[str, int]:
    """The sizes in /proc/self/status, in bytes; empty where there is no such file."""
    found = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = 1024 * int(value.split()[0])
    return found
