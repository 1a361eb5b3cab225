"""Statistics of a batch that is divided among ranks: exchanged in the forward pass, and differentiable.

Each rank has the loss of its own rows. The loss of the joint batch is the sum of these, each weighted by the rank's
share, and a gradient reaches a rank from the others' losses through what was exchanged. So the gradient of each
exchange is exchanged too, and the sum of all ranks' gradients is that of one process with all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from neurosql.ranks import Ranks, here

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Sum(torch.autograd.Function):
    """The sum over ranks. Its gradient is again a sum over ranks, and has a gradient itself."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.add(tensor.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum(gradient.contiguous(), ctx.ranks), None


class _Rows(torch.autograd.Function):
    """All rows, of which each rank has its part."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], ranks: Ranks) -> Tensor:
        ctx.ranks, ctx.counts = ranks, counts
        return ranks.gather(rows, counts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        own = _sum(gradient.contiguous(), ctx.ranks).split(list(ctx.counts))[ctx.ranks.rank]
        return own, None, None


_sum: Callable[[Tensor, Ranks], Tensor] = _Sum.apply
_rows: Callable[[Tensor, Sequence[int], Ranks], Tensor] = _Rows.apply


def total(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, differentiable."""
    return _sum(tensor, here()) if here().several else tensor


def gathered(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks, of which each has as many as `counts` says, differentiable."""
    return _rows(rows, counts, here()) if here().several else rows


def moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, float]:
    """Mean and variance (divided by the count) of the joint batch over these axes, and how many values each has."""
    variance, mean = torch.var_mean(_wide(x), list(axes), correction=0)
    count = float(x.numel()) / mean.numel()
    # In float64, the difference of mean squares loses nothing that matters.
    mean, variance = mean.double(), variance.double()
    sums = torch.stack([mean, variance + mean.square(), torch.ones_like(mean)]) * count
    mean, square, counts = total(sums)
    n = float(counts.detach().flatten()[0])
    mean = mean / n
    return mean, (square / n - mean.square()).clamp(min=0.0), n


def _wide(x: Tensor) -> Tensor:
    """Layers may hand on bfloat16, in which sums would lose too much."""
    return x.float() if x.dtype == torch.bfloat16 else x


def join_norms(network: nn.Module) -> None:
    """Let each batch norm of a network, while it trains, use the statistics of the joint batch."""
    for module in network.modules():
        if isinstance(module, NORMS):
            module.forward = _Norm(module)  # type: ignore[assignment]


class _Norm:
    """The forward pass of a batch norm whose batch is divided among ranks; torch has one for CUDA alone."""

    def __init__(self, module: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.module
        if not (norm.training and here().several):
            return type(norm).forward(norm, x)
        mean, variance, n = moments(x, [axis for axis in range(x.ndim) if axis != 1])
        self._remember(mean.detach(), variance.detach() * (n / max(n - 1, 1)))
        scale = (variance + norm.eps).rsqrt()
        shift = -mean * scale
        if norm.weight is not None:
            scale, shift = scale * norm.weight, shift * norm.weight + norm.bias
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        wide = _wide(x)
        return (wide * scale.to(wide).view(shape) + shift.to(wide).view(shape)).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as the module does on its own."""
        norm = self.module
        if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
            return
        norm.num_batches_tracked.add_(1)
        rate = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        for running, found in ((norm.running_mean, mean), (norm.running_var, variance)):
            running.mul_(1 - rate).add_(found.to(running), alpha=rate)
