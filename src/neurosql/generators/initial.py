"""Initial weights: every parameter and buffer drawn from one seed, none from torch's global random state."""

from __future__ import annotations

import math

import torch
from torch import nn

from neurosql.generators.base import Generator

HEAD_GAIN = 0.25


@torch.no_grad()
def fill(generator: Generator, seed: int) -> None:
    """Fill ``generator`` in place with its initial weights, a function of its settings and ``seed`` alone.

    Linear layers and convolutions: N(0, 2 / fan_in), the scale that keeps variance through a ReLU, and zero
    bias. Normalisation: the identity. Embeddings and learnable constants: N(0, 1), as large as a code.
    """
    rng = torch.Generator().manual_seed(seed)
    for path, module in generator.named_modules():
        _fill_own(path, module, rng)

    # With zero bias the kinks of all units would pass through z = 0, and in one to three dimensions little
    # else tells the units apart: the first layer's biases are as spread as its products with a code.
    entry = generator.entry
    nn.init.normal_(entry.weight, std=math.sqrt(2 / generator.code_dim), generator=rng)
    nn.init.normal_(entry.bias, generator=rng)
    generator.head.weight.mul_(HEAD_GAIN)
    generator.adjust_initial()


def _fill_own(path: str, module: nn.Module, rng: torch.Generator) -> None:
    """Fill what ``module`` holds itself, leaving its children to their own turn."""
    if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, std=math.sqrt(2 / _fan_in(module)), generator=rng)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
        return
    if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
        return
    for parameter in module.parameters(recurse=False):
        nn.init.normal_(parameter, generator=rng)
    for name, _ in module.named_buffers(recurse=False):
        raise RuntimeError(f"buffer {path}.{name} has no rule for its initial value in initial.py")


def _fan_in(layer: nn.Linear | nn.Conv2d | nn.ConvTranspose2d) -> float:
    """How many inputs reach one output: a transposed convolution's kernel is shared by stride^2 outputs."""
    if isinstance(layer, nn.Linear):
        return layer.in_features
    fan = layer.in_channels * math.prod(layer.kernel_size)
    return fan / math.prod(layer.stride) if isinstance(layer, nn.ConvTranspose2d) else fan
