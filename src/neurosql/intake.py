"""Open files that strangers made: regular files only, up to a limit, without ever waiting for a pipe."""

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
        if words := odd(os.fstat(handle).st_mode):
            raise InputError(f"{path} is {words}, not a file that can be read")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def odd(mode: int) -> str:
    """What something that is not a regular file is, in words; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((words for holds, words in KINDS if holds(mode)), "something else")


def read(path: str | Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; an InputError if it has more, or can't be read."""
    try:
        with regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > limit else file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    if max(size, len(content)) > limit:
        raise InputError(f"{path} has {max(size, len(content)):,} bytes: more than {limit:,} are refused")
    return content


def inside(folder: Path, path: Path) -> Path:
    """The path, which is below the folder by its name; an InputError if a link on its way leads out of the folder."""
    try:
        if path.resolve().is_relative_to(folder.resolve()):
            return path
    except (OSError, RuntimeError, ValueError):
        pass
    raise InputError(f"{path} is a link out of {folder}, and such links are not followed: remove it")
