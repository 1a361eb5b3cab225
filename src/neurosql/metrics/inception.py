"""Inception-v3 as the Frechet Inception Distance uses it, from weights that the user has on disk.

Names are those of the usual PyTorch state dict of these weights (`Conv2d_1a_3x3.conv.weight`, ...). It differs from the
classifier in two ways: mean pooling leaves the padding out of the mean, and the last block takes a maximum instead.
"""

from __future__ import annotations

from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, interpolate, max_pool2d

from neurosql.errors import InputError
from neurosql.metrics.features import Features, chunked, to_colour

SIDE = 299
FEATURES = 2048
EPSILON = 1e-3
CHUNK = 16
LARGEST = 2**30


def load(path: str | Path) -> Features:
    """2,048 features of images, with weights from a .safetensors file."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(
            f"{path} is not a .safetensors file: other formats can run code when they are opened. Convert it once with "
            "`safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'inception.safetensors')`"
        )
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is too large to be Inception-v3")
        weights = safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} can't be read: {error}") from None
    net = Inception(weights)
    try:
        with torch.no_grad():
            found = net(torch.zeros(1, 3, 8, 8))
    except (KeyError, RuntimeError) as error:
        raise InputError(f"{path} does not hold the weights of Inception-v3: {error}") from None
    if found.shape != (1, FEATURES):
        raise InputError(f"{path} does not hold the weights of Inception-v3: it has {found.shape[1]} features")
    return chunked(net, CHUNK)


class Inception:
    """Images (n, c, h, w) in [0, 1] to features (n, 2048)."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.folded: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        x = interpolate(to_colour(x), (SIDE, SIDE), mode="bilinear", align_corners=False)
        return self.describe(2 * x - 1)

    def describe(self, x: Tensor) -> Tensor:
        """Features of images in [-1, 1] with 299 pixels per side."""
        x = self.conv(x, "Conv2d_1a_3x3", stride=2, pad=False)
        x = self.conv(x, "Conv2d_2a_3x3", pad=False)
        x = max_pool2d(self.conv(x, "Conv2d_2b_3x3"), 3, 2)
        x = self.conv(x, "Conv2d_3b_1x1")
        x = max_pool2d(self.conv(x, "Conv2d_4a_3x3", pad=False), 3, 2)
        for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
            x = self.first_kind(x, name)
        x = torch.cat(
            [
                self.conv(x, "Mixed_6a.branch3x3", stride=2, pad=False),
                self.chain(x, "Mixed_6a.branch3x3dbl", "123", stride=2),
                max_pool2d(x, 3, 2),
            ],
            1,
        )
        for name in ("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"):
            x = self.second_kind(x, name)
        x = torch.cat(
            [
                self.chain(x, "Mixed_7a.branch3x3", "12", stride=2),
                self.chain(x, "Mixed_7a.branch7x7x3", "1234", stride=2),
                max_pool2d(x, 3, 2),
            ],
            1,
        )
        x = self.third_kind(x, "Mixed_7b", _mean(x))
        x = self.third_kind(x, "Mixed_7c", max_pool2d(x, 3, 1, 1))
        return x.mean((2, 3))

    def first_kind(self, x: Tensor, name: str) -> Tensor:
        """A block of the first kind, at 35 x 35 positions."""
        five, three = (self.chain(x, f"{name}.branch{kind}", tail) for kind, tail in (("5x5", "12"), ("3x3dbl", "123")))
        return torch.cat([self.conv(x, f"{name}.branch1x1"), five, three, self.pooled(x, name)], 1)

    def second_kind(self, x: Tensor, name: str) -> Tensor:
        """A block of the second kind, at 17 x 17 positions."""
        once, twice = (self.chain(x, f"{name}.branch7x7{kind}", tail) for kind, tail in (("", "123"), ("dbl", "12345")))
        return torch.cat([self.conv(x, f"{name}.branch1x1"), once, twice, self.pooled(x, name)], 1)

    def third_kind(self, x: Tensor, name: str, pooled: Tensor) -> Tensor:
        """A block of the third kind, at 8 x 8 positions."""
        once = self.conv(x, f"{name}.branch3x3_1")
        twice = self.chain(x, f"{name}.branch3x3dbl", "12")
        parts = [self.conv(x, f"{name}.branch1x1")]
        parts += [self.conv(once, f"{name}.branch3x3_2{side}") for side in "ab"]
        parts += [self.conv(twice, f"{name}.branch3x3dbl_3{side}") for side in "ab"]
        return torch.cat([*parts, self.conv(pooled, f"{name}.branch_pool")], 1)

    def pooled(self, x: Tensor, name: str) -> Tensor:
        """The branch of a block that averages its neighbourhood first."""
        return self.conv(_mean(x), f"{name}.branch_pool")

    def chain(self, x: Tensor, name: str, numbers: str, stride: int = 1) -> Tensor:
        """One convolution after another; only the last has the stride, and no padding if the stride is above 1."""
        for number in numbers:
            last = number == numbers[-1] and stride > 1
            x = self.conv(x, f"{name}_{number}", stride if last else 1, pad=not last)
        return x

    def conv(self, x: Tensor, name: str, stride: int = 1, pad: bool = True) -> Tensor:
        """Convolution, batch normalisation with its running statistics, ReLU."""
        if name not in self.folded:
            scale = self.weights[f"{name}.bn.weight"] / (self.weights[f"{name}.bn.running_var"] + EPSILON).sqrt()
            kernel = self.weights[f"{name}.conv.weight"] * scale[:, None, None, None]
            shift = self.weights[f"{name}.bn.bias"] - self.weights[f"{name}.bn.running_mean"] * scale
            self.folded[name] = (kernel, shift)
        kernel, shift = self.folded[name]
        padding = (kernel.shape[2] // 2, kernel.shape[3] // 2) if pad else (0, 0)
        return conv2d(x, kernel, shift, stride, padding).relu_()


def _mean(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, 1, 1, count_include_pad=False)
