"""Features that images are compared by: raw pixels, a fixed random net, a classifier of the real labels, VGG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from neurosql.errors import InputError
from neurosql.modality import of_shape

CHUNK = 256
RANDOM_FEATURES = 128
LARGEST_PIXELS = 1024

Features = Callable[[np.ndarray], np.ndarray]
"""Maps images (n, *shape) to features (n, p) float32. An image's features do not depend on the other images."""


def pixels(shape: Sequence[int]) -> Features:
    """The values themselves; images with more than 1,024 values are first averaged over squares."""

    def features(images: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(np.ascontiguousarray(images))
        while x.ndim == 4 and x[0].numel() > LARGEST_PIXELS and min(x.shape[2:]) > 1:
            x = nn.functional.avg_pool2d(x, 2)
        return x.flatten(1).numpy()

    return features


def random_net(shape: Sequence[int], seed: int = 0) -> Features:
    """128 features of a small convolutional net with random weights from that seed: the paper's proxy.

    It has four convolutions of widths 32 to 128, with stride 2 except in the first, ReLU, and the mean over positions.
    Grey images are repeated to three channels, so that one net serves all. Vectors, signals and volumes get two random
    layers.
    """
    random = torch.Generator().manual_seed(seed)
    if of_shape(shape).features == "conv":
        widths = (3, 32, 64, 128, RANDOM_FEATURES)
        convolutions = [_convolution(a, b, random) for a, b in zip(widths, widths[1:])]

        def net(x: Tensor) -> Tensor:
            x = to_colour(x)
            for i, weight in enumerate(convolutions):
                x = torch.relu(nn.functional.conv2d(x, weight, stride=1 if i == 0 else 2, padding=1))
            return x.mean((2, 3))

    else:
        sizes = (int(np.prod(shape)), 256, RANDOM_FEATURES)
        layers = [torch.randn(b, a, generator=random) * (2 / a) ** 0.5 for a, b in zip(sizes, sizes[1:])]
        biases = [0.5 * torch.randn(b, generator=random) for b in sizes[1:]]

        def net(x: Tensor) -> Tensor:
            x = x.flatten(1)
            for weight, bias in zip(layers, biases):
                x = torch.relu(nn.functional.linear(x, weight, bias))
            return x

    return chunked(net)


def chunked(net: Callable[[Tensor], Tensor], size: int = CHUNK) -> Features:
    """A network's features, in chunks of one size, so that an image's features never depend on how many there are."""

    @torch.no_grad()
    def features(images: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
        parts = []
        for i in range(0, len(x), size):
            part = x[i : i + size]
            # A smaller last chunk may take another path through a matrix product, and be rounded differently.
            full = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])]) if len(part) < size else part
            parts.append(net(full)[: len(part)])
        if not parts:
            raise InputError("there are no images to compute features of")
        return torch.cat(parts).numpy()

    return features


def to_colour(x: Tensor) -> Tensor:
    """Grey images repeated to three channels; of more than three channels, the first three."""
    return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x[:, :3] if x.shape[1] >= 3 else x[:, [0, 1, 1]]


def _convolution(inputs: int, outputs: int, random: torch.Generator) -> Tensor:
    return torch.randn(outputs, inputs, 3, 3, generator=random) * (2 / (9 * inputs)) ** 0.5
