"""The training images as a tensor, or as what stands in for one.

Images may stay where they were read, in memory or in a mapped file, until some of them are asked for.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from neurosql.data import ImageSet
from neurosql.pixels import Pixels
from neurosql.settings import QuantileSettings

FLOAT = 4
STREAMED = 2**30
"""Bytes of images as 32-bit numbers, above which they stay bytes and are converted batch by batch."""


class Held:
    """Rows of an array of images, which look like a tensor (n, ...) on a device to whoever asks for some of them.

    A rank has its part of each batch: no more than that is ever copied, or moved to the device.
    """

    def __init__(self, array: np.ndarray, index: np.ndarray, device: torch.device) -> None:
        self.array, self.index, self.device = array, index, device
        self.shape = torch.Size((len(index), *array.shape[1:]))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> Tensor:
        chosen = self.index[rows.cpu().numpy() if isinstance(rows, Tensor) else rows]
        return torch.from_numpy(np.ascontiguousarray(self.array[chosen])).to(self.device)


def tensors(images: ImageSet, index: np.ndarray, device: torch.device, own: Any = None) -> tuple[Tensor, Tensor | None]:
    """Samples and labels; many images of bytes stay what they are, if the method's `own` settings allow it."""
    found = labels(images, index, device)
    whole = len(index) == len(images)
    size = FLOAT * len(index) * math.prod(images.shape)
    streams = isinstance(own, QuantileSettings) and own.streams and device.type == "cpu"
    if streams and images.pixels.dtype == np.uint8 and size > STREAMED:
        # It does what the loop and the method ask of a tensor.
        return cast(Tensor, Pixels(images.pixels, None if whole else index)), found
    # If all are wanted, nothing is copied: a memory-mapped array stays in its file.
    return torch.from_numpy(images.x if whole else images.x[index]).to(device), found


def for_a_rank(x: Tensor, images: ImageSet, index: np.ndarray) -> Tensor:
    """The images `index` for a rank that has a part of each batch, in place of all of them, x (n, ...)."""
    return x if isinstance(x, Pixels) else cast(Tensor, Held(images.x, index, x.device))


def labels(images: ImageSet, index: np.ndarray, device: torch.device) -> Tensor | None:
    """The labels (m,) of the images `index`, if there are any."""
    return None if images.labels is None else torch.from_numpy(images.labels[index]).to(device)
