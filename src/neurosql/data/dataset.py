"""Data sets defined in Python: any map-style `torch.utils.data.Dataset`."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosql.data import splits
from neurosql.data.imageset import ImageSet, from_array
from neurosql.errors import InputError


def is_dataset(x: Any) -> bool:
    """Whether x has a length and a sample for each index, and is neither an array nor a list."""
    if isinstance(x, (list, tuple, dict, str, np.ndarray, ImageSet)) or hasattr(x, "shape"):
        return False
    return hasattr(x, "__getitem__") and hasattr(x, "__len__")


def from_dataset(dataset: Any, limit: int | None = None, *, seed: int = 0, layout: str | None = None) -> ImageSet:
    """An ImageSet of a dataset whose items are samples, or pairs of a sample and its label.

    Samples are arrays, tensors or Pillow images, all of the same shape. Tensors with three axes are read as (c, h, w),
    as in torch, if the first axis has length 1 or 3. `limit` draws at most this many items, by seed.
    """
    samples: list[np.ndarray] = []
    labels: list[Any] = []
    for number in splits.draw(len(dataset), limit, seed):
        item = dataset[int(number)]
        sample, *rest = item if isinstance(item, (tuple, list)) else (item,)
        array = np.asarray(sample.detach().cpu().numpy() if hasattr(sample, "detach") else sample)
        if samples and array.shape != samples[0].shape:
            raise InputError(
                f"all items must have the same shape: item {number} has {array.shape}, the first one {samples[0].shape}"
            )
        samples.append(array)
        if rest:
            label = rest[0]
            labels.append(label.item() if hasattr(label, "item") else label)
    if not samples:
        raise InputError("the dataset is empty")
    stack = np.stack(samples)
    if layout is None and stack.ndim == 4 and stack.shape[1] in (1, 3) and hasattr(sample, "detach"):
        layout = "nchw"
    return from_array(stack, labels or None, layout=layout, source=type(dataset).__name__)
