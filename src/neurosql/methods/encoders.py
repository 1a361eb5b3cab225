"""Encoders E: (x, label) -> (n, k), the generator's counterpart in an autoencoder.

`mlp` is the paper's: hidden layers on flat pixels, for samples of any shape. `conv` is the ConvNet generator run
backwards: a 3x3 convolution at full size, then strided 4x4 convolutions that halve the grid and double the width, each
with its group norm and SiLU, and a linear head. In both, an image's output does not depend on the rest of the batch, so
training and evaluation compute the same function.

`make` builds one that is about as large as the generator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu

from neurosql import networks
from neurosql.errors import InputError
from neurosql.generators.base import LABEL_DIM
from neurosql.generators.convnet import BASE
from neurosql.generators.grid import halving_widths, pyramid
from neurosql.generators.mlp import MLP as MLPGenerator
from neurosql.methods.base import Task

STEP = 16
"""Widths of the convolutional encoder are multiples of this: convolutions are fastest at these."""
GROUPS = 8
CHUNK = 256


class Encoder(nn.Module):
    """E(x, label) -> (n, outputs), with label int64 (n,) for a class-conditional encoder, else None.

    A subclass builds `head`, the last layer, and computes the output in `read`, where `seen` is the label's
    embedding (n, label_dim).
    """

    head: nn.Linear

    def __init__(self, shape: tuple[int, ...], outputs: int, classes: int | None, label_dim: int) -> None:
        super().__init__()
        self.shape, self.outputs, self.classes = shape, outputs, classes
        self.embedding = None if classes is None else nn.Embedding(classes, label_dim)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"x must have shape (n, {', '.join(map(str, self.shape))}), got {tuple(x.shape)}")
        if self.embedding is None:
            return self.read(x, None)
        if label is None:
            raise InputError(f"this encoder is conditional on {self.classes} classes: call it with labels")
        return self.read(x, self.embedding(label))

    def read(self, x: Tensor, seen: Tensor | None) -> Tensor:
        """The outputs (n, outputs) of images (n, ...) and their labels' embeddings (n, label_dim)."""
        raise NotImplementedError


class MLPEncoder(Encoder):
    """`depth` hidden layers of `width` units on the flat sample, to which the label's embedding is appended."""

    def __init__(self, shape: tuple[int, ...], outputs: int, classes: int | None, width: int, depth: int) -> None:
        super().__init__(shape, outputs, classes, LABEL_DIM)
        first = math.prod(shape) + (0 if classes is None else LABEL_DIM)
        self.hidden = nn.ModuleList(nn.Linear(width if i else first, width) for i in range(depth))
        self.head = nn.Linear(width, outputs)

    def read(self, x: Tensor, seen: Tensor | None) -> Tensor:
        h = x.flatten(1) if seen is None else torch.cat([x.flatten(1), seen], dim=1)
        for layer in self.hidden:
            h = silu(layer(h))
        return self.head(h)


class ConvEncoder(Encoder):
    """Convolutions down to a grid of at most 7x7 with `width` channels; a label's embedding shifts the first maps."""

    def __init__(self, shape: tuple[int, ...], outputs: int, classes: int | None, width: int) -> None:
        channels, rows, columns = shape
        sizes = pyramid((rows, columns), BASE)[::-1]
        widths = halving_widths(width, len(sizes))[::-1]
        super().__init__(shape, outputs, classes, widths[0])
        self.stem = nn.Conv2d(channels, widths[0], kernel_size=3, padding=1)
        self.stages = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1, bias=False)
            for before, after in zip(widths, widths[1:])
        )
        self.norms = nn.ModuleList(nn.GroupNorm(math.gcd(GROUPS, width), width) for width in widths)
        self.head = nn.Linear(widths[-1] * math.prod(sizes[-1]), outputs)

    def read(self, x: Tensor, seen: Tensor | None) -> Tensor:
        h = self.stem(x.contiguous(memory_format=torch.channels_last))
        if seen is not None:
            h = h + seen[:, :, None, None]
        h = silu(self.norms[0](h))
        for stage, norm in zip(self.stages, list(self.norms)[1:]):
            # An odd side gets one more row of zeros, so that it is halved rounding up, as the generator grows it.
            rows, columns = h.shape[-2] % 2, h.shape[-1] % 2
            h = silu(norm(stage(pad(h, (0, columns, 0, rows)) if rows or columns else h)))
        return self.head(h.flatten(1))


KINDS: dict[str, type[Encoder]] = {"mlp": MLPEncoder, "conv": ConvEncoder}


def make(name: str, task: Task, outputs: int, like: nn.Module) -> Encoder:
    """The encoder `name` with this many outputs for a task, on the CPU, about as large as the generator `like`.

    The MLP is as wide and deep as the MLP generator of the same settings; the convolutional encoder has the width
    that brings its parameter count nearest to the generator's. Samples other than images get the MLP.
    """
    if name not in KINDS:
        raise InputError(f"encoder must be one of {', '.join(KINDS)}, got {name!r}")
    shape, classes, chosen = tuple(task.shape), task.classes, task.settings.generator

    def convolutional(width: int) -> Encoder:
        return ConvEncoder(shape, outputs, classes, width)

    def dense() -> Encoder:
        preset = MLPGenerator.presets[chosen.size]
        width = chosen.width if chosen.generator == MLPGenerator.name and chosen.width else preset["width"]
        return MLPEncoder(shape, outputs, classes, width, preset["depth"])

    build = dense
    if KINDS[name] is KINDS[task.modality.encoder] is ConvEncoder:
        width = networks.width_near(convolutional, networks.count(like), STEP)

        def build() -> Encoder:
            return convolutional(width)

    return networks.made(build, networks.fill, networks.seed_of(task.seed, "encoder"))


@torch.no_grad()
def outputs(encoder: Encoder, x: Tensor, label: Tensor | None = None, chunk: int = CHUNK) -> Tensor:
    """E(x) for images (n, ...), in evaluation mode and in chunks: (n, outputs)."""
    training = encoder.training
    encoder.eval()
    parts = [
        encoder(x[i : i + chunk], None if label is None else label[i : i + chunk]) for i in range(0, len(x), chunk)
    ]
    encoder.train(training)
    return torch.cat(parts) if parts else x.new_zeros(0, encoder.outputs)
