"""File systems that fail: every call by which a run is written can be made to kill, to fail or to do half its work.

The modules that write do so through `os`. Within `injected`, they meet a stand-in that counts their calls and strikes
at one of them. `benchmarks/crashes.py` and the tests go through all of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from neurosql import InputError, checkpoint, files, locks
from neurosql.app import training

MODULES = (files, locks, checkpoint, training)
CHANGING = ("open", "write", "fsync", "replace", "unlink", "makedirs", "ftruncate")
"""Calls that change what is on the disk; `open` only if it is for writing."""
NEEDS_SPACE = ("open", "write", "fsync", "replace", "makedirs")

KILL, AFTER, FULL, SHORT, BROKEN = "kill", "half, then kill", "no space", "half, then no space", "I/O error"
KINDS = (KILL, AFTER, FULL, SHORT, BROKEN)


class Killed(BaseException):
    """Stands in for a process that is gone: nothing that it would still do reaches the disk."""


class FaultyOs:
    """`os`, with a fault at the call of number `at` (from 0); None only counts."""

    def __init__(self, kind: str = KILL, at: int | None = None) -> None:
        self.kind, self.at = kind, at
        self.calls: list[str] = []
        self.dead = self.full = False
        self.opened: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        # A process that is killed does not take along what the system has yet to write, and waiting for it takes long.
        function = getattr(os, name) if name != "fsync" else lambda handle: None
        if name == "close":
            return self._close
        return (lambda *given, **named: self._call(name, function, *given, **named)) if name in CHANGING else function

    def _call(self, name: str, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        writes = name != "open" or bool(given[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if self.dead:
            raise Killed
        if not writes:
            return self._opened(name, function(*given, **named))
        self.calls.append(name)
        if self.full and name in NEEDS_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if len(self.calls) - 1 == self.at:
            return self._strike(name, function, given, named)
        return self._opened(name, function(*given, **named))

    def _strike(self, name: str, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.kind == BROKEN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.kind == FULL:
            self.full = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.kind == KILL:
            self.dead = True
            raise Killed
        if name == "write":
            given = (given[0], given[1][: len(given[1]) // 2])
        found = self._opened(name, function(*given, **named))
        if self.kind == SHORT:
            self.full = True
            return found
        self.dead = True
        raise Killed

    def _opened(self, name: str, found: Any) -> Any:
        if name == "open":
            self.opened.add(found)
        return found

    def _close(self, handle: int) -> None:
        self.opened.discard(handle)
        os.close(handle)

    def bury(self) -> None:
        """Close what a dead process had open, as the system does: its locks go with it."""
        for handle in self.opened:
            with suppress(OSError):
                os.close(handle)
        if self.dead:
            locks._own.clear()


@contextmanager
def injected(kind: str = KILL, at: int | None = None) -> Iterator[FaultyOs]:
    """Let the modules that write meet a fault; those that the fault itself raises end here."""
    faulty = FaultyOs(kind, at)
    for module in MODULES:
        module.os = faulty  # type: ignore[attr-defined]
    try:
        yield faulty
    except Killed:
        pass
    except (OSError, InputError):
        if at is None or len(faulty.calls) <= at:
            raise
    finally:
        for module in MODULES:
            module.os = os  # type: ignore[attr-defined]
        faulty.bury()
