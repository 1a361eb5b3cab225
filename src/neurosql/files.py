"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from neurosql import intake, locks
from neurosql.locks import PLAIN

TEMPORARY = ".neurosql-"
"""How the names of unfinished files begin."""
BINARY = getattr(os, "O_BINARY", 0)


def replace(target: Path, content: bytes) -> None:
    """Write a file beside the target and rename it: whatever happens, the target is the old file or the new one.

    The content is on the disk before it gets its name, and the name before this returns. If the target is a link, the
    link is replaced, not what it points to.
    """
    os.makedirs(target.parent, exist_ok=True)
    temporary, handle = _unfinished(target.parent)
    try:
        try:
            write(handle, content)
            os.fsync(handle)
            if sys.platform != "win32":
                os.replace(temporary, target)
        finally:
            os.close(handle)
        if sys.platform == "win32":
            # An open file can't be renamed there.
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def append(target: Path, content: bytes) -> None:
    """Append to a file; if that can't be done in full, none of it stays. Nothing is written through a link."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY | PLAIN, 0o666)
    try:
        intake.must_be_regular(target, os.fstat(handle).st_mode)
        size = os.fstat(handle).st_size
        try:
            write(handle, content)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def write(handle: int, content: bytes) -> None:
    """Write all of the content to an open file, in as many calls as that takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do that."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def clean(folder: Path) -> None:
    """Remove what a killed process left unfinished in a folder. What a living one is writing stays."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):
            if name.startswith(TEMPORARY) and _is_abandoned(folder / name):
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)


def _unfinished(folder: Path) -> tuple[Path, int]:
    """A new file, and its handle; a lock on it says that it is being written."""
    while True:
        # The name does not depend on the target's, which may be as long as names can be.
        path = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY | PLAIN, 0o666)
        if sys.platform == "win32":
            return path, handle
        locks.taken(handle)
        # `clean` may have come between the two calls.
        if os.fstat(handle).st_nlink:
            return path, handle
        os.close(handle)


def _is_abandoned(path: Path) -> bool:
    if sys.platform == "win32":
        return True
    try:
        handle = os.open(path, os.O_RDONLY | PLAIN)
    except OSError as error:
        return error.errno == errno.ELOOP
    try:
        return not stat.S_ISDIR(os.fstat(handle).st_mode) and locks.taken(handle)
    finally:
        os.close(handle)
