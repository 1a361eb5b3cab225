r"""LPIPS, version 0.1, with the VGG16 or the AlexNet backbone, in plain torch.

With f_l(x) the activations of layer l, scaled at each position to unit length over the channels, and w_l >= 0 the
published weights of its channels:

    LPIPS(x, y) = sum over l of  mean over positions of  sum over channels of  w_l (f_l(x) - f_l(y))^2

Images in [0, 1] are brought to [-1, 1] and then to the backbone's own scale. Grey images are repeated to three
channels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, max_pool2d, relu

from neurosql.errors import InputError
from neurosql.metrics.features import Features, chunked, to_colour

SHIFT = (-0.030, -0.088, -0.188)
SCALE = (0.458, 0.448, 0.450)
SMALLEST = {"vgg": 16, "alex": 63}
CHUNK = 16


class Layer(NamedTuple):
    """A convolution: whether pooling comes before it, whether its output is compared, stride and padding."""

    pool: bool
    compared: bool
    stride: int
    padding: int


def _vgg() -> list[Layer]:
    groups = (2, 2, 3, 3, 3)
    return [Layer(g > 0 and i == 0, i == size - 1, 1, 1) for g, size in enumerate(groups) for i in range(size)]


LAYERS = {
    "vgg": _vgg(),
    "alex": [
        Layer(False, True, 4, 2),
        Layer(True, True, 1, 2),
        Layer(True, True, 1, 1),
        Layer(False, True, 1, 1),
        Layer(False, True, 1, 1),
    ],
}
POOL = {"vgg": 2, "alex": 3}


class LPIPS:
    """The distance of a backbone with its weights, as `weights.load` returns them."""

    def __init__(self, backbone: str, weights: dict[str, Tensor]) -> None:
        if backbone not in LAYERS:
            raise InputError(f"backbone must be one of {', '.join(LAYERS)}, got {backbone!r}")
        self.backbone = backbone
        count = len(LAYERS[backbone])
        try:
            self.convolutions = [(weights[f"conv.{i}.weight"], weights[f"conv.{i}.bias"]) for i in range(count)]
            heads = sum(layer.compared for layer in LAYERS[backbone])
            self.heads = [weights[f"head.{i}.weight"] for i in range(heads)]
        except KeyError as error:
            raise InputError(f"the LPIPS weights lack {error}") from None

    def activations(self, x: Tensor) -> list[Tensor]:
        """The compared layers' outputs for images (n, c, h, w) in [0, 1]."""
        if x.ndim != 4:
            raise InputError(f"LPIPS compares images (n, c, h, w), got shape {tuple(x.shape)}")
        x = to_colour(x)
        smallest = SMALLEST[self.backbone]
        if min(x.shape[2:]) < smallest:
            # The backbone's poolings would leave nothing of a smaller image.
            factor = smallest / min(x.shape[2:])
            x = interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False, antialias=False)
        shift, scale = (torch.tensor(values).view(1, 3, 1, 1).to(x) for values in (SHIFT, SCALE))
        x = ((2 * x - 1) - shift) / scale
        found = []
        for layer, (weight, bias) in zip(LAYERS[self.backbone], self.convolutions):
            if layer.pool:
                x = max_pool2d(x, POOL[self.backbone], 2)
            x = relu(conv2d(x, weight.to(x), bias.to(x), stride=layer.stride, padding=layer.padding))
            if layer.compared:
                found.append(x)
        return found

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """LPIPS(x_i, y_i) for two tensors (n, c, h, w) in [0, 1]: (n,)."""
        if x.shape != y.shape:
            raise InputError(f"paired images must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        parts = []
        for a, b in zip(x.split(CHUNK), y.split(CHUNK)):
            total = a.new_zeros(len(a))
            for fa, fb, head in zip(self.activations(a), self.activations(b), self.heads):
                difference = (_unit(fa) - _unit(fb)).square()
                total = total + (difference * head.to(a).view(1, -1, 1, 1)).sum(1).mean((1, 2))
            parts.append(total)
        return torch.cat(parts)

    @torch.no_grad()
    def cosine(self, x: Tensor, y: Tensor) -> Tensor:
        """1 - cosine similarity of the last layer's activations, (n,): the paper's fallback, which is not LPIPS."""
        parts = []
        for a, b in zip(x.split(CHUNK), y.split(CHUNK)):
            fa, fb = (self.activations(z)[-1].flatten(1) for z in (a, b))
            parts.append(1 - torch.cosine_similarity(fa, fb, dim=1))
        return torch.cat(parts)

    def features(self) -> Features:
        """Mean activations of all compared layers, (n, p)."""
        return chunked(lambda x: torch.cat([f.mean((2, 3)) for f in self.activations(x)], 1), CHUNK)


def distances(made: Tensor, real: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """LPIPS and the paper's fallback for pairs of images, (n,) each."""
    net = LPIPS("vgg", weights)
    return {"lpips": net(made, real), "vgg-cosine": net.cosine(made, real)}


def _unit(x: Tensor) -> Tensor:
    """Channels scaled to unit length at every position; the small constant is the published one."""
    return x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
