r"""Networks f(x, t, label) for denoising and for flows: a U-Net for images, an MLP for everything else.

Both read a time t in [0, 1] through the embedding

    e(t) = W2 silu(W1 [sin(w_1 t), cos(w_1 t), sin(w_2 t), ...]) + c_label,      1 <= w_i <= 1000,

and let it scale and shift their features (FiLM). Last layers start at zero, so that each block starts as the
identity, and the network as the zero function.

`matched` chooses the width that brings the number of parameters nearest to a target, so that these networks are as
large as the generator that they compete with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, scaled_dot_product_attention, silu

from neurosql import modality, networks
from neurosql.errors import InputError, whole
from neurosql.generators.base import sample_shape
from neurosql.generators.grid import LARGEST, SMALLEST, grow, image_shape, pyramid

FREQUENCIES = 16
FASTEST = 1000.0
BASE = 8
MOST_GROUPS = 8
MLP_BLOCKS = 3
TOLERANCE = 0.1
ALIGNED = 16


class Denoiser(nn.Module):
    """f: x (n, *shape), t (n,) in [0, 1], label int64 (n,) or None -> (n, *shape)."""

    kind: str

    def __init__(self, shape: Sequence[int], width: int, classes: int | None) -> None:
        super().__init__()
        self.shape, self.width, self.classes = sample_shape(shape), whole("width", width), classes

    def zero_layers(self) -> list[nn.Linear | nn.Conv2d]:
        """The layers that start at zero."""
        raise NotImplementedError


class TimeEmbedding(nn.Module):
    """e (n, embed) of times t (n,) in [0, 1] and, if there are classes, labels (n,)."""

    def __init__(self, embed: int, classes: int | None) -> None:
        super().__init__()
        self.first = nn.Linear(2 * FREQUENCIES, embed)
        self.second = nn.Linear(embed, embed)
        self.labels = None if classes is None else nn.Embedding(classes, embed)

    def forward(self, t: Tensor, label: Tensor | None) -> Tensor:
        if (label is None) != (self.labels is None):
            raise InputError("a denoiser takes labels if, and only if, it was made with classes")
        powers = torch.arange(FREQUENCIES, dtype=t.dtype, device=t.device) / (FREQUENCIES - 1)
        angles = t[:, None] * FASTEST**powers
        e = self.second(silu(self.first(torch.cat([angles.sin(), angles.cos()], dim=1))))
        return silu(e if self.labels is None else e + self.labels(label))


class Block(nn.Module):
    """(n, before, h, w) -> (n, after, h, w): a shortcut plus two 3x3 convolutions, modulated between them."""

    def __init__(self, before: int, after: int, embed: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups(before), before)
        self.conv1 = nn.Conv2d(before, after, kernel_size=3, padding=1)
        self.norm2 = nn.GroupNorm(groups(after), after, affine=False)
        self.film = nn.Linear(embed, 2 * after)
        self.conv2 = nn.Conv2d(after, after, kernel_size=3, padding=1)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, kernel_size=1)

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        h = self.conv1(silu(self.norm1(x)))
        scale, shift = self.film(e)[:, :, None, None].chunk(2, dim=1)
        h = self.conv2(silu(torch.addcmul(shift, self.norm2(h), 1 + scale)))
        return self.shortcut(x) + h


class Attention(nn.Module):
    """x plus self-attention over all positions of x (n, channels, h, w), with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups(channels), channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, kernel_size=1)
        self.mix = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, dim=-1)
        attended = scaled_dot_product_attention(q, k, v).squeeze(1).transpose(1, 2)
        return x + self.mix(attended.reshape(x.shape))


class UNet(Denoiser):
    """Residual blocks down to a grid of at most 8x8 and up again, each level joined to its opposite by a skip.

    The finest level has `width` channels and the others twice as many. The coarsest, where most parameters are, has
    `coarsest` if that is given. An image of 28 pixels has three levels: 28, 14 and 7. A size that does not halve evenly
    is rounded up on the way down and cropped on the way up.
    """

    kind = "U-Net"

    def __init__(
        self, shape: Sequence[int], width: int, classes: int | None = None, coarsest: int | None = None
    ) -> None:
        super().__init__(shape, width, classes)
        channels, *size = image_shape("the denoising U-Net", shape)
        self.sizes = pyramid((size[0], size[1]), BASE)[::-1]
        self.widths = [self.width] + [2 * self.width] * (len(self.sizes) - 1)
        self.coarsest = self.widths[-1] if coarsest is None else whole("coarsest", coarsest)
        self.widths[-1] = self.coarsest
        embed = 2 * self.width
        self.time = TimeEmbedding(embed, classes)
        self.entry = nn.Conv2d(channels, self.width, kernel_size=3, padding=1)
        befores = [self.width, *self.widths[:-1]]
        self.down = nn.ModuleList(Block(b, a, embed) for b, a in zip(befores, self.widths))
        self.middle = nn.ModuleList([Block(self.coarsest, self.coarsest, embed) for _ in range(2)])
        self.attention = Attention(self.coarsest)
        self.up = nn.ModuleList(Block(2 * a, b, embed) for a, b in zip(self.widths, befores))
        self.norm = nn.GroupNorm(groups(self.width), self.width)
        self.head = nn.Conv2d(self.width, channels, kernel_size=3, padding=1)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        e = self.time(t, label)
        h, skips = self.entry(x.contiguous(memory_format=torch.channels_last)), []
        for level, block in enumerate(self.down):
            h = block(avg_pool2d(h, 2, ceil_mode=True, count_include_pad=False) if level else h, e)
            skips.append(h)
        h = self.middle[1](self.attention(self.middle[0](h, e)), e)
        for level in reversed(range(len(self.up))):
            h = self.up[level](torch.cat([grow(h, self.sizes[level]), skips[level]], dim=1), e)
        return self.head(silu(self.norm(h))).contiguous()

    def zero_layers(self) -> list[nn.Linear | nn.Conv2d]:
        blocks = [module.conv2 for module in self.modules() if isinstance(module, Block)]
        return [*blocks, self.attention.mix, self.head]


