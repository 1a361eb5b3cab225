"""Who writes to a folder: one process at a time, by a lock of the operating system that vanishes with its owner.

The lock is held on a file in the folder, which says who holds it. Whoever lets go removes that file; if it is still
there but nobody holds it, its owner was killed.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from neurosql.errors import InputError

PATIENCE = 0.3
"""Seconds to try for: somebody who asks who holds a lock has it for an instant."""
MOST = 4096
"""Bytes that are read of what a lock file says."""
PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that open a file itself: not what a link points to, and without waiting for the other end of a pipe."""
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
"""Errors of file systems that have no locks."""


class Held(InputError):
    """Another process holds the lock."""


@dataclass
class _Lock:
    """A lock that this process holds."""

    handle: int
    thread: int
    depth: int = 1


_own: dict[str, _Lock] = {}
_guard = threading.Lock()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at that path within the context, or raise `Held`. The thread that holds it may take it again."""
    key, thread = os.path.realpath(path), threading.get_ident()
    with _guard:
        mine = _own.get(key)
        again = mine is not None and mine.thread == thread
        if mine is not None and again:
            mine.depth += 1
    if not again:
        mine = _Lock(_acquire(path), thread)
        _own[key] = mine
    assert mine is not None
    try:
        yield
    finally:
        mine.depth -= 1
        if not mine.depth:
            _own.pop(key, None)
            _release(path, mine.handle)


def holder(path: Path) -> str | None:
    """Who holds the lock at that path, in words; None if nobody does."""
    try:
        handle = os.open(path, os.O_RDONLY | PLAIN)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return None if taken(handle, shared=True) else _told(handle)
    finally:
        os.close(handle)


def taken(handle: int, shared: bool = False) -> bool:
    """Take the lock of an open file; False if somebody else has it. Where there are no locks, nobody has one."""
    try:
        if sys.platform == "win32":
            import msvcrt

            # Far behind the end: Windows lets nobody read what is locked.
            os.lseek(handle, 2**30, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in NO_LOCKS
    return True


def _acquire(path: Path) -> int:
    """An open file at that path whose lock is ours."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | PLAIN, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InputError(f"{path} is a link: remove it, nothing is written through it") from None
            raise
        try:
            if _is_ours(path, handle, last=time.monotonic() >= give_up):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        time.sleep(0.02)


def _is_ours(path: Path, handle: int, last: bool) -> bool:
    """Whether the lock of an open lock file could be taken; if not, and this was the last attempt, raise `Held`."""
    found = os.fstat(handle)
    # A second name would mean that what we write appears elsewhere.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise InputError(f"{path} is not a lock file: remove it")
    if taken(handle):
        # Whoever held the lock before may have removed the file since we opened it.
        if not _is_at(path, found):
            return False
        _tell(handle)
        return True
    if last:
        raise Held(f"{path.parent} is in use by {_told(handle)}: wait until it is done, or stop it")
    return False


def _release(path: Path, handle: int) -> None:
    if sys.platform == "win32":
        # An open file can't be removed there.
        os.close(handle)
    with suppress(OSError):
        os.unlink(path)
    if sys.platform != "win32":
        os.close(handle)


def _is_at(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), found)
    except FileNotFoundError:
        return False


def _tell(handle: int) -> None:
    """Write who holds the lock; on a full disk it is held all the same."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    words = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since})
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, words.encode() + b"\n")


def _told(handle: int) -> str:
    """What the holder of a lock wrote about itself, in words."""
    said: Any = None
    with suppress(OSError, ValueError, RecursionError):
        os.lseek(handle, 0, os.SEEK_SET)
        said = json.loads(os.read(handle, MOST))
    if not isinstance(said, dict):
        return "another process"
    pid, host, since = (str(said.get(name, "?"))[:100] for name in ("pid", "host", "since"))
    return f"process {pid} on {host} since {since}"
