r"""A mixture lattice that follows codes which have moved.

The law of the codes is estimated anew from the codes by expectation maximisation, from the law that they had before:

    p(z) = sum_j w_j N(z; m_j, S_j)

Each code then belongs to its most likely component, w_j is the share of codes that do, and component j gets a
sublattice of its own, m_j + L_j Q with S_j = L_j L_j'. The codes are again close to the quantiles of the law that is
sampled, whatever shape they have taken.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neurosql.assign.blocks import Block, Layout, child
from neurosql.density import Mixture
from neurosql.prior import Prior

ROUNDS = 2
"""Rounds of expectation maximisation per call: the law follows codes that move slowly."""
SHRINKAGE = 20.0
"""Each covariance counts as if so many more codes had the mean covariance of all components, made spherical."""
LEAST = 1e-6
"""Least variance within components, as a share of the variance of all codes."""


def follow(law: Mixture, codes: Tensor, blocks: list[Block], prior: Prior, seed: int) -> Layout:
    """The law of codes (n, d), estimated anew from a law near it, and its lattice: for each block, one class or all."""
    points = codes.detach().cpu().double()
    weights, means, factors = law.weights.clone(), law.means.clone(), law.factors.clone()
    for block in blocks:
        label = block.label or 0
        # A component that has lost all its codes stays empty.
        used = torch.nonzero(weights[label] > 0).flatten()
        estimate = Mixture(weights[label, used][None], means[label, used][None], factors[label, used][None])
        for _ in range(ROUNDS):
            estimate = _improved(estimate, points[block.rows])
        weights[label, used] = estimate.weights[0]
        means[label, used], factors[label, used] = estimate.means[0], estimate.factors[0]
    return laid_out(Mixture(weights, means, factors), points, blocks, prior, seed)


def laid_out(law: Mixture, codes: Tensor, blocks: list[Block], prior: Prior, seed: int) -> Layout:
    """The lattice of a law of codes (n, d), with as many points in each component as it has codes.

    The lattice rows of a block stay the same rows, divided among its components.
    """
    points = codes.detach().cpu().double()
    weights, lattice = torch.zeros_like(law.weights), torch.empty_like(points)
    parts = []
    for block in blocks:
        label = block.label or 0
        used = torch.nonzero(law.weights[label] > 0).flatten()
        own = Mixture(law.weights[label, used][None], law.means[label, used][None], law.factors[label, used][None])
        component = responsibilities(own, points[block.rows]).argmax(1)
        sizes = torch.bincount(component, minlength=len(used))
        weights[label, used] = sizes.double() / len(block)
        begin = int(block.columns[0])
        for c, size in enumerate(sizes.tolist()):
            if size:
                columns = torch.arange(begin, begin + size)
                quantiles = prior.lattice(size, child(seed, label, c)) / prior.scale
                lattice[columns] = own.means[0, c] + quantiles @ own.factors[0, c].T
                parts.append(Block(block.rows[component == c], columns, block.label))
                begin += size
    return Layout(lattice, blocks, parts, Mixture(weights, law.means, law.factors))


def responsibilities(law: Mixture, z: Tensor) -> Tensor:
    """How likely each code z (n, d) belongs to each component of a law without classes: (n, k)."""
    logs = []
    # One component at a time: all at once would take k times the memory.
    for weight, mean, factor in zip(law.weights[0], law.means[0], law.factors[0]):
        whitened = torch.linalg.solve_triangular(factor, (z - mean).T, upper=False)
        logs.append(weight.log() - 0.5 * whitened.square().sum(0) - factor.diagonal().log().sum())
    return torch.stack(logs, 1).softmax(1)


def _improved(law: Mixture, z: Tensor) -> Mixture:
    """One round of expectation maximisation."""
    n, dim = z.shape
    share = responsibilities(law, z)
    counts = share.sum(0).clamp(min=math.ulp(1.0))
    means = share.T @ z / counts[:, None]
    scatter = torch.stack([(z - mean).T @ (of[:, None] * (z - mean)) for of, mean in zip(share.T, means)])
    least = LEAST * float(z.var(0, correction=0).mean()) or LEAST
    variance = max(float(scatter.diagonal(dim1=-2, dim2=-1).sum()) / (n * dim), least)
    spherical = SHRINKAGE * variance * torch.eye(dim, dtype=z.dtype)
    covariances = (scatter + spherical) / (counts + SHRINKAGE)[:, None, None]
    return Mixture((counts / n)[None], means[None], torch.linalg.cholesky(covariances)[None])


def whitened(laid: Layout, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (n, d) and lattice (n, d), each in the coordinates in which its component is standard normal."""
    points, quantiles = codes.detach().cpu().double().clone(), laid.lattice.clone()
    # Parts are in the order of classes and components, without those that are empty.
    for part, (label, component) in zip(laid.parts, torch.nonzero(laid.law.weights > 0).tolist(), strict=True):
        mean, factor = laid.law.means[label, component], laid.law.factors[label, component]
        for values, rows in ((points, part.rows), (quantiles, part.columns)):
            values[rows] = torch.linalg.solve_triangular(factor, (values[rows] - mean).T, upper=False).T
    return points.to(codes), quantiles.to(codes)


def parts_of(law: Mixture, blocks: list[Block]) -> list[Block]:
    """The lattice rows of each component, as `follow` laid them out; the images are those of the whole block."""
    parts = []
    for block in blocks:
        begin = int(block.columns[0])
        for size in (law.weights[block.label or 0] * len(block)).round().long().tolist():
            if size:
                parts.append(Block(block.rows, torch.arange(begin, begin + size), block.label))
                begin += size
    return parts
