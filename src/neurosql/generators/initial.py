"""Initial weights of generators: the common rule, and the special rules for their first and last layers."""

from __future__ import annotations

import math

import torch
from torch import nn

from neurosql import networks
from neurosql.generators.base import Generator

HEAD_GAIN = 0.25


@torch.no_grad()
def fill(generator: Generator, random: torch.Generator) -> None:
    """Fill ``generator`` in place: see `networks.fill`; then its entry, its head and what the subclass adjusts."""
    networks.fill(generator, random)
    # With zero bias the kinks of all units would pass through z = 0, and in one to three dimensions little
    # else tells the units apart: the first layer's biases are as spread as its products with a code.
    for entry in generator.entries():
        nn.init.normal_(entry.weight, std=math.sqrt(2 / entry.in_features), generator=random)
        nn.init.normal_(entry.bias, generator=random)
    generator.final.weight.mul_(HEAD_GAIN)
    generator.adjust_initial()
