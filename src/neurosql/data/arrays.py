"""Arrays in a `.npy` or a `.npz` file."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from neurosql import intake
from neurosql.data import store
from neurosql.data.archive import MAX_SMALL, printable, words_of
from neurosql.data.imageset import guess_layout
from neurosql.data.listing import Arrays
from neurosql.data.tree import Tree, page
from neurosql.errors import InputError
from neurosql.settings import DataSettings

IMAGE_KEYS = ("images", "x", "X", "data", "train_images", "x_train", "arr_0")
LABEL_KEYS = ("labels", "y", "target", "train_labels", "y_train", "arr_1")
SUBJECT_KEYS = ("subjects", "subject", "groups", "patients")
MAX_RATIO = 200
"""How many times its size a `.npz` file may take unpacked, besides `MAX_SMALL`."""


def recognises(tree: Tree) -> bool:
    """Whether it is a numpy file."""
    return tree.kind == "file" and tree.path.suffix.lower() in (".npy", ".npz")


def scan(tree: Tree, settings: DataSettings) -> Arrays:
    """Samples and, from a `.npz`, labels and subjects: of each list above, the first key that the file has."""
    path = tree.path
    if path.suffix.lower() == ".npy":
        on_disk = _npy(path)
        _check(path, on_disk)
        return Arrays(on_disk)
    with npz(path) as stored:
        names = stored.files
        key = next((k for k in IMAGE_KEYS if k in names), names[0] if len(names) == 1 else None)
        if key is None:
            found = printable(", ".join(names[:20])[:200]) or "nothing"
            raise InputError(f"{path} has no array of images: name one 'images' (found: {found})")
        labels = next((array(stored, k) for k in LABEL_KEYS if k in names and k != key), None)
        subjects = next((array(stored, k) for k in SUBJECT_KEYS if k in names and k != key), None)
        values = array(stored, key)
        _check(path, values)
    if subjects is not None and subjects.shape != (len(values),):
        raise InputError(f"{path}: subjects must have shape ({len(values)},), one per sample, got {subjects.shape}")
    return Arrays(values, labels, None if subjects is None else subjects.astype(str))


def _npy(path: Path) -> np.ndarray | store.OnDisk:
    """The array of a `.npy` file: only what is used of it is read, and one that is larger than memory is mapped."""
    with _readable(path), intake.regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"it has format {version[0]}.{version[1]}: 1.0 and 2.0 can be read")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read_header(file)
        if dtype.hasobject or not dtype.itemsize:
            raise ValueError(f"it holds {'Python objects, which are never loaded' if dtype.hasobject else 'nothing'}")
        wanted = math.prod(shape) * dtype.itemsize
        if any(type(side) is not int or side < 0 for side in shape) or file.tell() + wanted > size:
            raise ValueError(f"its header says shape {shape} of {dtype}, but it has {size:,} bytes")
        if wanted > store.room():
            return store.OnDisk(path, shape, dtype, file.tell(), by_columns, mapped=True)
        if by_columns or not shape:
            file.seek(0)
            return np.asarray(np.load(file, allow_pickle=False))
        return store.OnDisk(path, shape, dtype, file.tell())


def _check(path: Path, values: np.ndarray | store.OnDisk) -> None:
    """Refuse an array whose shape is not that of samples."""
    try:
        guess_layout(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def keys(path: Path) -> list[str]:
    """The names of the arrays in a `.npz` file, without reading them; empty if it is not such a file."""
    try:
        with intake.regular(path) as file, zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except Exception:
        # Whoever opens it next says what is wrong.
        return []


def array(stored: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    """An array of a `.npz` file, which may hold other files too; a ValueError if it is none."""
    found = stored[name]
    if not isinstance(found, np.ndarray) or not found.dtype.itemsize:
        # Values of no bytes take no room in the file, however many there are, but time to copy.
        raise ValueError(f"{name} is no array of values")
    return found


@contextmanager
def npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """Open a `.npz` file; one that unpacks to an absurd size is refused."""
    with _readable(path), intake.regular(path) as file:
        with zipfile.ZipFile(file) as archive:
            # Masks and zeros compress well, but not without limit.
            unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > MAX_RATIO * os.fstat(file.fileno()).st_size + MAX_SMALL:
            raise ValueError(f"it unpacks to {unpacked:,} bytes and looks like a decompression bomb")
        if unpacked > (most := store.room()):
            raise ValueError(f"it unpacks to {unpacked:,} bytes, more than {most:,} in memory: save it as .npy")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            yield stored


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # A damaged header makes numpy raise almost anything.
        raise InputError(f"{path} is not a readable numpy file: {page(path) or words_of(error)}") from None
