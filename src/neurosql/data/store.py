"""Where arrays are kept: the user's cache of decoded files, and scratch files for arrays that do not fit in memory."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from neurosql import intake
from neurosql.errors import InputError

PIXELS = "pixels.npy"
META = "meta.json"
SUM = "sum"
"""The entry of the metadata that holds the checksum of the pixels and of the other entries."""
STALE = 86_400
CHUNK = 2**24
NOWHERE = Path(os.devnull) / "neurosql"
"""Stands for a cache that can't exist, where there is no home folder."""


def cache_folder() -> Path:
    """The folder NEUROSQL_CACHE, or `neurosql` in the platform's folder for caches; `NOWHERE` without a home folder."""
    if own := os.environ.get("NEUROSQL_CACHE"):
        return Path(own)
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return NOWHERE
    return base / "neurosql"


def look_up(key: str, verify: bool = True) -> tuple[np.ndarray, dict[str, Any]] | None:
    """The array stored under a key, memory-mapped, and its metadata; None if it is missing or damaged.

    Only who has just written it need not `verify` its checksum.
    """
    folder = cache_folder() / "decoded" / key
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
        # Copy-on-write: nobody can write to the cache through the array.
        pixels = np.load(folder / PIXELS, mmap_mode="c", allow_pickle=False)
        if list(pixels.shape) != meta["shape"] or pixels.dtype.str != meta["type"]:
            return None
        known = meta.pop(SUM)
        if verify and known != _checksum(folder / PIXELS, meta):
            return None
        return np.asarray(pixels), meta
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None


def _checksum(pixels: Path, meta: dict[str, Any]) -> str:
    """SHA-256 of a file of pixels and its metadata: a bit that flipped on the disk would otherwise be trained on."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    with open(pixels, "rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


class Place:
    """A temporary folder that is renamed when it is complete, so that two processes do not disturb each other.

    `folder` is None if the cache can't be written; `why` then gives the reason.
    """

    def __init__(self, key: str, wanted: bool = True) -> None:
        self.key, self.why = key, ""
        self.folder: Path | None = None
        if not wanted:
            return
        home = cache_folder() / "decoded"
        if home.parent == NOWHERE:
            self.why = "there is no home folder for a cache, so images are decoded each time: set NEUROSQL_CACHE"
            return
        try:
            home.mkdir(parents=True, exist_ok=True)
            _sweep(home)
            self.folder = Path(tempfile.mkdtemp(dir=home, prefix="tmp-"))
        except OSError as error:
            self.why = f"the cache {home} can't be written ({error.strerror}): images will be decoded again next time"

    def keep(self, meta: dict[str, Any]) -> None:
        """Move the folder to its final place, unless another process was first. If that fails, `why` says so."""
        assert self.folder is not None
        try:
            self._move(self.folder, meta)
        except OSError as error:
            # The disk is full, or the folder was swept away: a clock that jumps makes it look old.
            self.why = f"the cache {self.folder.parent} can't be written ({error.strerror})"
            self.drop()

    def _move(self, folder: Path, meta: dict[str, Any]) -> None:
        # As it is read back, with lists in place of tuples.
        meta = json.loads(json.dumps(meta))
        whole = meta | {SUM: _checksum(folder / PIXELS, meta)}
        (folder / META).write_text(json.dumps(whole), encoding="utf-8")
        target = folder.parent / self.key
        try:
            os.rename(folder, target)
        except OSError:
            if look_up(self.key) is None:
                # A damaged one is in the way.
                shutil.rmtree(target, ignore_errors=True)
                try:
                    os.rename(folder, target)
                except OSError as error:
                    self.why = f"the cache {target} can't be written ({error.strerror})"
            self.drop()

    def drop(self) -> None:
        """Remove the temporary folder."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _sweep(home: Path) -> None:
    """Remove what killed processes left behind."""
    for left in home.glob("tmp-*"):
        try:
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue


