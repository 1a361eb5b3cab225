"""Arrays in a `.npy` or a `.npz` file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from neurosql.data.imageset import guess_layout
from neurosql.data.listing import Arrays
from neurosql.data.tree import MAX_SMALL, Tree, page, words_of
from neurosql.errors import InputError
from neurosql.settings import DataSettings

IMAGE_KEYS = ("images", "x", "X", "data", "train_images", "x_train", "arr_0")
LABEL_KEYS = ("labels", "y", "target", "train_labels", "y_train", "arr_1")
SUBJECT_KEYS = ("subjects", "subject", "groups", "patients")
MAX_RATIO = 200


def recognises(tree: Tree) -> bool:
    """Whether it is a numpy file."""
    return tree.kind == "file" and tree.path.suffix.lower() in (".npy", ".npz")


def scan(tree: Tree, settings: DataSettings) -> Arrays:
    """Samples and, from a `.npz`, labels and subjects: of each list above, the first key that the file has."""
    path = tree.path
    if path.suffix.lower() == ".npy":
        with _readable(path):
            # Memory-mapped: only what is used is read, and an array larger than memory stays on disk.
            values = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        return Arrays(_samples(path, values))
    with npz(path) as stored:
        names = stored.files
        key = next((k for k in IMAGE_KEYS if k in names), names[0] if len(names) == 1 else None)
        if key is None:
            found = ", ".join(names[:20]) or "nothing"
            raise InputError(f"{path} has no array of images: name one 'images' (found: {found})")
        labels = next((stored[k] for k in LABEL_KEYS if k in names and k != key), None)
        subjects = next((stored[k] for k in SUBJECT_KEYS if k in names and k != key), None)
        values = _samples(path, stored[key])
    if subjects is not None and subjects.shape != (len(values),):
        raise InputError(f"{path}: subjects must have shape ({len(values)},), one per sample, got {subjects.shape}")
    return Arrays(values, labels, None if subjects is None else subjects.astype(str))


def _samples(path: Path, values: np.ndarray) -> np.ndarray:
    try:
        guess_layout(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return values


def keys(path: Path) -> list[str]:
    """The names of the arrays in a `.npz` file, without reading them; empty if it is not such a file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return []


@contextmanager
def npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """Open a `.npz` file; one that unpacks to an absurd size is refused."""
    with _readable(path):
        with zipfile.ZipFile(path) as archive:
            # Masks and zeros compress well, but not without limit.
            unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > MAX_RATIO * path.stat().st_size + MAX_SMALL:
            raise ValueError(f"it unpacks to {unpacked:,} bytes and looks like a decompression bomb")
        with np.load(path, allow_pickle=False) as stored:
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
