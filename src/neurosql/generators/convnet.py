"""ConvNet: a linear projection, then transposed convolutions with halving widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

from neurosql.errors import whole
from neurosql.generators.base import Generator
from neurosql.generators.grid import base_grid, crop, halving_widths, image_shape, pyramid

BASE = 7


class ConvNet(Generator):
    """Linear to a grid of at most 7x7, stages of transposed convolution, batch norm and ReLU, a 3x3 head.

    Each stage doubles the grid (kernel 4, stride 2) and halves the width. No layer before a batch norm has a
    bias per channel, because the norm would remove it again. The projection keeps its biases: they differ from
    place to place.
    """

    name = "convnet"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"laptop": {"width": 128}, "paper": {"width": 512}}

    def __init__(
        self, shape: Sequence[int], latent_dim: int, *, classes: int | None, bounded: bool, width: int
    ) -> None:
        channels, h, w = image_shape(self.name, shape)
        width = whole("width", width)
        super().__init__(shape, latent_dim, classes=classes, bounded=bounded, width=width)
        self.sizes = pyramid((h, w), BASE)
        self.widths = halving_widths(width, len(self.sizes))
        base_h, base_w = self.sizes[0]
        self.entry = nn.Linear(self.code_dim, width * base_h * base_w)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in self.widths)
        self.stages = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel_size=4, stride=2, padding=1, bias=False)
            for before, after in zip(self.widths, self.widths[1:])
        )
        self.head = nn.Conv2d(self.widths[-1], channels, kernel_size=3, padding=1)

    def decode(self, code: Tensor) -> Tensor:
        """(n, c, h, w) from code (n, code_dim)."""
        h = relu(self.norms[0](base_grid(self.entry(code), self.widths[0], self.sizes[0])))
        for size, stage, norm in zip(self.sizes[1:], self.stages, list(self.norms)[1:]):
            h = relu(norm(crop(stage(h), size)))
        return self.head(h).contiguous()
