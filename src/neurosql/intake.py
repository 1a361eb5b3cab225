"""Open files that strangers made: regular files only, up to a limit, without ever waiting for a pipe.

Links may lead anywhere: `inside` refuses those that lead out of the folder that they came in.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from neurosql.errors import InputError

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def regular(path: str | Path) -> BinaryIO:
    """A regular file, opened for reading. An InputError if it is anything else; an OSError if it can't be opened.

    A pipe that nobody writes to would otherwise keep the program waiting, and a device may never end. What was opened
    is looked at, not what the name stood for a moment before.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:
        raise InputError(f"{str(path)!r} can't be the name of a file") from None
    try:
        must_be_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def odd(mode: int) -> str:
    """What something that is not a regular file is, in words; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((words for holds, words in KINDS if holds(mode)), "something else")


def must_be_regular(path: str | Path, mode: int) -> None:
    """Refuse what is at a path, unless its mode is that of a regular file."""
    if words := odd(mode):
        raise InputError(f"{path} is {words}, not a file that can be read")


def content(path: str | Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; an InputError if it has more, an OSError if it can't be
    read."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        found = b"" if size > limit else file.read(limit + 1)
    if max(size, len(found)) > limit:
        raise InputError(f"{path} has {max(size, len(found)):,} bytes: more than {limit:,} are refused")
    return found


def read(path: str | Path, limit: int) -> bytes:
    """`content`, with an InputError also if the file can't be read."""
    try:
        return content(path, limit)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None


def inside(folder: Path, path: Path) -> Path:
    """The real path of what is, or will be, at a path in a folder; an InputError if a link leads out of the folder."""
    try:
        whole, real = os.path.realpath(folder), os.path.realpath(path)
        if os.path.commonpath([whole, real]) == whole:
            return Path(real)
    except (OSError, ValueError):
        pass
    raise InputError(f"{path} is a link that leads out of {folder}: replace it by the file itself")
