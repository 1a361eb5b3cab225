"""Samples as callers have them, brought to one array: arrays, tensors, Pillow images, lists of these; and their range.

Values out of range are refused by name, never clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from neurosql.errors import InputError

SLACK = 1e-6
"""How far from [0, 1] the rounding of whoever scaled the pixels may have put them."""
BYTE = 255


def to_array(x: Any) -> np.ndarray:
    """A numpy array, a torch tensor, a Pillow image (a set of one), or a list of these, as a numpy array."""
    if isinstance(x, Image.Image):
        return picture(x)[None]
    if isinstance(x, (list, tuple)) and any(
        isinstance(item, (Image.Image, np.ndarray)) or _is_tensor(item) for item in x
    ):
        return stacked([sample_array(item) for item in x])
    array = sample_array(x)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: give real numbers")
    return array


def sample_array(x: Any) -> np.ndarray:
    """One sample, or anything that numpy knows, as an array: an image (h, w) or (h, w, c), a tensor as it is."""
    if isinstance(x, Image.Image):
        return picture(x)
    if _is_tensor(x):
        x = x.detach().cpu()
        # numpy has no bfloat16.
        return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    try:
        return np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise InputError("samples must all have the same shape: these rows differ in length") from None


def stacked(samples: Sequence[np.ndarray], what: str = "sample") -> np.ndarray:
    """Samples of one shape as one array (n, ...). Bytes among floats become floats in [0, 1]; grey becomes colour
    among colour images."""
    if not samples:
        raise InputError("there are no samples: give at least 1")
    if {sample.ndim for sample in samples} == {2, 3} and all(s.shape[2] == 3 for s in samples if s.ndim == 3):
        samples = [np.repeat(s[..., None], 3, -1) if s.ndim == 2 else s for s in samples]
    for number, sample in enumerate(samples):
        if sample.shape != samples[0].shape:
            raise InputError(
                f"all samples must have the same shape: {what} {number} has {sample.shape}, "
                f"the first one {samples[0].shape}. Bring them to one size first"
            )
    if len({sample.dtype == np.uint8 for sample in samples}) == 2 and samples[0].ndim > 1:
        samples = [s.astype(np.float32) / np.float32(BYTE) if s.dtype == np.uint8 else s for s in samples]
    return np.stack(samples)


def picture(image: Image.Image) -> np.ndarray:
    """A Pillow image as uint8: (h, w) if its mode is grey, else (h, w, 3)."""
    from neurosql.data.picture import plain

    try:
        return np.asarray(plain(image))
    except ValueError as error:
        raise InputError(f"an image of mode {image.mode!r} can't be used: {error}") from None


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "detach") and hasattr(x, "cpu")


def numbers(array: np.ndarray) -> np.ndarray:
    """Numbers of any type, or words that are numbers, as float64."""
    if array.dtype.kind in "mMV":
        raise InputError(f"values must be numbers, got {array.dtype}")
    try:
        # Longer numbers than float64 may be too large for it: they become infinite, and `finite` says so.
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"values must be numbers: {error}") from None


def finite(values: np.ndarray, what: str, start: int = 0) -> np.ndarray:
    """The same values; an InputError if one is not a number or infinite. `start` is the number of the first sample."""
    good = np.isfinite(values)
    if not good.all():
        where = start + int(np.argwhere(~good)[0][0])
        kind = "NaN" if np.isnan(values[~good]).any() else "infinity"
        raise InputError(f"{what} must be finite, got {kind} in sample {where}")
    return values


def top_of(array: np.ndarray) -> int:
    """What white is in pixels of this type: 255 for bytes and for other whole numbers above 1, otherwise 1."""
    if array.dtype == np.uint8:
        return BYTE
    return BYTE if array.dtype.kind in "iu" and array.size and array.max() > 1 else 1


def as_pixels(array: np.ndarray, top: int, start: int = 0) -> np.ndarray:
    """Pixels from 0 to `top` as float32 in [0, 1]; `start` is the number of the first sample."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"pixels must be uint8 or float, got {array.dtype}")
    if array.dtype == np.uint8:
        return array.astype(np.float32) / np.float32(BYTE)
    with np.errstate(over="ignore"):
        values = finite(array, "pixels", start).astype(np.float32, copy=False)
    if not values.size:
        return values
    low, high = float(values.min()), float(values.max())
    if low < -SLACK or high > top + SLACK:
        outside = np.unravel_index(int((np.abs(values - top / 2)).argmax()), values.shape)
        place = ", ".join(map(str, map(int, outside[1:])))
        kind = "whole numbers from 0 to 255" if top == BYTE else "in [0, 1] (or be uint8)"
        raise InputError(
            f"pixels must {'be' if top == BYTE else 'lie'} {kind}, got values from {low:g} to {high:g}: "
            f"{values[outside]:g} in sample {start + int(outside[0])} at ({place}). Rescale them first"
        )
    if low < 0 or high > top:
        values = values.clip(0, top)
    return values if top == 1 else values / np.float32(top)


def like_samples(x: Any, shape: tuple[int, ...], bounded: bool) -> np.ndarray:
    """Samples for a model as float32 (n, *shape), `shape` with its channels first; theirs may come last, or be left
    out if there is one. Where `bounded`, they are pixels; otherwise they are in the model's own units."""
    array = to_array(x)
    if array.shape[1:] != shape:
        moved = None
        if array.ndim == len(shape) and shape[0] == 1:
            moved = array[:, None]
        elif array.ndim == len(shape) + 1 and array.ndim > 2:
            moved = np.moveaxis(array, -1, 1)
        if moved is None or moved.shape[1:] != shape:
            raise InputError(f"samples must have shape (n, {', '.join(map(str, shape))}), got {array.shape}")
        array = moved
    if bounded:
        return np.ascontiguousarray(as_pixels(array, top_of(array)))
    return np.ascontiguousarray(finite(numbers(array), "values"), dtype=np.float32)


def to_pictures(x: np.ndarray) -> list[Image.Image]:
    """Images (n, 1, h, w) or (n, 3, h, w) in [0, 1] as Pillow images, grey or in colour."""
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise InputError(f"only grey and colour images can be Pillow images, got samples of shape {x.shape[1:]}")
    bytes_ = (x.clip(0, 1) * BYTE).round().astype(np.uint8)
    return [Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)) for image in bytes_]
