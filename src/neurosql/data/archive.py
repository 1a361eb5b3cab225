"""What is in a zip or tar archive. Archives come from strangers: this runs in a process of its own, see apart.py."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import Any

from neurosql import intake
from neurosql.errors import InputError

MAX_RATIO = 100
"""How many times its size a packed file may take unpacked, besides `MAX_SMALL`: pictures hardly compress."""
MAX_SMALL = 2**28
"""Most bytes of a file that holds one sample, or that is read besides the samples."""
MAX_HEADER = 2**20
"""Most bytes of a header in an archive."""
ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError),
    *(ValueError, KeyError, UnicodeError, OverflowError),
)


def members(path: Path, kind: str) -> Iterator[tuple[str, int, bool]]:
    """The name and the size of each member, and whether it is a file. Raises an InputError, or one of `ERRORS`."""
    return _zip(path) if kind == "zip" else _tar(path)


def contents(path: Path, kind: str, names: list[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """Members of at most `limit` bytes by their cleaned names; those of a tar archive in its own order, so that it is
    read only once."""
    if kind == "zip":
        with intake.regular(path) as file, zipfile.ZipFile(file) as archive:
            stored = {cleaned(name): name for name in archive.namelist()}
            for name in names:
                if name not in stored:
                    raise ValueError(f"{name} is gone: the archive changed while it was read")
                with archive.open(stored[name]) as member:
                    yield name, _bounded(member.read(limit + 1), name, limit)
        return
    wanted = set(names)
    with _tar_file(path, limit + 1) as tar:
        for info in tar:
            if info.isreg() and (name := cleaned(info.name)) in wanted:
                content = tar.extractfile(info)
                assert content is not None
                wanted.remove(name)
                yield name, _bounded(content.read(limit + 1), name, limit)
                if not wanted:
                    return
    raise ValueError(f"{min(wanted)} is gone: the archive changed while it was read")


def cleaned(name: str) -> str:
    """The name of a member in posix form, without dots in front."""
    name = name.replace("\\", "/")
    while name.startswith("./"):
        name = name[2:]
    return name


def words_of(error: BaseException) -> str:
    """The message of an exception as part of a sentence, shortened: some libraries quote whole files."""
    return printable(" ".join(str(error).split())[:200]) or type(error).__name__


def printable(text: str) -> str:
    """Text from a stranger's file without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


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


def _bounded(content: bytes, name: str, limit: int) -> bytes:
    if len(content) > limit:
        raise InputError(f"{printable(name[:100])} has more than {limit:,} bytes: more are refused")
    return content
