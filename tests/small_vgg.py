"""A small VGG, in the place of the published one."""

import torch

CHANNELS = (3, 8, 8, 16, 16, 32, 32, 32, 64, 64, 64, 64, 64, 64)


def small_weights(name):
    """Random weights of a VGG with an eighth of its channels."""
    random = torch.Generator().manual_seed(0)
    found = {}
    for i, (a, b) in enumerate(zip(CHANNELS, CHANNELS[1:])):
        found[f"conv.{i}.weight"] = torch.randn(b, a, 3, 3, generator=random) * (2 / (9 * a)) ** 0.5
        found[f"conv.{i}.bias"] = 0.1 * torch.randn(b, generator=random)
    for i, width in enumerate((8, 16, 32, 64, 64)):
        found[f"head.{i}.weight"] = torch.rand(width, generator=random)
    return found
