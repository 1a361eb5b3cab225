r"""Discriminators D(x, y) -> logit, one for images and one for everything else, with weights drawn from a seed.

Both compute features f(x) and read the logit from them; if there are classes, the label y enters by projection:

    D(x, y) = <w, f(x)> + b + <e_y, f(x)>

so that a class-conditional discriminator compares the features with what they should be in that class. Before the
last hidden layer, one feature says how varied the batch is: the standard deviation of each hidden value over the
batch, averaged over all values. A batch must therefore be all real or all generated. Nothing else depends on the other
samples of a batch: there is no batch norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, leaky_relu, pad

from neurosql import modality, networks
from neurosql.errors import InputError
from neurosql.joint import moments
from neurosql.ranks import here

SLOPE = 0.2
LAYERS = 4
GRID = 4


class Discriminator(nn.Module):
    """What both share: the logit from features f(x), (n, features), and the label's projection."""

    layers: nn.ModuleList

    def __init__(self, shape: Sequence[int], features: int, classes: int | None, bounded: bool) -> None:
        super().__init__()
        self.shape, self.classes, self.bounded = tuple(shape), classes, bounded
        self.head = nn.Linear(features, 1)
        self.embedding = None if classes is None else nn.Embedding(classes, features)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Logits (n,) of samples x (n, *shape) and, in the class-conditional case, their labels (n,)."""
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"samples must have shape {self.shape}, got {tuple(x.shape[1:])}")
        if (label is None) != (self.embedding is None):
            raise InputError("a discriminator takes labels if, and only if, it was made with classes")
        features = self.features(2 * x - 1 if self.bounded else x)
        logit = self.head(features).squeeze(1)
        return logit if self.embedding is None else logit + (self.embedding(label) * features).sum(1)

    def features(self, x: Tensor) -> Tensor:
        """f(x), (n, features), of centred samples."""
        raise NotImplementedError


class ConvDiscriminator(Discriminator):
    """Four 4x4 convolutions of stride 2 with LeakyReLU and widths w, 2w, 4w and 8w.

    Each halves the grid, rounding up, so that images may have any size; a grid above 4x4 at the end is pooled to 4x4.
    """

    def __init__(self, shape: Sequence[int], width: int, classes: int | None = None, bounded: bool = True) -> None:
        channels, *sides = shape
        widths = [width << i for i in range(LAYERS)]
        grid = math.prod(min(GRID, -(-side // 2**LAYERS)) for side in sides)
        super().__init__(shape, widths[-1] * grid, classes, bounded)
        inputs = [channels, *widths[:-2], widths[-2] + 1]
        self.layers = nn.ModuleList(nn.Conv2d(i, o, kernel_size=4, stride=2) for i, o in zip(inputs, widths))

    def features(self, x: Tensor) -> Tensor:
        *first, last = self.layers
        h = x.contiguous(memory_format=torch.channels_last)
        for layer in first:
            h = leaky_relu(layer(_even(h)), SLOPE)
        h = torch.cat([h, variety(h).expand(len(h), 1, *h.shape[2:])], 1)
        h = leaky_relu(last(_even(h)), SLOPE)
        rows, columns = h.shape[2:]
        return adaptive_avg_pool2d(h, (min(GRID, rows), min(GRID, columns))).flatten(1)


class MLPDiscriminator(Discriminator):
    """Three hidden layers of one width with LeakyReLU, for samples of any shape."""

    def __init__(self, shape: Sequence[int], width: int, classes: int | None = None, bounded: bool = True) -> None:
        super().__init__(shape, width, classes, bounded)
        inputs = [math.prod(shape), width, width + 1]
        self.layers = nn.ModuleList(nn.Linear(i, width) for i in inputs)

    def features(self, x: Tensor) -> Tensor:
        *first, last = self.layers
        h = x.flatten(1)
        for layer in first:
            h = leaky_relu(layer(h), SLOPE)
        return leaky_relu(last(torch.cat([h, variety(h).expand(len(h), 1)], 1)), SLOPE)


def variety(h: Tensor) -> Tensor:
    """The standard deviation of each value of h (n, ...) over the joint batch, averaged: a number, 0 for one sample."""
    variance = moments(h, [0])[1].to(h) if here().several else h.var(0, correction=0)
    # The root has no derivative at 0.
    return (variance + 1e-8).sqrt().mean()


def _even(h: Tensor) -> Tensor:
    """h (n, c, h, w) with the margin that makes a 4x4 convolution of stride 2 halve each side, rounding up."""
    rows, columns = h.shape[2:]
    return pad(h, (1, 1 + columns % 2, 1, 1 + rows % 2))


KINDS: dict[str, tuple[type[ConvDiscriminator | MLPDiscriminator], int]] = {
    "conv": (ConvDiscriminator, 8),
    "mlp": (MLPDiscriminator, 32),
}
"""The discriminators by name, each with its smallest width."""


def make(
    shape: Sequence[int], *, parameters: int, classes: int | None = None, bounded: bool = True, seed: int = 0
) -> Discriminator:
    """The discriminator for samples of this shape, with about this many parameters, on the CPU."""
    kind, least = KINDS[modality.of_shape(shape).discriminator]

    def build(width: int) -> Discriminator:
        return kind(shape, width, classes, bounded)

    width = networks.width_near(build, parameters, least=least)
    state = np.random.SeedSequence([seed, *b"discriminator"]).generate_state(1, np.uint64)[0]
    return networks.made(lambda: build(width), fill, int(state) >> 1)


def fill(network: Discriminator, random: torch.Generator) -> None:
    """Initial weights: layers N(0, 2 / ((1 + slope^2) fan_in)), head and labels N(0, 1 / features), biases 0."""
    for layer in network.layers:
        assert isinstance(layer, networks.LAYERS)
        networks.fill_layer(layer, random, gain=2 / (1 + SLOPE**2))
    networks.fill_layer(network.head, random, gain=1.0)
    if network.embedding is not None:
        nn.init.normal_(network.embedding.weight, std=1 / math.sqrt(network.head.in_features), generator=random)
