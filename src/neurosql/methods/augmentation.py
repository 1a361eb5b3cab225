r"""Differentiable augmentation: random changes T of everything that a discriminator sees.

A discriminator that sees few images learns them by heart. It has more to learn from if real and generated samples both
pass through a random T of the same law: D(T(x)) against D(T(G(z))). Because T is differentiable, the generator learns
through it, without learning T itself (Zhao and others, 2020). Each sample gets its own draws, at strength s in [0, 1]:

    brightness    x + b                       b uniform in s [-1/4, 1/4]
    saturation    m + a (x - m)               a uniform in 1 + s [-1, 1], m the mean over colours; three channels only
    contrast      m + a (x - m)               a uniform in 1 + s [-1/2, 1/2], m the mean of the sample
    translation   x shifted, 0 moving in      whole pixels, uniform up to s / 8 of each side
    cutout        x with a box set to 0       sides s / 2 of the sample's, centred at a uniform pixel

Strength 0 is the identity. Samples are (n, c, *spatial) with any number of spatial axes, in [0, 1]; vectors have no
such symmetries and stay as they are. All draws come from a generator on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neurosql.ranks import Part

BRIGHTNESS = 0.25
SATURATION = 1.0
CONTRAST = 0.5
TRANSLATION = 1 / 8
CUTOUT = 1 / 2


def augment(x: Tensor, random: torch.Generator, strength: float = 1.0, part: Part | None = None) -> Tensor:
    """T(x), of the same shape as x, each sample changed in its own way. The samples may be part of a joint batch."""
    if x.ndim < 3 or not strength:
        return x
    part = part or Part.all(len(x))
    x = x + BRIGHTNESS * strength * _uniform(x, random, part)
    if x.shape[1] == 3:
        x = _stretch(x, x.mean(1, keepdim=True), 1 + SATURATION * strength * _uniform(x, random, part))
    means = x.mean(tuple(range(1, x.ndim)), keepdim=True)
    x = _stretch(x, means, 1 + CONTRAST * strength * _uniform(x, random, part))
    most = [round(TRANSLATION * strength * side) for side in x.shape[2:]]
    x = translate(x, torch.stack([_whole(-m, m, part, random) for m in most], 1).to(x.device))
    centres = torch.stack([_whole(0, side - 1, part, random) for side in x.shape[2:]], 1)
    return cut(x, centres.to(x.device), [round(CUTOUT * strength * side) for side in x.shape[2:]])


def translate(x: Tensor, shifts: Tensor) -> Tensor:
    """x (n, c, *spatial) shifted by whole pixels (n, axes): the value at p moves to p + shift, and zeros move in."""
    for axis, shift in enumerate(shifts.unbind(1), start=2):
        side = x.shape[axis]
        source = torch.arange(side, device=x.device) - shift[:, None]
        inside = (source >= 0) & (source < side)
        shape = [len(x) if i == 0 else side if i == axis else 1 for i in range(x.ndim)]
        x = x.gather(axis, source.clamp(0, side - 1).view(shape).expand_as(x)) * inside.view(shape)
    return x


def cut(x: Tensor, centres: Tensor, sides: list[int]) -> Tensor:
    """x (n, c, *spatial) with one box per sample set to 0, around centres (n, axes); a box may reach over the edge."""
    box = torch.ones(len(x), *(1 for _ in x.shape[1:]), dtype=torch.bool, device=x.device)
    for axis, (centre, width) in enumerate(zip(centres.unbind(1), sides), start=2):
        first = centre - width // 2
        place = torch.arange(x.shape[axis], device=x.device) - first[:, None]
        shape = [len(x) if i == 0 else x.shape[axis] if i == axis else 1 for i in range(x.ndim)]
        box = box & ((place >= 0) & (place < width)).view(shape)
    return x * ~box


def _stretch(x: Tensor, middle: Tensor, factor: Tensor) -> Tensor:
    return middle + factor * (x - middle)


def _uniform(x: Tensor, random: torch.Generator, part: Part) -> Tensor:
    """One number per sample, uniform in [-1, 1], shaped to multiply x."""
    draws = part.of(lambda n: torch.rand(n, generator=random, dtype=torch.float64))
    return (2 * draws - 1).to(x).view(-1, *(1 for _ in x.shape[1:]))


def _whole(low: int, high: int, part: Part, random: torch.Generator) -> Tensor:
    """One whole number per sample, uniform in low..high."""
    return part.of(lambda n: torch.randint(low, high + 1, (n,), generator=random))
