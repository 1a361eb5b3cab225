"""A folder of images, plain or with a folder a class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from neurosql.data.imageset import ImageSet, from_array, spread
from neurosql.errors import InputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".pgm", ".ppm"})


def recognises(source: str) -> bool:
    return Path(source).is_dir()


def read(source: str, limit: int | None = None) -> ImageSet:
    """All images below the folder in the order of their paths. Subfolders, where there are any, are the classes."""
    root = Path(source)
    paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise InputError(f"no images in {source!r}: looked for {', '.join(sorted(SUFFIXES))}")
    paths = [paths[i] for i in spread(len(paths), limit)]
    pictures = [_open(path) for path in tqdm(paths, desc="reading", unit="image", leave=False, disable=None)]
    sizes = Counter(picture.shape[:2] for picture in pictures)
    if len(sizes) > 1:
        found = ", ".join(f"{h} x {w} ({count})" for (h, w), count in sizes.most_common(3))
        usual = sizes.most_common(1)[0][0]
        odd = next(path for path, picture in zip(paths, pictures) if picture.shape[:2] != usual)
        raise InputError(
            f"images in {source!r} have {len(sizes)} sizes: {found}, the first odd one is {odd.name}: "
            "resize them to one size"
        )
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [p if p.ndim == 3 else np.repeat(p[..., None], 3, axis=2) for p in pictures]
    folders = [path.parent.relative_to(root).as_posix() for path in paths]
    labels = folders if len(set(folders)) > 1 and "." not in folders else None
    stack = np.stack(pictures)
    return from_array(stack, labels, layout="nhw" if stack.ndim == 3 else "nhwc", source=source)


def _open(path: Path) -> np.ndarray:
    """One picture as uint8, (h, w) where it is grey and (h, w, 3) otherwise."""
    try:
        with Image.open(path) as picture:
            if picture.mode in ("1", "L"):
                return np.asarray(picture.convert("L"))
            if picture.mode.startswith("I"):
                # Sixteen bits: Pillow's own conversion would cut the values off at 255.
                return (np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8)
            if picture.mode == "F":
                raise ValueError("its pixels are floating-point numbers, save them as .npy instead")
            colour = np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} can't be read as an image: {error}") from None
    # Grey pictures are often saved as colour: one channel says the same.
    if (colour[..., 0] == colour[..., 1]).all() and (colour[..., 0] == colour[..., 2]).all():
        return colour[..., 0]
    return colour
