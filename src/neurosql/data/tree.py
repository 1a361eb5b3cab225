"""What is at a path: a folder, a zip or tar archive read in place, or a single file. Nothing is ever extracted."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from neurosql.errors import InputError

MAX_ENTRIES = 2_000_000
MAX_MEMBER = 2**31
# Pictures and volumes hardly compress: no honest archive reaches a hundredfold.
MAX_RATIO = 100
MAX_SMALL = 2**28
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its name relative to the root, in posix form."""

    name: str
    size: int
    mtime: int
    """Nanoseconds."""

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
        if self.path.is_dir():
            self.kind = "folder"
            found = self._walk()
        elif name.endswith(ARCHIVES):
            self.kind = "zip" if name.endswith(".zip") else "tar"
            found = self._members()
        elif self.path.is_file():
            self.kind = "file"
            status = self.path.stat()
            found = iter([Entry(self.path.name, status.st_size, status.st_mtime_ns)])
        else:
            raise InputError(f"{path} is neither a file nor a folder")
        unique: dict[str, Entry] = {}
        for entry in found:
            if len(unique) >= MAX_ENTRIES:
                raise InputError(f"{path} holds more than {MAX_ENTRIES:,} files")
            unique[entry.name] = entry
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
                raise InputError(f"{entry.name} in {self.path} has {entry.size:,} bytes: more than {limit:,} allowed")
        if self.kind in ("folder", "file"):
            for entry in entries:
                with open(self.location(entry) or self.path, "rb") as file:
                    yield entry, _bounded(file.read(limit + 1), entry, limit)
            return
        try:
            if self.kind == "zip":
                with zipfile.ZipFile(self.path) as archive:
                    for entry in entries:
                        with archive.open(entry.name) as file:
                            yield entry, _bounded(file.read(limit + 1), entry, limit)
                return
            wanted = {entry.name: entry for entry in entries}
            with tarfile.open(self.path) as tar:
                for member in tar:
                    if member.isreg() and (name := _clean(member.name)) in wanted:
                        content = tar.extractfile(member)
                        assert content is not None
                        yield wanted.pop(name), _bounded(content.read(limit + 1), self._by_name[name], limit)
                        if not wanted:
                            return
        except _ARCHIVE_ERRORS as error:
            raise InputError(f"{self.path} can't be read as an archive: {words_of(error)}") from None

    def _walk(self) -> Iterator[Entry]:
        root = self.path.resolve()
        folders = [("", os.fspath(self.path))]
        while folders:
            prefix, folder = folders.pop()
            try:
                with os.scandir(folder) as found:
                    inside = list(found)
            except OSError as error:
                self._leave_out(prefix or folder, f"can't be opened: {error.strerror}")
                continue
            for item in inside:
                if _is_litter(item.name):
                    continue
                name = prefix + item.name
                if item.is_symlink():
                    target = Path(item.path).resolve()
                    if not target.is_relative_to(root):
                        self._leave_out(name, f"is a symbolic link out of {self.path}")
                        continue
                    if target.is_dir():
                        # Its files are found where they really are.
                        continue
                if item.is_dir(follow_symlinks=False):
                    folders.append((f"{name}/", item.path))
                    continue
                try:
                    status = item.stat()
                except OSError as error:
                    self._leave_out(name, f"can't be opened: {error.strerror}")
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield Entry(name, status.st_size, status.st_mtime_ns)

    def _members(self) -> Iterator[Entry]:
        packed = max(self.path.stat().st_size, 1)
        total = 0
        try:
            for name, size, regular, modified in _zip(self.path) if self.kind == "zip" else _tar(self.path):
                total += size
                if total > MAX_RATIO * packed + MAX_SMALL:
                    raise InputError(
                        f"{self.path} unpacks to more than {MAX_RATIO} times its size, as decompression bombs do"
                    )
                clean = _clean(name)
                if name.startswith(("/", "\\")) or ".." in PurePosixPath(clean).parts or ":" in clean.split("/")[0]:
                    self._leave_out(name, f"is a path out of the archive {self.path}")
                elif regular and not any(_is_litter(part) for part in clean.split("/")):
                    yield Entry(clean, size, modified)
        except _ARCHIVE_ERRORS as error:
            raise InputError(f"{self.path} can't be read as an archive: {page(self.path) or words_of(error)}") from None

    def _leave_out(self, name: str, reason: str) -> None:
        self.skipped.append((name, reason))


_ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError),
    *(ValueError, KeyError, UnicodeError, OverflowError),
)


def words_of(error: BaseException) -> str:
    """The message of an exception as part of a sentence, shortened: some libraries quote whole files."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def page(path: Path) -> str | None:
    """A sentence if the file is a web page, which a failed download often leaves under the right name; else None."""
    try:
        with open(path, "rb") as file:
            return page_in(file.read(256))
    except OSError:
        return None


def page_in(start: bytes) -> str | None:
    """The same as `page`, from a file's first bytes."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "it is a web page, so the download failed: fetch it again"
    return None


def _zip(path: Path) -> Iterator[tuple[str, int, bool, int]]:
    modified = path.stat().st_mtime_ns
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.flag_bits & 1:
                raise InputError(f"{path} is encrypted: unpack it first")
            link = stat.S_ISLNK(info.external_attr >> 16)
            yield info.filename, info.file_size, not info.is_dir() and not link, modified


def _tar(path: Path) -> Iterator[tuple[str, int, bool, int]]:
    modified = path.stat().st_mtime_ns
    with tarfile.open(path) as archive:
        for member in archive:
            yield member.name, member.size, member.isreg(), modified
            # Otherwise the archive object keeps every header.
            archive.members = []  # type: ignore[attr-defined]


def _clean(name: str) -> str:
    name = name.replace("\\", "/")
    while name.startswith("./"):
        name = name[2:]
    return name


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _bounded(content: bytes, entry: Entry, limit: int) -> bytes:
    if len(content) > limit:
        raise InputError(f"{entry.name} has more than {limit:,} bytes")
    return content
