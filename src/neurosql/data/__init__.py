"""Readers for what people have on disk. `load` finds the one that fits; each reader is a file of its own."""

from __future__ import annotations

from pathlib import Path

from neurosql.data import arrays, folder, mnist_sample
from neurosql.data.imageset import LAYOUTS, ImageSet, from_array
from neurosql.errors import InputError

__all__ = ["LAYOUTS", "ImageSet", "from_array", "load"]

# A reader has `recognises(source) -> bool` and `read(source, limit) -> ImageSet`; the first that recognises one reads.
READERS = (mnist_sample, arrays, folder)


def load(source: str | Path, limit: int | None = None) -> ImageSet:
    """Read `mnist-sample`, a folder of images, a `.npy` or a `.npz` file; `limit` keeps at most so many samples."""
    source = str(source)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    for reader in READERS:
        if reader.recognises(source):
            images = reader.read(source, limit)
            if len(images) < 2:
                raise InputError(f"{source} holds {len(images)} image(s): at least 2 are needed")
            return images
    if not Path(source).exists():
        raise InputError(f"no such data: {source!r} is neither mnist-sample nor an existing file or folder")
    raise InputError(f"can't read {source!r}: give mnist-sample, a folder of images, a .npy or a .npz file")
