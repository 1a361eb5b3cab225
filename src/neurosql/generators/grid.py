"""The sizes that an image grows through, from a small base grid up to its own height and width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from neurosql.errors import InputError
from neurosql.generators.base import sample_shape

Size = tuple[int, int]

SMALLEST, LARGEST = 8, 256
NARROWEST = 16


def image_shape(name: str, shape: Sequence[int]) -> tuple[int, int, int]:
    """``shape`` as (c, h, w) with 8 <= h, w <= 256, or an InputError that names the network."""
    sides = sample_shape(shape)
    if len(sides) != 3:
        raise InputError(f"{name} makes images of shape (c, h, w), got {sides}: use mlp for other shapes")
    c, h, w = sides
    if min(h, w) < SMALLEST or max(h, w) > LARGEST:
        made = f"{name} makes images of {SMALLEST} to {LARGEST} pixels per side"
        raise InputError(f"{made}, got {h}x{w}: resize them with --image-size, or use --generator mlp")
    return c, h, w


def pyramid(size: Size, base: int, most: int | None = None) -> list[Size]:
    """Sizes from coarse to fine, ending in ``size``: halved, rounding up, until no side exceeds ``base``.

    ``most`` limits the number of halvings. Doubling one size and cropping at most one row and one
    column gives the next: 28 from base 4 is 4, 7, 14, 28.
    """
    sizes = [size]
    while max(sizes[0]) > base and (most is None or len(sizes) <= most):
        h, w = sizes[0]
        sizes.insert(0, (-(-h // 2), -(-w // 2)))
    return sizes


def base_grid(h: Tensor, width: int, size: Size) -> Tensor:
    """h (n, width * rows * columns) as (n, width, *size), laid out with the channels last.

    Convolutions and batch norms keep that layout, and on a CPU run up to 1.7 times as fast in it. The weights
    stay contiguous, as safetensors wants them.
    """
    return h.reshape(-1, width, *size).contiguous(memory_format=torch.channels_last)


def crop(x: Tensor, size: Size) -> Tensor:
    """The first ``size`` rows and columns of x (n, c, h, w)."""
    return x[..., : size[0], : size[1]]


def grow(x: Tensor, size: Size) -> Tensor:
    """x (n, c, h, w) doubled by repeating pixels and cropped to ``size``; x itself if it has that size."""
    if tuple(x.shape[-2:]) == size:
        return x
    return crop(interpolate(x, scale_factor=2.0, mode="nearest"), size)


def halving_widths(width: int, count: int) -> list[int]:
    """``count`` widths, each half of the one before, none below 16 (or below ``width``, if that is less)."""
    return [max(min(width, NARROWEST), width >> i) for i in range(count)]