def mapped(path: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A new `.npy` file as a writable array. Its space is reserved now: a full disk would crash the process later."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        _reserve(file.fileno(), file.tell(), int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    return np.asarray(np.load(path, mmap_mode="r+", allow_pickle=False))


def _reserve(handle: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(handle, start, size)
    else:
        os.truncate(handle, start + size)


def room() -> int:
    """Bytes that one array may take in memory: half of what the machine, or this container, has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = 2**33
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total // 2


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A new array: in memory if there is room, else in a scratch file that disappears with it."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= room():
        return np.empty(shape, dtype)
    try:
        home = cache_folder()
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home, prefix="scratch-") as file:
            _reserve(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=shape))
    except OSError:
        return np.empty(shape, dtype)


class OnDisk:
    """An array in a file, row after row, of which only the rows that are asked for are read.

    It is read, not mapped: a file that somebody cuts off meanwhile would end a process that maps it.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        start: int,
        by_columns: bool = False,
        mapped: bool = False,
    ) -> None:
        self.path, self.shape, self.dtype, self.start = path, shape, dtype, start
        self.by_columns = by_columns
        """Whether the file has column after column instead; such an array must be mapped."""
        self.mapped = mapped
        """Whether it is mapped all the same, because it is larger than memory."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def whole(self) -> np.ndarray:
        """The array, mapped."""
        order: Any = "F" if self.by_columns else "C"
        return np.asarray(np.memmap(self.path, self.dtype, "r", self.start, self.shape, order))

    def rows(self, index: np.ndarray) -> np.ndarray:
        """The rows of these increasing positions; an InputError if the file no longer has them."""
        result = np.empty((len(index), *self.shape[1:]), self.dtype)
        size = self.dtype.itemsize * math.prod(self.shape[1:])
        view = result.reshape(-1).view(np.uint8).data
        # Runs of neighbouring rows are read at once.
        edges = np.flatnonzero(np.diff(index) != 1) + 1
        try:
            with intake.regular(self.path) as file:
                for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(index)]):
                    file.seek(self.start + int(index[first]) * size if first < last else 0)
                    if not _fill(file, view[first * size : last * size]):
                        raise InputError(f"{self.path} was cut off while it was read: read it again")
        except OSError as error:
            raise InputError(f"{self.path} can't be read: {error.strerror}") from None
        return result


def _fill(file: BinaryIO, view: memoryview) -> bool:
    """Fill a piece of memory from a file; False if the file ends before."""
    filled = 0
    while filled < len(view):
        got = file.readinto(view[filled : filled + CHUNK])  # type: ignore[attr-defined]
        if not got:
            return False
        filled += got
    return True


def gather(values: np.ndarray | OnDisk, index: np.ndarray) -> np.ndarray:
    """values[index]: without a copy if the index is a range; a copy that does not fit in memory is mapped."""
    if isinstance(values, OnDisk):
        if not values.mapped:
            return values.rows(index)
        values = values.whole()
    n = len(index)
    if n and index[0] >= 0 and index[-1] - index[0] == n - 1 and (np.diff(index) == 1).all():
        return values[index[0] : index[0] + n]
    result = empty((n, *values.shape[1:]), values.dtype)
    for rows in pieces(n, result.itemsize * int(np.prod(values.shape[1:]))):
        result[rows] = values[index[rows]]
    return result


def as_float(values: np.ndarray) -> np.ndarray:
    """uint8 pixels as float32 in [0, 1]."""
    result = empty(values.shape, np.float32)
    for rows in pieces(len(values), 4 * int(np.prod(values.shape[1:]))):
        np.divide(values[rows], np.float32(255), out=result[rows], dtype=np.float32)
    return result


def pieces(n: int, size: int) -> list[slice]:
    """Slices that cover n rows of `size` bytes each, a few megabytes at a time."""
    step = max(1, CHUNK // max(1, size))
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]
