"""Codes for images that were not in the training set: the nearest lattice code, then gradient refinement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from neurosql.cost import DEFAULT_MEMORY, Cost
from neurosql.generators.base import Generator

CHUNK = 64
ON_A_DEVICE = 1024
"""Codes that a GPU decodes at a time."""
IN_PARTS = 2**15
"""Lattice points whose images are kept at a time."""
PRIOR_WEIGHT = 1e-3
STEPS = 60


class Law(Protocol):
    """What refinement needs to know about the law of the codes. A Prior is one."""

    has_density: bool
    has_mode: bool

    @property
    def scale(self) -> float:
        """The scale of the codes, which sets the length of a step."""

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z): (n, d) -> (n,)."""


@torch.no_grad()
def decode(generator: Generator, codes: Tensor, labels: Tensor | None = None, chunk: int | None = None) -> Tensor:
    """G(z) for codes (n, d), in evaluation mode and in chunks: (n, *shape)."""
    if chunk is None:
        # On a CPU, small chunks stay in the cache: four times as many at once take almost twice as long.
        chunk = CHUNK if codes.device.type == "cpu" else ON_A_DEVICE
    training = generator.training
    generator.eval()
    parts = [
        generator(codes[i : i + chunk], None if labels is None else labels[i : i + chunk])
        for i in range(0, len(codes), chunk)
    ]
    generator.train(training)
    return torch.cat(parts) if parts else codes.new_zeros(0, *generator.shape)


def nearest_code(
    cost: Cost,
    x: Tensor,
    decoded: Tensor,
    labels: Tensor | None = None,
    decoded_labels: Tensor | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Tensor:
    """The row of the cheapest decoded lattice point for each image: (n,). With labels, only among its own class."""
    return _cheapest(cost, x, decoded, labels, decoded_labels, memory)[0].to(x.device)


def nearest_in_parts(
    cost: Cost,
    x: Tensor,
    decoded: Callable[[slice], Tensor],
    count: int,
    labels: Tensor | None = None,
    decoded_labels: Tensor | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Tensor:
    """`nearest_code` among so many lattice points that only some of them, `decoded(slice)`, are kept at a time."""
    best, least = torch.zeros(len(x), dtype=torch.int64), torch.full((len(x),), math.inf)
    for first in range(0, count, IN_PARTS):
        part = slice(first, first + IN_PARTS)
        classes = None if decoded_labels is None else decoded_labels[part]
        found, costs = _cheapest(cost, x, decoded(part), labels, classes, memory)
        better = costs < least
        best[better], least[better] = first + found[better], costs[better]
    return best.to(x.device)


def _cheapest(
    cost: Cost, x: Tensor, decoded: Tensor, labels: Tensor | None, decoded_labels: Tensor | None, memory: int
) -> tuple[Tensor, Tensor]:
    """The row of the cheapest decoded lattice point for each image, (n,), and its cost, (n,), on the CPU."""
    found, least = torch.empty(len(x), dtype=torch.int64), torch.empty(len(x))
    rows = max(1, memory // max(1, 4 * len(decoded)))
    for i in range(0, len(x), rows):
        costs = cost.matrix(x[i : i + rows], decoded, memory)
        if labels is not None and decoded_labels is not None:
            costs[labels[i : i + rows, None] != decoded_labels] = math.inf
        cheapest = costs.argmin(1, keepdim=True)
        found[i : i + rows] = cheapest[:, 0].cpu()
        least[i : i + rows] = costs.gather(1, cheapest)[:, 0].cpu()
    return found, least


def refine(
    generator: Generator,
    prior: Law | Callable[[Tensor | None], Law],
    cost: Cost,
    x: Tensor,
    codes: Tensor,
    labels: Tensor | None = None,
    steps: int = STEPS,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Descend l(x, G(z)) - w log p(z) from the given codes; returns the best codes met (n, d) and their losses l (n,).

    The code of an image does not depend on the other images: the generator is in evaluation mode, Adam steps coordinate
    by coordinate, and each chunk is padded to one size, so that even the rounding is that of a full chunk. If each
    class has a law of its own, `prior` is a function that takes labels (m,), or None, and returns the law of m codes.
    """
    training, wanted = generator.training, [p.requires_grad for p in generator.parameters()]
    generator.eval().requires_grad_(False)
    best, losses = codes.clone(), codes.new_empty(len(codes))
    try:
        for i in tqdm(range(0, len(x), CHUNK), desc="encoding", unit="chunk", leave=False, disable=not progress):
            rows = torch.arange(i, i + CHUNK, device=x.device).clamp_(max=len(x) - 1)
            chunk_labels = None if labels is None else labels[rows]
            law = prior(chunk_labels) if callable(prior) else prior
            z, loss = _refine_chunk(generator, law, cost, x[rows], codes[rows], chunk_labels, steps)
            size = min(CHUNK, len(x) - i)
            best[i : i + size], losses[i : i + size] = z[:size], loss[:size]
    finally:
        for parameter, flag in zip(generator.parameters(), wanted):
            parameter.requires_grad_(flag)
        generator.train(training)
    return best, losses


def _refine_chunk(
    generator: Generator, prior: Law, cost: Cost, x: Tensor, z: Tensor, labels: Tensor | None, steps: int
) -> tuple[Tensor, Tensor]:
    def objective(z: Tensor) -> tuple[Tensor, Tensor]:
        loss = cost.paired(x, generator(z, labels))
        return loss, (loss - PRIOR_WEIGHT * prior.log_prob(z) if prior.has_mode else loss)

    rate, beta1, beta2 = 0.1 * prior.scale, 0.8, 0.95
    # Far above Adam's usual epsilon: a gradient of rounding noise must not be blown up to a full step.
    epsilon = 1e-3
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    for step in range(steps + 1):
        z = z.detach().requires_grad_(step < steps)
        loss, value = objective(z)
        if step == 0:
            # The initial codes are the best so far, even if their loss is not a number.
            best_z, best_loss, best_objective = z.detach(), loss.detach(), value.detach()
        better = value.detach() < best_objective
        best_z = torch.where(better[:, None], z.detach(), best_z)
        best_loss = torch.where(better, loss.detach(), best_loss)
        best_objective = torch.where(better, value.detach(), best_objective)
        if step == steps:
            break
        (gradient,) = torch.autograd.grad(value.sum(), z)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient.square()
        scale = (second / (1 - beta2 ** (step + 1))).sqrt() + epsilon
        pace = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        moved = z.detach() - pace * first / (1 - beta1 ** (step + 1)) / scale
        if prior.has_density:
            # A step that leaves the support of the prior is not taken.
            moved = torch.where(torch.isfinite(prior.log_prob(moved))[:, None], moved, z.detach())
        z = moved
    return best_z, best_loss
