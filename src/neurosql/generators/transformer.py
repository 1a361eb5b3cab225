"""Transformer: a small decoder over the image's patches, each a token that knows its place and the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from neurosql.errors import InputError, whole
from neurosql.generators.base import Generator
from neurosql.generators.grid import image_shape


def patch_for(h: int, w: int) -> int:
    """The patch side for an h x w image: 2, 4, 8 or 16, so that there are at most 16 patches per side."""
    side = max(h, w)
    return 2 if side <= 8 else 4 if side <= 32 else 8 if side <= 128 else 16


class Block(nn.Module):
    """Pre-norm self-attention and a two-layer MLP, each added to the tokens (n, t, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        # A bias on the keys would shift all scores of a query alike, which softmax ignores.
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        n, t, width = h.shape
        qkv = self.qkv(self.norm1(h)).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width)
        h = h + self.mix(attended)
        return h + self.down(gelu(self.up(self.norm2(h))))


class Transformer(Generator):
    """Token = learned position + embedding of the code; ``depth`` blocks; an MLP head to the patch's pixels.

    ``patch`` is the patch's side, or None to choose it from the image's size. If it does not divide the
    image, the last patches reach over the edge and are cropped.
    """

    name = "transformer"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "laptop": {"width": 96, "depth": 3, "heads": 4, "patch": None},
        "paper": {"width": 256, "depth": 5, "heads": 8, "patch": None},
    }

    def __init__(
        self,
        shape: Sequence[int],
        latent_dim: int,
        *,
        classes: int | None,
        bounded: bool,
        width: int,
        depth: int,
        heads: int,
        patch: int | None,
    ) -> None:
        channels, h, w = image_shape(self.name, shape)
        width, depth, heads = whole("width", width), whole("depth", depth), whole("heads", heads)
        patch = patch_for(h, w) if patch is None else whole("patch", patch)
        if width % heads:
            raise InputError(f"width must be a multiple of heads ({heads}), got {width}")
        super().__init__(
            shape,
            latent_dim,
            classes=classes,
            bounded=bounded,
            width=width,
            depth=depth,
            heads=heads,
            patch=patch,
        )
        self.patch = patch
        self.rows, self.columns = -(-h // patch), -(-w // patch)
        self.entry = nn.Linear(self.code_dim, width)
        self.embed = nn.Linear(width, width)
        self.position = nn.Parameter(torch.empty(self.rows * self.columns, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, width)
        self.head = nn.Linear(width, channels * patch * patch)

    def decode(self, code: Tensor) -> Tensor:
        """(n, c, h, w) from code (n, code_dim)."""
        channels, height, width = self.shape
        h = self.embed(silu(self.entry(code)))[:, None, :] + self.position
        for block in self.blocks:
            h = block(h)
        pixels = self.head(gelu(self.expand(self.norm(h))))
        grid = pixels.reshape(-1, self.rows, self.columns, channels, self.patch, self.patch)
        x = grid.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, self.rows * self.patch, self.columns * self.patch)
        return x[..., :height, :width]

    @torch.no_grad()
    def adjust_initial(self) -> None:
        # No ReLU follows queries and keys, and 2 * depth branches add to the same tokens.
        for module in self.modules():
            if isinstance(module, Block):
                module.qkv.weight.mul_(math.sqrt(0.5))
                module.mix.weight.mul_(1 / math.sqrt(2 * len(self.blocks)))
                module.down.weight.mul_(1 / math.sqrt(2 * len(self.blocks)))
