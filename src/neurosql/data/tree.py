"""What is at a path: a folder, a zip or tar archive read in place, or a single file. Nothing is ever extracted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from neurosql import intake
from neurosql.data import apart, archive
from neurosql.data.archive import MAX_RATIO, MAX_SMALL, printable, words_of
from neurosql.errors import InputError

MAX_ENTRIES = 2_000_000
"""Most files and folders of a source."""
MAX_MEMBER = 2**31
"""Most bytes of a file that holds many samples."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its name relative to the root, in posix form."""

    name: str
    size: int
    mtime: int
    """Nanoseconds."""
    mark: str = ""
    """What else changes with the file, on this disk: its inode, and when it was last changed in any way."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders in the name, then the file's own name."""
        return tuple(self.name.split("/"))

    @property
    def base(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without folders and suffix."""
        return self.base.rpartition(".")[0] or self.base

    def has_suffix(self, *suffixes: str) -> bool:
        """Whether the name ends in one of these, in any case."""
        return self.name.lower().endswith(suffixes)


class Tree:
    """Files under a root, in the order of their names. Hidden files and the litter of macOS archives are left out."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.skipped: list[tuple[str, str]] = []
        """Files and folders that are not opened, with the reason; who reads the tree decides what becomes of them."""
        name = self.path.name.lower()
        try:
            status = self.path.stat()
        except (OSError, ValueError) as error:
            raise InputError(f"{path} can't be opened: {_reason(error)}") from None
        if stat.S_ISDIR(status.st_mode):
            self.kind = "folder"
            found = self._walk()
        elif words := intake.odd(status.st_mode):
            raise InputError(f"{path} is {words}: give a file or a folder")
        elif name.endswith(ARCHIVES):
            self.kind = "zip" if name.endswith(".zip") else "tar"
            found = self._members()
        else:
            self.kind = "file"
            found = iter([_entry(self.path.name, status)])
        unique = {entry.name: entry for entry in found}
        self.entries = [unique[name] for name in sorted(unique)]
        self._by_name = unique

    def matching(self, *suffixes: str) -> list[Entry]:
        """The files whose names end in one of these suffixes, in upper or lower case."""
        return [entry for entry in self.entries if entry.has_suffix(*suffixes)]

    def location(self, entry: Entry) -> Path | None:
        """The path of the file on disk; None inside an archive."""
        if self.kind == "file":
            return self.path
        return self.path / entry.name if self.kind == "folder" else None

    def read(self, entry: Entry, limit: int = MAX_SMALL) -> bytes:
        """The whole content of a file that must not be larger than `limit` bytes."""
        return next(self.stream([entry], limit))[1]

    def stream(self, entries: Iterable[Entry], limit: int = MAX_SMALL) -> Iterator[tuple[Entry, bytes]]:
        """Contents, one after the other; those of a tar archive in its own order, so that it is read only once."""
        entries = list(entries)
        for entry in entries:
            if entry.size > limit:
                name = printable(entry.name[:100])
                raise InputError(f"{name} in {self.path} has {entry.size:,} bytes: more than {limit:,} are refused")
        if self.kind in ("folder", "file"):
            for entry in entries:
                yield entry, intake.read(self.location(entry) or self.path, limit)
            return
        try:
            for name, content in apart.contents(self.path, self.kind, [entry.name for entry in entries], limit):
                yield self._by_name[name], content
        except archive.ERRORS as error:
            raise InputError(f"{self.path} can't be read as an archive: {words_of(error)}") from None

    def _walk(self) -> Iterator[Entry]:
        root = self.path.resolve()
        folders = [("", os.fspath(self.path))]
        seen = 0
        while folders:
            prefix, folder = folders.pop()
            try:
                with os.scandir(folder) as found:
                    for item in found:
                        seen += 1
                        if seen > MAX_ENTRIES:
                            raise InputError(f"{self.path} holds more than {MAX_ENTRIES:,} files and folders")
                        if _is_litter(item.name):
                            continue
                        name = prefix + item.name
                        if item.is_dir(follow_symlinks=False):
                            folders.append((f"{name}/", item.path))
                        elif entry := self._file(name, item, root):
                            yield entry
            except OSError as error:
                if not prefix:
                    raise InputError(f"{self.path} can't be opened: {_reason(error)}") from None
                self._leave_out(prefix or folder, f"can't be opened: {_reason(error)}")

    def _file(self, name: str, item: os.DirEntry[str], root: Path) -> Entry | None:
        """A regular file of a folder, or a link to one below the root; None if it is left out."""
        try:
            if item.is_symlink():
                target = Path(item.path).resolve()
                if not target.is_relative_to(root):
                    self._leave_out(name, f"is a symbolic link out of {self.path}")
                    return None
                if target.is_dir():
                    # Its files are found where they really are.
                    return None
            status = item.stat()
        except (OSError, RuntimeError) as error:
            self._leave_out(name, f"can't be opened: {_reason(error)}")
            return None
        return _entry(name, status) if stat.S_ISREG(status.st_mode) else None

    def _members(self) -> Iterator[Entry]:
        status = self.path.stat()
        packed = max(status.st_size, 1)
        total = count = 0
        try:
            for name, size, regular in apart.members(self.path, self.kind):
                total += size
                count += 1
                if count > MAX_ENTRIES:
                    raise InputError(f"{self.path} holds more than {MAX_ENTRIES:,} files and folders")
                if total > MAX_RATIO * packed + MAX_SMALL:
                    raise InputError(
                        f"{self.path} unpacks to more than {MAX_RATIO} times its size, as decompression bombs do"
                    )
                clean = archive.cleaned(name)
                if name.startswith(("/", "\\")) or ".." in PurePosixPath(clean).parts or ":" in clean.split("/")[0]:
                    self._leave_out(name, f"is a path out of the archive {self.path}")
                elif regular and not any(_is_litter(part) for part in clean.split("/")):
                    yield Entry(clean, size, status.st_mtime_ns, _mark(status))
        except archive.ERRORS as error:
            raise InputError(f"{self.path} can't be read as an archive: {page(self.path) or words_of(error)}") from None

    def _leave_out(self, name: str, reason: str) -> None:
        self.skipped.append((name, reason))


def page(path: Path) -> str | None:
    """A sentence if the file is a web page, which a failed download often leaves under the right name; else None."""
    try:
        with intake.regular(path) as file:
            return page_in(file.read(256))
    except (OSError, InputError):
        return None


def page_in(start: bytes) -> str | None:
    """The same as `page`, from a file's first bytes."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "it is a web page, so the download failed: fetch it again"
    return None


def _entry(name: str, status: os.stat_result) -> Entry:
    return Entry(name, status.st_size, status.st_mtime_ns, _mark(status))


def _mark(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_ctime_ns}"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or words_of(error)


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
