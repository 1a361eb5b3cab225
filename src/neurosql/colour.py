r"""Brightness and colour apart: luma Y and chroma (Cb, Cr) of images with channels red, green and blue.

    Y = 0.299 R + 0.587 G + 0.114 B,    Cb = (B - Y) / 1.772,    Cr = (R - Y) / 1.402

These are the channels of JPEG (ITU-R BT.601). For images in [0, 1], Y is in [0, 1] and Cb and Cr are in [-1/2, 1/2],
0 where a pixel is grey. The map is linear: the chroma of a difference is the difference of the chromas.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from neurosql.errors import InputError

RED, GREEN, BLUE = 0.299, 0.587, 0.114

# Squares alone would leave the pixels within them to chance, which shows as a coloured grid; pixels alone would take
# more codes away from brightness for the same colours.
SQUARE, FINE = 4, 0.25


def luma(x: Tensor) -> Tensor:
    """Y of images x (n, 3, h, w): (n, 1, h, w)."""
    check_colour(x)
    return RED * x[:, 0:1] + GREEN * x[:, 1:2] + BLUE * x[:, 2:3]


def chroma(x: Tensor) -> Tensor:
    """(Cb, Cr) of images x (n, 3, h, w): (n, 2, h, w)."""
    check_colour(x)
    return (x[:, [2, 0]] - luma(x)) / x.new_tensor([2 * (1 - BLUE), 2 * (1 - RED)]).view(2, 1, 1)


def chroma_features(x: Tensor) -> Tensor:
    """Images x (n, 3, h, w) as points (n, q) whose squared distance is

        1/4 mean|C_x - C_y|^2 + 3/4 mean|D_x - D_y|^2,

    C the chroma and D its means over squares of 4 x 4 pixels: colour is seen in patches, but no pixel is left out.
    """
    fine = chroma(x)
    coarse = nn.functional.avg_pool2d(fine, SQUARE, ceil_mode=True, count_include_pad=False)
    parts = ((fine.flatten(1), FINE), (coarse.flatten(1), 1 - FINE))
    return torch.cat([part * math.sqrt(share / max(1, part.shape[1])) for part, share in parts], 1)


def check_colour(x: Tensor) -> None:
    """Refuse what has no red, green and blue."""
    if x.ndim != 4 or x.shape[1] != 3:
        raise InputError(f"colour needs images of three channels, (3, h, w), got shape {tuple(x.shape[1:])}")
