"""Data sets defined in Python: a `torch.utils.data.Dataset`, a `DataLoader`, or anything with a length and items."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from neurosql.data import splits
from neurosql.data.given import sample_array, stacked, to_array
from neurosql.data.imageset import ImageSet, from_array
from neurosql.errors import InputError

SAMPLE_KEYS = ("image", "images", "img", "pixel_values", "x", "X", "data", "input", "features")
LABEL_KEYS = ("label", "labels", "y", "target", "targets", "class")
"""Names that the entries of an item may have, if it is a dictionary; of each list, the first that it has."""


def is_dataset(x: Any) -> bool:
    """Whether x has a length and a sample for each index, and is neither an array nor a list; or is a DataLoader."""
    if isinstance(x, (list, tuple, dict, str, np.ndarray, ImageSet, Image.Image)) or hasattr(x, "shape"):
        return False
    return is_loader(x) or (hasattr(x, "__getitem__") and hasattr(x, "__len__"))


def is_loader(x: Any) -> bool:
    """Whether x is a torch DataLoader."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.utils.data.DataLoader)


def from_dataset(dataset: Any, limit: int | None = None, *, seed: int = 0, layout: str | None = None) -> ImageSet:
    """An ImageSet of a dataset whose items are samples, pairs of a sample and its label, or dictionaries with both.

    Samples are arrays, tensors or Pillow images, all of the same shape. Tensors with three axes are read as (c, h, w),
    as in torch, if the first axis has length 1 or 3. `limit` draws at most this many items, by seed.

    A DataLoader that goes through its dataset once, shuffled or not, stands for that dataset, in the dataset's order.
    Any other one, with a sampler or a collate function of its own, is asked for one round of batches.
    """
    if is_loader(dataset) and not _is_plain(dataset):
        return _from_batches(dataset, limit, seed, layout)
    if is_loader(dataset):
        dataset = dataset.dataset
    samples: list[np.ndarray] = []
    labels: list[Any] = []
    for number in splits.draw(len(dataset), limit, seed):
        sample, label = _parts(dataset[int(number)])
        samples.append(sample_array(sample))
        labels += [] if label is None else [label.item() if hasattr(label, "item") else label]
    if not samples:
        raise InputError("the dataset is empty")
    stack = stacked(samples, "item")
    return from_array(
        stack, labels or None, layout=layout or _as_in_torch(stack, sample), source=type(dataset).__name__
    )


def _is_plain(loader: Any) -> bool:
    """Whether a loader goes through a dataset with items once, and does nothing of its own to them."""
    from torch.utils.data import RandomSampler, SequentialSampler, default_collate

    sampler, dataset = loader.sampler, loader.dataset
    if loader.collate_fn is not default_collate or not hasattr(dataset, "__len__"):
        return False
    shuffles = isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(dataset)
    return type(sampler) is SequentialSampler or shuffles


def _from_batches(loader: Any, limit: int | None, seed: int, layout: str | None) -> ImageSet:
    samples: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for batch in loader:
        sample, label = _parts(batch)
        samples.append(to_array(sample))
        labels += [] if label is None else [np.atleast_1d(to_array(label))]
    if not samples:
        raise InputError("the loader has no batches")
    stack = np.concatenate(samples)
    chosen = splits.draw(len(stack), limit, seed)
    named = np.concatenate(labels)[chosen] if labels else None
    return from_array(
        stack[chosen], named, layout=layout or _as_in_torch(stack, sample), source=type(loader.dataset).__name__
    )


def _parts(item: Any) -> tuple[Any, Any]:
    """The sample and the label, if any, of an item or of a batch."""
    if isinstance(item, Mapping):
        key = next((k for k in SAMPLE_KEYS if k in item), None)
        if key is None:
            raise InputError(
                f"can't tell which entry is the sample: name it 'image' (found: {', '.join(map(str, item))})"
            )
        return item[key], next((item[k] for k in LABEL_KEYS if k in item), None)
    if isinstance(item, (tuple, list)):
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _as_in_torch(stack: np.ndarray, sample: Any) -> str | None:
    """Channels first, if samples are tensors whose first axis can be the channels."""
    return "nchw" if stack.ndim == 4 and stack.shape[1] in (1, 3) and hasattr(sample, "detach") else None
