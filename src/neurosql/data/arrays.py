"""Arrays in a `.npy` or a `.npz` file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from neurosql.data.imageset import ImageSet, from_array, spread
from neurosql.errors import InputError

IMAGE_KEYS = ("images", "x", "X", "data", "train_images", "x_train", "arr_0")
LABEL_KEYS = ("labels", "y", "target", "train_labels", "y_train", "arr_1")


def recognises(source: str) -> bool:
    return Path(source).suffix.lower() in (".npy", ".npz") and Path(source).is_file()


def read(source: str, limit: int | None = None) -> ImageSet:
    """Images and, in a `.npz`, labels: the first key of `IMAGE_KEYS` and of `LABEL_KEYS` that is there."""
    try:
        loaded = np.load(source, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            images = from_array(loaded, source=source)
            return images.take(spread(len(images), limit))
        with loaded:
            key = next((k for k in IMAGE_KEYS if k in loaded), None)
            if key is None and len(loaded.files) == 1:
                key = loaded.files[0]
            if key is None:
                found = ", ".join(loaded.files) or "nothing"
                raise InputError(f"{source} has no array of images: call one 'images' (found: {found})")
            labels = next((loaded[k] for k in LABEL_KEYS if k in loaded and k != key), None)
            images = from_array(loaded[key], labels, source=source)
            return images.take(spread(len(images), limit))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{source} is not a readable numpy file: {error}") from None