class MLPBlock(nn.Module):
    """h + W2 silu(FiLM(W1 h)) for h (n, width).

    There is no norm: in the plane it would hide how far from the centre a point is.
    """

    def __init__(self, width: int, embed: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.film = nn.Linear(embed, 2 * width)
        self.second = nn.Linear(width, width)

    def forward(self, h: Tensor, e: Tensor) -> Tensor:
        scale, shift = self.film(e).chunk(2, dim=1)
        return h + self.second(silu(torch.addcmul(shift, self.first(h), 1 + scale)))


class MLP(Denoiser):
    """Residual blocks on the flat sample, plus a(t) x, which bypasses them.

    Noise fills all directions of the sample. Without a(t) x, it could not pass through fewer hidden units than that.
    """

    kind = "MLP"

    def __init__(self, shape: Sequence[int], width: int, classes: int | None = None) -> None:
        super().__init__(shape, width, classes)
        values, embed = math.prod(self.shape), max(8, self.width // 2)
        self.time = TimeEmbedding(embed, classes)
        self.entry = nn.Linear(values, self.width)
        self.blocks = nn.ModuleList(MLPBlock(self.width, embed) for _ in range(MLP_BLOCKS))
        self.head = nn.Linear(self.width, values)
        self.past = nn.Linear(embed, 1)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        e, flat = self.time(t, label), x.flatten(1)
        h = self.entry(flat)
        for block in self.blocks:
            h = block(h, e)
        return torch.addcmul(self.head(silu(h)), self.past(e), flat).reshape(x.shape)

    def zero_layers(self) -> list[nn.Linear | nn.Conv2d]:
        blocks = [module.second for module in self.blocks if isinstance(module, MLPBlock)]
        return [*blocks, self.head, self.past]


def groups(channels: int) -> int:
    """Groups of a group norm: the most, up to 8, that divide the channels into four or more each; else one."""
    return max(g for g in range(1, MOST_GROUPS + 1) if g == 1 or (channels % g == 0 and channels >= 4 * g))


KINDS: dict[str, type[Denoiser]] = {"unet": UNet, "mlp": MLP}


def kind_for(shape: Sequence[int]) -> type[Denoiser]:
    """The modality's network; the MLP for images that do not have 8 to 256 pixels per side."""
    kind = KINDS[modality.of_shape(shape).denoiser]
    return kind if kind is MLP or all(SMALLEST <= side <= LARGEST for side in shape[1:]) else MLP


def matched_width(build: Callable[[int], nn.Module], target: int) -> int:
    """The width for which `build(width)` has about `target` parameters; their number must grow with the width.

    Counts within half the tolerance of the target are as good as equal: among them, a multiple of 8, then 4, then 2 is
    preferred, because processors are faster at these. Otherwise the nearest count wins.
    """
    for step in (8, 4, 2, 1):
        width = networks.width_near(build, target, step)
        found = networks.count(networks.outline(partial(build, width)))
        if abs(found - target) <= TOLERANCE / 2 * target:
            break
    return width


def make(build: Callable[[], Denoiser], seed: int, name: str = "denoiser") -> Denoiser:
    """The network that `build` returns, on the CPU, with initial weights drawn from `seed` and its name."""
    return networks.made(build, fill, networks.seed_of(seed, name))


def fill(network: Denoiser, random: torch.Generator) -> None:
    """N(0, 1 / fan_in) with zero bias; norms are the identity, label embeddings N(0, 1), last layers zero."""
    networks.fill(network, random, gain=1.0)
    for layer in network.zero_layers():
        nn.init.zeros_(layer.weight)


def matched(shape: Sequence[int], classes: int | None, target: int, width: int | None = None) -> Callable[[], Denoiser]:
    """A function that builds the network of about `target` parameters, or the U-Net of base width `width`, if given.

    Above 16, the U-Net's base width is a multiple of 8, and the width of its coarsest level makes up the difference:
    the finest level takes most of the time, and 24 channels take a processor no longer than 18.
    """
    if kind_for(shape) is MLP:
        units = matched_width(lambda units: MLP(shape, units, classes), target)
        return lambda: MLP(shape, units, classes)
    if width is not None:
        return lambda: UNet(shape, width, classes)
    found = matched_width(lambda width: UNet(shape, width, classes), target)
    base = found if found <= ALIGNED else found // 8 * 8
    coarsest = matched_width(lambda coarsest: UNet(shape, base, classes, coarsest), target)
    return lambda: UNet(shape, base, classes, coarsest)


def rows_at_once(shape: Sequence[int]) -> int:
    """How many samples to put through the network at once without gradients, to bound its memory."""
    return max(1, min(256, 2**20 // math.prod(shape[1:] if len(shape) > 1 else shape)))
