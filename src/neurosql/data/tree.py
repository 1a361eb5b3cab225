"""What is at a path: a folder, a zip or tar archive read in place, or a single file. Nothing is ever extracted."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path, PurePosixPath
from typing import Any

from neurosql import intake
from neurosql.errors import InputError

MAX_ENTRIES = 2_000_000
"""Most files and folders of a source."""
MAX_MEMBER = 2**31
"""Most bytes of a file that holds many samples."""
MAX_RATIO = 100
"""How many times its size a packed file may take unpacked, besides `MAX_SMALL`: pictures hardly compress."""
MAX_SMALL = 2**28
"""Most bytes of a file that holds one sample, or that is read besides the samples."""
MAX_HEADER = 2**20
"""Most bytes of a header in an archive."""
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
            yield from self._unpacked(entries, limit)
        except _ARCHIVE_ERRORS as error:
            raise InputError(f"{self.path} can't be read as an archive: {words_of(error)}") from None

    def _unpacked(self, entries: list[Entry], limit: int) -> Iterator[tuple[Entry, bytes]]:
        if self.kind == "zip":
            with intake.regular(self.path) as file, zipfile.ZipFile(file) as archive:
                stored = {_clean(name): name for name in archive.namelist()}
                for entry in entries:
                    if entry.name not in stored:
                        raise ValueError(f"{entry.name} is gone: the archive changed while it was read")
                    with archive.open(stored[entry.name]) as member:
                        yield entry, _bounded(member.read(limit + 1), entry, limit)
            return
        wanted = {entry.name: entry for entry in entries}
        with _tar_file(self.path, limit + 1) as tar:
            for info in tar:
                if info.isreg() and (name := _clean(info.name)) in wanted:
                    content = tar.extractfile(info)
                    assert content is not None
                    yield wanted.pop(name), _bounded(content.read(limit + 1), self._by_name[name], limit)
                    if not wanted:
                        return
        raise ValueError(f"{next(iter(wanted))} is gone: the archive changed while it was read")

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
            for name, size, regular in _zip(self.path) if self.kind == "zip" else _tar(self.path):
                total += size
                count += 1
                if count > MAX_ENTRIES:
                    raise InputError(f"{self.path} holds more than {MAX_ENTRIES:,} files and folders")
                if total > MAX_RATIO * packed + MAX_SMALL:
                    raise InputError(
                        f"{self.path} unpacks to more than {MAX_RATIO} times its size, as decompression bombs do"
                    )
                clean = _clean(name)
                if name.startswith(("/", "\\")) or ".." in PurePosixPath(clean).parts or ":" in clean.split("/")[0]:
                    self._leave_out(name, f"is a path out of the archive {self.path}")
                elif regular and not any(_is_litter(part) for part in clean.split("/")):
                    yield Entry(clean, size, status.st_mtime_ns, _mark(status))
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
    return printable(" ".join(str(error).split())[:200]) or type(error).__name__


def printable(text: str) -> str:
    """Text from a stranger's file without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


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


def _zip(path: Path) -> Iterator[tuple[str, int, bool]]:
    with intake.regular(path) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.flag_bits & 1:
                raise InputError(f"{path} is encrypted: unpack it first")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # The others may ask for gigabytes to unpack a few bytes.
                raise InputError(f"{path} is packed in a way that is not read: pack it again, by deflate")
            link = stat.S_ISLNK(info.external_attr >> 16)
            yield info.filename, info.file_size, not info.filename.endswith("/") and not link


def _tar(path: Path) -> Iterator[tuple[str, int, bool]]:
    with _tar_file(path, MAX_HEADER) as archive:
        for member in archive:
            yield member.name, member.size, member.isreg()
            # Otherwise the archive object keeps every header.
            archive.members = []  # type: ignore[attr-defined]


@contextmanager
def _tar_file(path: Path, at_once: int) -> Iterator[tarfile.TarFile]:
    """A tar archive, packed by gzip or not, from which nothing larger than `at_once` is read in one go."""
    with intake.regular(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        most = MAX_RATIO * size + MAX_SMALL
        rationed: Any = _Rationed(GzipFile(fileobj=file) if packed else file, max(at_once, MAX_HEADER), most)
        with tarfile.open(fileobj=rationed, mode="r:") as archive:
            yield archive


class _Rationed:
    """A file that refuses to be read in large pieces, or far beyond its packed size: headers may ask for anything."""

    def __init__(self, file: Any, at_once: int, most: int) -> None:
        self.file, self.at_once, self.most = file, at_once, most

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.at_once:
            raise ValueError(f"a header asks for {size:,} bytes: more than {self.at_once:,} are refused")
        content: bytes = self.file.read(size)
        return content

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        if place > self.most:
            raise ValueError(f"it unpacks to more than {self.most:,} bytes")
        reached: int = self.file.seek(place, whence)
        return reached

    def tell(self) -> int:
        reached: int = self.file.tell()
        return reached

    def close(self) -> None:
        self.file.close()


def _entry(name: str, status: os.stat_result) -> Entry:
    return Entry(name, status.st_size, status.st_mtime_ns, _mark(status))


def _mark(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_ctime_ns}"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or words_of(error)


def _clean(name: str) -> str:
    name = name.replace("\\", "/")
    while name.startswith("./"):
        name = name[2:]
    return name


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _bounded(content: bytes, entry: Entry, limit: int) -> bytes:
    if len(content) > limit:
        raise InputError(f"{printable(entry.name[:100])} has more than {limit:,} bytes: more are refused")
    return content
