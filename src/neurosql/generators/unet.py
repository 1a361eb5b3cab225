"""U-Net decoder: learnable constants at every resolution, modulated by z through FiLM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from neurosql.errors import whole
from neurosql.generators.base import Generator
from neurosql.generators.grid import Size, grow, halving_widths, image_shape, pyramid

BASE = 4
GROUPS = 8


class FiLM(nn.Module):
    """(1 + a(e)) * normalised h + b(e) by channel, with a and b linear in the code's embedding e (n, embed).

    Group norm, not batch norm, so that a row's output depends on that row only; its own scale and shift would
    be redundant beside a and b.
    """

    def __init__(self, embed: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(math.gcd(channels, GROUPS), channels, affine=False)
        self.modulation = nn.Linear(embed, 2 * channels)

    def forward(self, h: Tensor, e: Tensor) -> Tensor:
        scale, shift = self.modulation(e)[:, :, None, None].chunk(2, dim=1)
        return torch.addcmul(shift, self.norm(h), 1 + scale)


class Level(nn.Module):
    """One resolution: what comes from below (n, before, ...) grows to ``size`` and joins a constant.

    The constant (constants, *size) takes the place of the skip connection that an encoder would feed. The
    coarsest level has nothing below it: before = 0, and its constant is its only input.
    """

    def __init__(self, before: int, constants: int, after: int, size: Size, embed: int) -> None:
        super().__init__()
        self.size = size
        self.constant = nn.Parameter(torch.empty(constants, *size))
        both = before + constants
        self.film1 = FiLM(embed, both)
        self.conv1 = nn.Conv2d(both, after, kernel_size=3, padding=1, bias=False)
        self.film2 = FiLM(embed, after)
        self.conv2 = nn.Conv2d(after, after, kernel_size=3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(both, after, kernel_size=1, bias=False)

    def forward(self, below: Tensor | None, e: Tensor) -> Tensor:
        h = self.constant.expand(e.shape[0], -1, -1, -1)
        if below is not None:
            h = torch.cat([grow(below, self.size), h], dim=1)
        residual = self.conv1(silu(self.film1(h, e)))
        residual = self.conv2(silu(self.film2(residual, e)))
        return (self.shortcut(h) + residual) * math.sqrt(0.5)


class UNet(Generator):
    """Levels from a grid of at most 4x4 up to the image, with halving widths, and a 3x3 head.

    ``constants`` is the number of constant channels at each level above the coarsest, which has ``width``;
    ``embed`` is the width of the MLP that embeds the code for all FiLM layers.
    """

    name = "unet"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "laptop": {"width": 96, "constants": 8, "embed": 64},
        "paper": {"width": 256, "constants": 16, "embed": 256},
    }

    def __init__(
        self,
        shape: Sequence[int],
        latent_dim: int,
        *,
        classes: int | None,
        bounded: bool,
        width: int,
        constants: int,
        embed: int,
    ) -> None:
        channels, h, w = image_shape(self.name, shape)
        width, constants, embed = whole("width", width), whole("constants", constants), whole("embed", embed)
        super().__init__(
            shape, latent_dim, classes=classes, bounded=bounded, width=width, constants=constants, embed=embed
        )
        sizes = pyramid((h, w), BASE)
        self.widths = halving_widths(width, len(sizes))
        self.entry = nn.Linear(self.code_dim, embed)
        self.embed = nn.Linear(embed, embed)
        self.levels = nn.ModuleList(
            Level(before, constants if before else width, after, size, embed)
            for before, after, size in zip([0, *self.widths], self.widths, sizes)
        )
        self.last = FiLM(embed, self.widths[-1])
        self.head = nn.Conv2d(self.widths[-1], channels, kernel_size=3, padding=1)

    def decode(self, code: Tensor) -> Tensor:
        """(n, c, h, w) from code (n, code_dim)."""
        e = silu(self.embed(silu(self.entry(code))))
        h = None
        for level in self.levels:
            h = level(h, e)
        return self.head(silu(self.last(h, e)))

    @torch.no_grad()
    def adjust_initial(self) -> None:
        # Scales far from 1 at every level would multiply up to features that no longer vary smoothly with z.
        for module in self.modules():
            if isinstance(module, FiLM):
                module.modulation.weight.mul_(0.5)
